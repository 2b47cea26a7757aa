"""A workspace of any age, without Spark: a log, a stream's output that reads the log, and a second stream that reads the output.

The first commits are those of ``lake.writer``. All later ones are written straight in the same form, Parquet file and entry of the
log, and ``check_form`` compares the two. Files and entries get the times of a year ago, one commit every five seconds.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    Daily,
    EventTime,
    Files,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    operator,
    operator_asset,
    sum,
)
from floodmark.control.streams.fleet import Fleet
from floodmark.engines.spark.delta import tables
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import write
from floodmark.lake.logs import log
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.stream.carrier import SHIFT
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import outputs
from floodmark.lake.table.commits import Landed, Landing, MicroBatch, Record, encode
from floodmark.lake.table.entries import newest
from floodmark.lake.table.files import Written, statistics
from floodmark.lake.table.outputs import check_there
from floodmark.lake.table.rows import marker, row_schema
from floodmark.lake.writing.writer import Writer
from floodmark.semantics.time.watermarks import WHOLE, SourcePartition, WatermarkState
from floodmark.spec.values.schema import ROW, STAMPS, Schema

START_MS = 1_700_000_000_000
EACH_MS = 5_000
"""Between two commits."""
DAYS_AGO = 400
ROWS = 2
_LATEST = 500
_KEPT_BATCHES = 100
"""Micro-batches whose offsets and commits Spark keeps."""


class Reading(Contract):
    """What a device measures."""

    at: EventTime
    device: str
    value: int


@operator
def minutes(readings: Stream[Reading]) -> Stream:
    """Readings per device and minute."""
    return readings.key_by("device").window(Tumbling("1 minute")).aggregate(n=count(), total=sum("value"))


@operator(inputs={"counted": minutes})
def hours(counted: Stream) -> Stream:
    """The same per hour."""
    return counted.key_by("device").window(Tumbling("1 hour")).aggregate(n=sum("n"))


def source(inbox: Path) -> Source:
    """Readings in CSV files."""
    return Source(
        "readings", contract=Reading, connector=Files(str(inbox)), watermark=BoundedOutOfOrderness("5 seconds")
    )


@dataclass(slots=True)
class Aged:
    """A workspace in a folder, with as many commits as were asked for.

    Args:
        root: the folder.
    """

    root: Path
    lake: Lake = field(init=False)
    source: Source = field(init=False)
    workspace: Workspace = field(init=False)
    commits: int = field(default=0, init=False)
    """Landing commits, and micro-batches of ``minutes``."""
    _writers: dict[str, Writer] = field(default_factory=dict, init=False)
    _files: dict[str, Path] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        inbox = self.root / "inbox"
        inbox.mkdir(parents=True, exist_ok=True)
        self.lake, self.source = Lake(str(self.root / "lake")), source(inbox)
        settings = Settings(lake=self.lake.root, folder=str(self.root), divided=False)
        self.workspace = Workspace(
            sources=[self.source],
            operators=[operator_asset(minutes, partitions=Daily("2023-11-14")), operator_asset(hours)],
            settings=settings,
        )
        if not DeltaTable.is_deltatable(self.lake.log("readings")):
            self._create()
        self.commits = DeltaTable(self.lake.log("readings")).transaction_version("land/readings")
        self.commits = 0 if self.commits is None else self.commits + 1

    def _create(self) -> None:
        none: Any = None  # Spark is not needed on a local disk
        schema = outputs.table_schema(self.source.schema)
        tables.create(none, self.lake.log("readings"), schema, properties=log.properties(self.source))
        for code in (minutes, hours):
            for out in code.outputs:
                columns = outputs.table_schema(out.schema, out.partitions)
                tables.create(none, self.lake.output(out.table), columns, properties=outputs.PROPERTIES)
            timeline = Timeline.current(self.lake, code.name)
            timeline.identity.deploy(code)
            write(f"{timeline.checkpoint.path}/metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        fleet = Fleet(workspace=self.workspace, root=self.root)
        for code in (minutes, hours):
            fleet.deploy(code.name, "aged", code.version, "running")
        for number in range(5):
            (self.root / "inbox" / f"0_{number}.csv").write_text("at,device,value\n2023-11-14T22:13:20Z,a,1\n")

    # ---- commits as floodmark makes them

    def land(self, units: LandedUnits | None = None) -> None:
        """One landing commit by the writer, without what Spark does for one."""
        landing, path = self._landing(self.commits), self.lake.log("readings")
        rows = self._log_rows(self.commits)
        modified = int(self._at(self.commits) * 1000)
        self._append(path, rows, landing, (f"land/{landing.source}", landing.ordinal), modified)
        if units is not None:
            units.add(landing.units)
        self.commits += 1

    def batch(self, number: int | None = None) -> None:
        """One micro-batch of ``minutes``, as its sink commits it."""
        number = self.commits - 1 if number is None else number
        path, timeline = self.lake.output("minutes"), Timeline.current(self.lake, "minutes")
        check_there(path, "output 'minutes'", "")
        record = self._micro_batch(number)
        self._append(path, self._output_rows(number), record, (timeline.app("minutes"), number))

    def _append(
        self, path: str, rows: pa.Table, record: Record, once: tuple[str, int], modified: int | None = None
    ) -> None:
        writer = self._writers.setdefault(path, Writer(path))

        def written() -> Written:
            folder = Path(path) / uuid.uuid4().hex
            folder.mkdir()
            pq.write_table(rows, folder / "part-00000.snappy.parquet")
            return Written(folder=folder)

        assert writer.append(written, record, once, modified=modified)

    # ---- the same, straight

    def _at(self, number: int) -> float:
        """When a commit was, s since 1970: the workspace says that it was made so many days ago."""
        born = (self.root / "inbox" / "0_0.csv").stat().st_mtime - DAYS_AGO * 86_400
        return born + number * EACH_MS / 1000

    def age(self, commits: int) -> None:
        """Write commits up to that many, a checkpoint of each table every thousand, and every hundred at the end."""
        self.grow(commits, latest=_LATEST)
        self._writers.clear()
        self._keep_units()
        self.move_checkpoints()

    def grow(self, commits: int, latest: int = 0, *, rows: bool = True) -> None:
        """The commits alone: the lists of landed files and the checkpoints of the streams stay as they are.

        Args:
            commits: that there are afterwards.
            latest: of so many commits at the end, a checkpoint of each table every hundred.
            rows: whether each commit has a file of its own; else all have the file of the first one, for who reads entries alone.
        """
        logs, out = self.lake.log("readings"), self.lake.output("minutes")
        versions = {path: _version(path) for path in (logs, out)}
        timeline = Timeline.current(self.lake, "minutes")
        for number in range(self.commits, commits):
            at = self._at(number)
            landing = self._landing(number)
            versions[logs] += 1
            landed, out_rows = (self._log_rows(number), self._output_rows(number)) if rows else (None, None)
            self._straight(logs, versions[logs], landed, landing, (f"land/{landing.source}", number), at)
            versions[out] += 1
            record = self._micro_batch(number)
            self._straight(out, versions[out], out_rows, record, (timeline.app("minutes"), number), at)
            if number % 1000 == 999 or (commits - number < latest and number % 100 == 99):
                for path in (logs, out):
                    DeltaTable(path).create_checkpoint()
        self.commits = commits

    def _straight(
        self, path: str, version: int, rows: pa.Table | None, record: Record, once: tuple[str, int], at: float
    ) -> None:
        if rows is None:
            file = self._files.get(path) or next(Path(path).glob("*/*.parquet"))
            folder = self._files.setdefault(path, file).parent
        else:
            folder = Path(path) / f"{version:032x}"
            folder.mkdir()
            file = folder / "part-00000.snappy.parquet"
            pq.write_table(rows, file)
        now = int(at * 1000)
        entry = Path(path) / "_delta_log" / f"{version:020d}.json"
        entry.write_text(
            "\n".join(
                json.dumps(action, separators=(",", ":"), ensure_ascii=False)
                for action in actions(f"{folder.name}/{file.name}", file, record, once, now)
            )
        )
        for one in (file, folder, entry):
            os.utime(one, (at, at))

    def _keep_units(self) -> None:
        last = next(log.landings(self.lake.log("readings")))
        units = LandedUnits.load(self.lake, last)
        units.flush()

    def move_checkpoints(self) -> None:
        """Let the checkpoints of both streams be as of the newest commits of what they read."""
        for code, of in ((minutes, self.lake.log("readings")), (hours, self.lake.output("minutes"))):
            table = DeltaTable(of)
            self._checkpoint(code.name, str(table.metadata().id), int(table.version()))

    def _checkpoint(self, name: str, table: str, version: int) -> None:
        path = Timeline.current(self.lake, name).checkpoint.path
        for folder in ("offsets", "commits", "state/0/0", "state/0/1"):
            for old in Path(path, folder).glob("*"):
                if old.is_file():
                    old.unlink()
            Path(path, folder).mkdir(parents=True, exist_ok=True)
        last = self.commits - 1
        for batch in range(max(0, last - _KEPT_BATCHES), last + 1):
            before, after = (self._watermark(number) + SHIFT for number in (batch - 1, batch))
            marks = {"batchWatermarkMs": before, "batchTimestampMs": 0, "conf": {"spark.sql.shuffle.partitions": "2"}}
            place = {"sourceVersion": 1, "reservoirId": table, "reservoirVersion": version + 1 - (last - batch)}
            offset = place | {"index": -1, "isStartingVersion": False}
            Path(path, "offsets", str(batch)).write_text("\n".join(["v1", json.dumps(marks), json.dumps(offset)]))
            ids = {"0": [[f"{batch:036x}"], [f"{batch:036x}"]]}
            commit = {"nextBatchWatermarkMs": after, "stateUniqueIds": ids}
            Path(path, "commits", str(batch)).write_text(f"v2\n{json.dumps(commit)}")
            for partition in range(2):
                Path(path, f"state/0/{partition}/{batch + 1}_{batch:036x}.changelog").write_bytes(b"x" * 1000)

    # ---- what is in them

    def _watermark(self, number: int) -> int:
        return START_MS + number * EACH_MS

    def _landing(self, number: int) -> Landing:
        unit = Landed(
            name=f"{number:09d}.csv",
            size=100,
            modified=number,
            digest=f"{number:064x}",
            status="landed",
            ordinal=number,
        )
        partition = SourcePartition(watermark=self._watermark(number), seen=self._watermark(number))
        return Landing(
            source="readings",
            ordinal=number,
            next_sequence=(number + 1) * (ROWS + 1),
            state=WatermarkState(watermark=self._watermark(number), partitions={WHOLE: partition}),
            units=(unit,),
            rows=ROWS,
            definition=self.source.canonical(),
            fingerprint=self.source.fingerprint,
            run="0" * 32,
        )

    def _micro_batch(self, number: int) -> MicroBatch:
        return MicroBatch(
            operator="minutes",
            version=minutes.version,
            fingerprint=minutes.fingerprint,
            timeline=0,
            table="minutes",
            batch=number,
            progress=self._watermark(number - 1),
            rows=ROWS,
            run="0" * 32,
        )

    def _log_rows(self, number: int) -> pa.Table:
        at, sequence = self._watermark(number), number * (ROWS + 1)
        own = [{"at": at * 1000 + row, "device": "ab"[row], "value": number} for row in range(ROWS)]
        return _table(self.source.schema, own, at, self._watermark(number - 1), at, sequence)

    def _output_rows(self, number: int) -> pa.Table:
        end = self._watermark(number)
        own = [
            {
                "device": "ab"[row],
                "n": 1,
                "total": number,
                "window_start": end * 1000,
                "window_end": (end + EACH_MS) * 1000,
            }
            for row in range(ROWS)
        ]
        progress = self._watermark(number - 1)
        return _table(minutes.outputs[0].schema, own, end, progress, progress, number << 30)


def _version(path: str) -> int:
    """The newest version of a table, which is opened only if it has no checkpoint."""
    known = newest(path)
    return int(DeltaTable(path).version()) if known is None else known


def _table(schema: Schema, own: list[dict[str, Any]], at: int, stamp: int, after: int, sequence: int) -> pa.Table:
    rows = []
    for number, row in enumerate(own):
        stamps = (at * 1000, stamp, stamp, sequence + number, at * 1000, ROW)
        rows.append(row | dict(zip(STAMPS, stamps, strict=True)))
    table = pa.Table.from_pylist(rows, schema=row_schema(schema))
    return pa.concat_tables(
        [table, pa.Table.from_batches([marker(schema, watermark=after, sequence=sequence + len(own), now=at)])]
    )


def actions(path: str, file: Path, record: Record, once: tuple[str, int], now: int) -> Iterator[dict[str, Any]]:
    """The entry of the log for one file, action by action, as ``lake.tail`` writes it."""
    yield {
        "commitInfo": {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "engineInfo": "floodmark",
            "userMetadata": encode(record),
        }
    }
    yield {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": now,
            "dataChange": True,
            "stats": statistics(pq.read_metadata(file)),
        }
    }
    yield {"txn": {"appId": once[0], "version": once[1]}}


def check_form(path: str, version: int, other: int) -> None:
    """Make sure that two entries of a log have one form, and that their Parquet files have one schema.

    Args:
        path: of the table.
        version: of the entry that the writer has written.
        other: of one that was written straight.
    """
    forms, schemas = [], []
    for number in (version, other):
        text = Path(path, "_delta_log", f"{number:020d}.json").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        forms.append(_form(lines))
        added = next(line["add"] for line in lines if "add" in line)
        stats = json.loads(added["stats"])
        forms[-1] = (forms[-1], _form(stats))
        schemas.append(pq.read_schema(Path(path, added["path"])))
    assert forms[0] == forms[1], f"{forms[0]}\n{forms[1]}"
    assert schemas[0] == schemas[1]


def _form(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _form(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_form(one) for one in value]
    return type(value).__name__
