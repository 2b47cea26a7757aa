"""Canonical savepoints of streams on Spark (``lake/restore/canonical``): Spark's state exported as rows, and such rows imported as Spark's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from floodmark.compiler.paths import Copy, Node, copies_of
from floodmark.engines.frames.packing import EMITTED
from floodmark.engines.spark.delta.tables import structure
from floodmark.engines.spark.state.checkpoint import Checkpoint
from floodmark.engines.spark.state.host import StateStore
from floodmark.engines.spark.state.processor import SCHEMAS
from floodmark.engines.starting import check_savepoint
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import canonical
from floodmark.lake.restore.canonical import BatchMetadata, Fold, Unfold
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream import positions
from floodmark.lifecycle.savepoint import Manifest
from floodmark.semantics.state.index import Index
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph.stages import first_group
from floodmark.spec.graph.steps import MOST_KEY_GROUPS

if TYPE_CHECKING:
    import pandas as pd  # takes longer to load than the rest, and only workers use it

_ROWS = "group int, deadline bigint, index binary, number bigint, piece int, pieces int, chunk binary"
"""``lake.restore.canonical.ROWS``."""
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


def export(spark: SparkSession, savepoint: Savepoint, target: str) -> str:
    """Write a savepoint of Spark's to another folder or store in the canonical format; returns the folder written.

    Raises:
        StateError: STATE-021 the savepoint is damaged, STATE-041 another engine has made it.
    """
    check_savepoint(savepoint, "spark")
    return canonical.export(savepoint, target, unfolding(lambda: spark, savepoint.manifest.graph))


def unfolding(spark: Callable[[], SparkSession], graph: Node) -> Unfold:
    """The function that writes the state of a checkpoint in the canonical format.

    Args:
        spark: starts a session; called only for a checkpoint with state.
        graph: of the operator, in its canonical form.
    """

    def unfold(folder: str, batch: int, state: str) -> BatchMetadata:
        checkpoint = Checkpoint(folder)
        if checkpoint.stateful(batch):
            copies = [copy.stage for last in copies_of(graph) for copy in last.walk()]
            rows = [_rows(spark(), folder, batch, copies.index(stage), stage) for stage in sorted(set(copies))]
            reduce(DataFrame.unionByName, rows).write.parquet(state)
        return checkpoint.marks(batch)

    return unfold


def folding(spark: SparkSession) -> Fold:
    """The function that makes a checkpoint from a canonical savepoint, in the format and with the settings of a session.

    Args:
        spark: session; its ``spark.sql.shuffle.partitions`` is the number of state partitions.
    """

    def fold(state: str | None, checkpoint: object, manifest: Manifest, marks: BatchMetadata) -> None:
        assert isinstance(checkpoint, Checkpoint)
        seed = Checkpoint(f"{checkpoint.path}.seed")
        remove(seed.path)
        _seed(spark, state, seed.path, copies_of(manifest.graph))
        read = positions.of_sources(manifest.graph, marks.positions)
        checkpoint.begin(seed, manifest.batch, marks._replace(positions=read))
        remove(seed.path)

    return fold


def import_savepoint(spark: SparkSession, lake: Lake, source: str) -> Savepoint:
    """Import a canonical savepoint into a lake as a savepoint for Spark.

    Raises:
        StateError: STATE-020 the source is of a newer format, STATE-021 the source is damaged or no savepoint.
        LifecycleError: LIFECYCLE-003, another savepoint of the operator is being made.
    """
    return canonical.import_savepoint(lake, source, "spark", folding(spark))


def _rows(spark: SparkSession, checkpoint: str, batch: int, operator: int = 0, stage: int = 0) -> DataFrame:
    """The state of a stage as of a micro-batch, as ``_ROWS``. Key groups of a later stage have numbers of their own, as on the embedded engine.

    Args:
        spark: session.
        checkpoint: folder of the checkpoint.
        batch: a micro-batch whose state the checkpoint retains.
        operator: Spark's number of a copy of the stage.
        stage: number of the stage.
    """

    def state(name: str) -> DataFrame:
        reader = spark.read.format("statestore").option("batchId", batch).option("stateVarName", name)
        return reader.option("operatorId", operator).load(checkpoint)

    nothing = {name: F.lit(None).alias(name) for name in ("deadline", "index", "number", "piece", "pieces", "chunk")}
    heads = {"deadline": F.col("value.deadline"), "index": F.col("value.index")}
    chunks = {name: F.col(f"user_map_key.{name}") for name in ("number", "piece")}
    chunks |= {name: F.col(f"user_map_value.{name}") for name in ("pieces", "chunk")}
    of_index, of_chunks = (
        state(name).select((F.col("key.group") + first_group(stage)).alias("group"), *(nothing | columns).values())
        for name, columns in (("index", heads), ("chunks", chunks))
    )
    return of_index.unionByName(of_chunks).to(structure(_ROWS))


def fired(spark: SparkSession, checkpoint: str, batch: int) -> dict[int, MemoryStore]:
    """Key group -> store in memory with the state of fired windows, as of a micro-batch, of a stage of windows in columns.

    Args:
        spark: session.
        checkpoint: folder of the checkpoint, on which no query runs.
        batch: a micro-batch whose state the checkpoint retains.
    """
    rows, stores = _rows(spark, checkpoint, batch), dict[int, MemoryStore]()
    for row in rows.filter("index IS NOT NULL").select("group", "index").collect():
        stores[row["group"]] = MemoryStore(head=bytes(row["index"]))
    layers = {group: Index.load(store.head).fired.values() for group, store in stores.items()}
    wanted = [(group, layer[0]) for group, windows in layers.items() for window in windows for layer in window]
    if not wanted:
        return stores
    wanted_chunks, cut = (
        spark.createDataFrame(wanted, "group int, number bigint"),
        dict[tuple[int, int], dict[int, bytes]](),
    )
    for row in (
        rows.filter("number IS NOT NULL").join(F.broadcast(wanted_chunks), ["group", "number"]).toLocalIterator()
    ):
        pieces = cut.setdefault((row["group"], row["number"]), {})
        pieces[row["piece"]] = bytes(row["chunk"])
        if len(pieces) == row["pieces"]:
            stores[row["group"]].put(row["number"], b"".join(pieces[piece] for piece in range(len(pieces))))
            del cut[row["group"], row["number"]]
    return stores


class _Seeder(StatefulProcessor):
    """Writes exported state to the states of ``Processor``."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the states. Spark calls this once per state partition."""
        head = handle.getValueState("index", SCHEMAS["index"])
        self.store = StateStore(handle, head, handle.getMapState("chunks", SCHEMAS["chunks.key"], SCHEMAS["chunks"]))

    def handleInitialState(  # type: ignore[override]  # noqa: N802 - Spark's name; pandas variant only
        self,
        key: Any,  # noqa: ARG002 - the rows have it
        initialState: pd.DataFrame,  # noqa: N803 - Spark's name
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        """Write rows of one key group; Spark may pass them in several calls."""
        import pandas as pd  # noqa: PLC0415 - see above

        for row in initialState.to_dict("records"):
            if row["index"] is not None:
                deadline = None if pd.isna(row["deadline"]) else int(row["deadline"])
                self.store.put_index(bytes(row["index"]))
                self.store.write_index(deadline)
            else:
                self.store.put_piece(int(row["number"]), int(row["piece"]), int(row["pieces"]), bytes(row["chunk"]))
        self.store.write()

    def handleInputRows(self, *_: Any, **__: Any) -> Iterator[pd.DataFrame]:  # noqa: N802 - Spark's name
        """Emit nothing: there are no input rows."""
        yield from ()

    def close(self) -> None:
        """Nothing is held open."""


def _seed(spark: SparkSession, source: str | None, checkpoint: str, copies: Sequence[Copy]) -> None:
    """Let Spark write a checkpoint that holds the exported state as of its first micro-batch."""
    spark = beside(
        spark, {_CHANGELOG: "false", _NO_DATA: "false"}
    )  # so that state is one snapshot, which can be renumbered
    none = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().filter("false")
    group = F.when(F.col("value") > 0, 0).alias("group")  # nullable, as in a stream: Spark compares the schemas
    rows = none.select(group, F.col("timestamp").alias("carrier"))
    if source is not None:
        state = spark.read.schema(_ROWS).parquet(source)
        rows = rows.withWatermark("carrier", "1 millisecond").select("group")
        rows = reduce(DataFrame.union, [_seeded(rows, state, copy) for copy in copies])
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


def _seeded(none: DataFrame, state: DataFrame, copy: Copy) -> DataFrame:
    """A copy of a stage that holds its state, behind those before it."""
    before = [_seeded(none, state, one).select(F.col("group").cast("int")) for one in copy.before]
    first = first_group(copy.stage)
    mine = state.filter(F.col("group").between(first, first + MOST_KEY_GROUPS - 1))
    own = mine.withColumn("group", F.col("group") - first).groupBy("group")
    grouped = reduce(DataFrame.union, before or [none]).groupBy("group")
    return grouped.transformWithStateInPandas(_Seeder(), EMITTED, "Append", "EventTime", initialState=own)


def beside(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session with the settings of another session except for some, which no query of the other session sees."""
    session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())  # noqa: SLF001 - PySpark's public newSession does not keep settings
    for name, value in settings.items():
        session.conf.set(name, value)
    return session
