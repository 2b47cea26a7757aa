"""Canonical savepoints: state as rows of Parquet instead of files of Spark's own, for another engine version or other settings of its state.

Source: canonical savepoints of Flink. What is exported holds state by key group, timers included, positions by table and version, and
nothing that only one engine can read; what is imported is a savepoint as this engine would have made it here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from floodmark.core.errors import StateError
from floodmark.engines.frames.packing import EMITTED
from floodmark.engines.spark.delta.tables import structure
from floodmark.engines.spark.state.checkpoint import Checkpoint, Marks, Passed
from floodmark.engines.spark.state.host import StateStore
from floodmark.engines.spark.state.processor import SCHEMAS
from floodmark.engines.starting import check_savepoint
from floodmark.lake import savepoints
from floodmark.lake.checkpoint import Position
from floodmark.lake.copies import copy, remove
from floodmark.lake.identity import IDENTITY
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.storage import read, write
from floodmark.lifecycle.savepoint import MANIFEST, MARKS, broken

if TYPE_CHECKING:
    import pandas as pd  # takes longer to load than the rest, and only workers use it

STATE = "state"
_ROWS = "group int, deadline bigint, index binary, number bigint, piece int, pieces int, chunk binary"
"""Of a key group: one row with the index of its state and the progress it waits for, one for each piece of each chunk."""
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_FORMAT = 1


def export(spark: SparkSession, savepoint: Savepoint, target: str) -> str:
    """Write a savepoint to another folder or store in the canonical format, the manifest last.

    Args:
        spark: session.
        savepoint: of any stream, with or without state.
        target: a folder for it is made in there.

    Returns:
        The folder.

    Raises:
        StateError: STATE-021 it is damaged, STATE-041 another engine has made it.
    """
    savepoints.check(savepoint)
    check_savepoint(savepoint, "spark")
    manifest = savepoint.manifest
    place = f"{target.rstrip('/')}/{manifest.id}"
    unfolded = f"{place}.draft"
    remove(place)
    savepoints.restore(savepoint, unfolded)
    checkpoint, batch = Checkpoint(f"{unfolded}/checkpoint"), manifest.batch
    if checkpoint.stateful(batch):
        _rows(spark, checkpoint.path, batch).write.parquet(f"{place}/{STATE}")
    for path in manifest.files:
        if not path.startswith("checkpoint/") or path == f"checkpoint/{IDENTITY}":
            copy(f"{savepoint.path}/{path}", f"{place}/{path.removeprefix('checkpoint/')}", link=False)
    marks = checkpoint.marks(batch)
    said = {
        "format": _FORMAT,
        **_without_nothing(marks),
        "positions": [_without_nothing(one) for one in marks.positions],
    }
    write(f"{place}/{MARKS}", json.dumps(said, indent=1).encode())
    remove(unfolded)
    whole = replace(manifest, files=savepoints.digests(place))
    write(f"{place}/{MANIFEST}", whole.as_json().encode())
    return place


def _rows(spark: SparkSession, checkpoint: str, batch: int) -> DataFrame:
    """The state of a stream as of a micro-batch."""

    def state(name: str) -> DataFrame:
        reader = spark.read.format("statestore").option("batchId", batch).option("stateVarName", name)
        return reader.load(checkpoint)

    nothing = {name: F.lit(None).alias(name) for name in ("deadline", "index", "number", "piece", "pieces", "chunk")}
    heads = {"deadline": F.col("value.deadline"), "index": F.col("value.index")}
    chunks = {name: F.col(f"user_map_key.{name}") for name in ("number", "piece")}
    chunks |= {name: F.col(f"user_map_value.{name}") for name in ("pieces", "chunk")}
    of_index, of_chunks = (
        state(name).select(F.col("key.group").alias("group"), *(nothing | given).values())
        for name, given in (("index", heads), ("chunks", chunks))
    )
    return of_index.unionByName(of_chunks).to(structure(_ROWS))


def take_in(spark: SparkSession, lake: Lake, source: str) -> Savepoint:
    """Make a savepoint in a lake of a canonical one, in the format and with the settings of this session.

    Args:
        spark: session; its ``spark.sql.shuffle.partitions`` is the number of state partitions.
        lake: that has the tables the stream reads and writes.
        source: folder of the canonical savepoint.

    Raises:
        StateError: STATE-020 it is of a newer format, STATE-021 it is damaged or none.
        LifecycleError: LIFECYCLE-003, another savepoint of the operator is being made.
    """
    source = source.rstrip("/")
    given = savepoints.opened(source)
    savepoints.check(given)
    marks, manifest = _marks(source), given.manifest
    with savepoints.drafted(manifest.operator, lake) as draft:
        checkpoint = f"{draft.path}/checkpoint"
        seed = Checkpoint(f"{draft.path}/seed")
        _seed(spark, source if any(path.startswith(f"{STATE}/") for path in manifest.files) else None, seed.path)
        Checkpoint(checkpoint).begin(seed, manifest.batch, marks)
        remove(seed.path)
        copy(f"{source}/{IDENTITY}", f"{checkpoint}/{IDENTITY}", link=False)
        for path in manifest.files:
            if "/" in path and not path.startswith(f"{STATE}/"):
                copy(f"{source}/{path}", f"{draft.path}/{path}", link=False)
        made = replace(
            manifest,
            id=draft.name,
            at=draft.at,
            engine=Checkpoint(checkpoint).engine(manifest.batch),
            why=manifest.why or f"import of {manifest.id}",
            files=savepoints.digests(draft.path),
        )
        write(f"{draft.path}/{MANIFEST}", made.as_json().encode())
    return savepoints.find(lake, draft.name)


def _without_nothing(one: Marks | Position) -> dict[str, Any]:
    """As JSON; without what versions before did not know, where it says nothing."""
    return {name: value for name, value in one._asdict().items() if value not in (None, {})}


def _marks(source: str) -> Marks:
    said: dict[str, Any] = json.loads(read(f"{source}/{MARKS}") or b"{}")
    if not said:
        raise broken(f"folder {source}", f"one without '{MARKS}'")
    if (written := int(said.pop("format"))) > _FORMAT:
        fix = "Use the floodmark that wrote it, or a newer one: pip install --upgrade floodmark"
        expected = f"format {_FORMAT} or older"
        raise StateError(f"savepoint {source}", expected, f"format {written}", fix, code="STATE-020")
    passed = {table: Passed(*one) for table, one in said.get("passed", {}).items()}
    return Marks(**said | {"positions": [Position(**one) for one in said["positions"]], "passed": passed})


class _Seeder(StatefulProcessor):
    """Puts what was exported where ``Processor`` looks for it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once per state partition."""
        head = handle.getValueState("index", SCHEMAS["index"])
        self.store = StateStore(handle, head, handle.getMapState("chunks", SCHEMAS["chunks.key"], SCHEMAS["chunks"]))

    def handleInitialState(  # type: ignore[override]  # noqa: N802 - Spark's name; pandas variant only
        self,
        key: Any,  # noqa: ARG002 - the rows say it
        initialState: pd.DataFrame,  # noqa: N803 - Spark's name
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        """Rows of one key group; not always all of them at once."""
        import pandas as pd  # noqa: PLC0415 - see above

        for row in initialState.to_dict("records"):
            if row["index"] is not None:
                deadline = None if pd.isna(row["deadline"]) else int(row["deadline"])
                self.store.put_index(bytes(row["index"]))
                self.store.settle(deadline)
            else:
                self.store.put_piece(int(row["number"]), int(row["piece"]), int(row["pieces"]), bytes(row["chunk"]))

    def handleInputRows(self, *_: Any, **__: Any) -> Iterator[pd.DataFrame]:  # noqa: N802 - Spark's name
        """There are none."""
        yield from ()

    def close(self) -> None:
        """Nothing is held open."""


def _seed(spark: SparkSession, source: str | None, checkpoint: str) -> None:
    """Let Spark write a checkpoint that holds the exported state as of its first micro-batch."""
    none = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().filter("false")
    group = F.when(F.col("value") > 0, 0).alias("group")  # may be null, as that of a stream: Spark compares the schemas
    rows = none.select(group, F.col("timestamp").alias("carrier"))
    if source is not None:
        state = spark.read.schema(_ROWS).parquet(f"{source}/{STATE}").groupBy("group")
        grouped = rows.withWatermark("carrier", "1 millisecond").groupBy("group")
        rows = grouped.transformWithStateInPandas(_Seeder(), EMITTED, "Append", "EventTime", initialState=state)
    with _settings(spark, {_CHANGELOG: "false", _NO_DATA: "false"}):  # whole state, which can be given a number
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            spark.conf.unset(name) if was is None else spark.conf.set(name, was)
