"""A driver whose engine is the local one: python local_driver.py URL DRIVER floodmark.control.processes.driver.

State, tables, transactions and the checkpoint's files are what Spark's driver leaves, so that the control plane sees no difference; but it starts in
a second, and is killed as quickly.
"""

from __future__ import annotations

import json
import pickle
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from lifecycle_process import TOTALS, WIDER

from floodmark.control.state.store import Store
from floodmark.core.errors import FloodmarkError, SetupError
from floodmark.core.handlers import defer
from floodmark.core.time import NEVER
from floodmark.engines.embedded.memory.run import MemoryRun, Savepoint
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.restore.switch import refuse_while_pending
from floodmark.lake.stream.batch_state import check_read
from floodmark.lake.stream.carrier import SHIFT
from floodmark.lake.stream.checkpoint import Checkpoint
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.commits import MicroBatch, encode
from floodmark.lake.writing.writer import FENCE
from floodmark.spec.graph.operator import Operator

VERSIONS = {one.version: one for one in (TOTALS, WIDER)}


def run(operator: Operator, lake: Lake, stop: Callable[[], bool], tell: Callable[[int], None]) -> None:
    """A stream of one version of the log after the other, until it should stop."""
    with exclusive(lake, "operators", operator.name, "run"):
        refuse_while_pending(lake, operator.name)
        timeline = Timeline.current(lake, operator.name)
        if timeline.identity.deployed() is None:
            timeline = timeline.unused(
                o.table for o in operator.outputs if DeltaTable.is_deltatable(lake.output(o.table))
            )
            timeline.make_current()
            write(f"{timeline.checkpoint.path}/metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        timeline.identity.claim(operator)
        check_read(timeline)
        for batch in _batches(timeline, operator, lake, stop):
            tell(batch)


def _batches(timeline: Timeline, operator: Operator, lake: Lake, stop: Callable[[], bool]) -> Iterator[int]:
    checkpoint, who, log = timeline.checkpoint, uuid.uuid4().hex, lake.log(operator.inputs[0].table)
    batch = checkpoint.last_committed()
    local = MemoryRun(operator, _state(checkpoint, batch))
    while not stop():
        if not checkpoint.positions(batch + 1):
            read_to = checkpoint.positions(batch)[0].version if batch >= 0 else -1
            if not DeltaTable.is_deltatable(log) or DeltaTable(log).version() == read_to:
                time.sleep(0.1)
                continue
            _plan(checkpoint, batch + 1, DeltaTable(log), read_to + 1, local.progress)
        batch += 1
        before = local.progress
        version = checkpoint.positions(batch)[0].version
        made = local.batch({operator.inputs[0].name: _rows(log, version)})
        state = uuid.uuid4().hex
        write(f"{checkpoint.path}/state/0/0/{batch + 1}_{state}.zip", pickle.dumps(local.savepoint()))
        for output in reversed(operator.outputs):
            record = MicroBatch(
                operator=operator.name,
                version=operator.version,
                timeline=timeline.number,
                table=output.table,
                batch=batch,
                progress=before,
                run=who,
            )
            _append(timeline, made[output.name], record)
        after = {"nextBatchWatermarkMs": _spark(local.progress), "stateUniqueIds": {"0": [[[state][0]]]}}
        write(f"{checkpoint.path}/commits/{batch}", f"v2\n{json.dumps(after)}".encode())
        yield batch


def _spark(progress: int) -> int:
    return max(progress, NEVER) - 1 + SHIFT


def _plan(checkpoint: Checkpoint, batch: int, log: DeltaTable, version: int, progress: int) -> None:
    said = {"batchWatermarkMs": _spark(progress), "batchTimestampMs": 0, "conf": {"spark.sql.shuffle.partitions": "1"}}
    place = {"sourceVersion": 1, "reservoirId": str(log.metadata().id), "reservoirVersion": version + 1, "index": -1}
    lines = ["v1", json.dumps(said), json.dumps(place | {"isStartingVersion": False})]
    write(f"{checkpoint.path}/offsets/{batch}", "\n".join(lines).encode())


def _state(checkpoint: Checkpoint, batch: int) -> Savepoint | None:
    if batch < 0:
        return None
    found = json.loads((read(f"{checkpoint.path}/commits/{batch}") or b"").splitlines()[1])
    content = read(f"{checkpoint.path}/state/0/0/{batch + 1}_{found['stateUniqueIds']['0'][0][0]}.zip")
    assert content is not None
    state: Savepoint = pickle.loads(content)
    return state


def _rows(log: str, version: int) -> pa.Table:
    """Of one commit."""
    files = set(DeltaTable(log, version=version).file_uris())
    before = set(DeltaTable(log, version=version - 1).file_uris()) if version else set()
    (new,) = files - before
    return pa.parquet.read_table(new.removeprefix("file://"))


def _append(timeline: Timeline, rows: pa.Table, record: MicroBatch) -> None:
    path, app, batch = timeline.lake.output(record.table), timeline.app(record.table), record.batch
    rows = rows.append_column("_ingest_time", pa.nulls(rows.num_rows, pa.timestamp("us", "UTC")))
    if DeltaTable.is_deltatable(path):
        table = DeltaTable(path)
        marked = table.transaction_version(app)
        if marked == FENCE:
            raise FloodmarkError("local driver", "the current timeline", "a fence", "Stop it.", code="LIFECYCLE-057")
        if marked is not None and marked >= batch:
            return
        for field in pa.schema(table.schema().to_arrow()):
            if field.name not in rows.column_names:
                rows = rows.append_column(field.name, pa.nulls(rows.num_rows, pa.field(field).type))
    said = CommitProperties(
        custom_metadata={"userMetadata": encode(record)}, app_transactions=[Transaction(app, batch)]
    )
    write_deltalake(path, rows, mode="append", commit_properties=said)


def main(url: str, number: str, *_: str) -> int:
    """Run until SIGTERM."""
    store, stop = Store(url), threading.Event()
    driver = store.driver(int(number))
    if driver.ended_at is not None:
        return 1
    signal.signal(signal.SIGTERM, lambda *_: defer(stop.set))
    deployment = store.deployment(driver.stream)
    assert deployment is not None

    def beat() -> None:
        while not stop.wait(0.2):
            with suppress(SetupError):  # the store is away: a stream goes on
                store.update(driver.id, heartbeat_at=time.time())

    threading.Thread(target=beat, daemon=True).start()
    store.update(driver.id, state="running", heartbeat_at=time.time())
    try:
        run(
            VERSIONS[driver.version],
            Lake(deployment.lake),
            stop.is_set,
            lambda batch: store.update(driver.id, batch=batch),
        )
    except FloodmarkError as error:
        store.end(driver.id, "crashed", str(error))
        return 1
    store.end(driver.id, "stopped", "stopped at a micro-batch boundary")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
