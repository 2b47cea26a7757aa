"""Inputs of a stream on Spark: the position from which each is read, and the rows of a micro-batch. Several inputs are one tagged stream."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from deltalake import DeltaTable as DeltaRs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from floodmark.core.errors import ExecutionError
from floodmark.core.time import NEVER
from floodmark.engines.frames.compile import CARRIER
from floodmark.engines.frames.floats import unranged
from floodmark.engines.frames.inputs import require_columns
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.engines.spark.unbounded import starts as markers
from floodmark.lake.restore.canonical import Passed
from floodmark.lake.restore.ending import reopened_since
from floodmark.lake.restore.readers import unchanged_until
from floodmark.lake.stream import positions
from floodmark.lake.stream.carrier import SHIFT
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.stream.plans import plan_of
from floodmark.lake.stream.timeline import REACHED, Timeline, inputs_at, positions_at
from floodmark.lake.table import entries, history
from floodmark.lake.table.sequences import FAR_BEHIND, begins_in_order, files_behind, files_of, last_read, noted
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.values.schema import MARKER, STAMPS

_ALL_FILES = 2**31 - 1
_ALL_BYTES = 2**63 - 1
_FILES, _BYTES = 10_000, 2**30
"""Most files of an input in a micro-batch; and the bytes after which a micro-batch gets no further file."""


def shorten(operator: Operator, timeline: Timeline, last: int, reading: Mapping[str, TableVersion]) -> None:
    """Let a stream resume from the files that its inputs have now, if the commits since its last position are too many or no longer readable.

    A stream that has read all files of a starting version resumes after that version: Spark would list the files again at each start. A
    planned micro-batch without rows in any table is planned again; nothing is changed if tables have rows of the planned micro-batch.
    """
    checkpoint = checkpoint_of(timeline)
    deployed = timeline.identity.deployed()
    assert deployed is not None
    numbers = positions.numbers(deployed.graph, len(checkpoint.positions(last)))
    by_name = {input_.name: input_ for input_ in operator.inputs}
    nearer_positions = {
        n: _nearer(timeline, by_name[n], reading[n], at) for n, at in positions_at(timeline, last).items()
    }
    nearer = {
        source: place for name, place in nearer_positions.items() if place is not None for source in numbers[name]
    }
    planned = max(checkpoint.batches("offsets"), default=-1)
    clocked = operator.stateful is not None and operator.stateful.clocked
    stays = clocked or timeline.newest_written > last or plan_of(checkpoint.path, planned) is not None
    if not nearer or (planned > last and stays):
        return
    if planned > last:
        checkpoint.forget(planned)
    for source, (position, passed) in nearer.items():
        checkpoint.set_position(last, source, position, passed)


def _nearer(
    timeline: Timeline, input_: Input, reading: TableVersion, at: Position
) -> tuple[Position, Passed | None] | None:
    """(position of a source) -> a later start for the source, and the rows to leave out from there; None if the position stays."""
    path = timeline.lake.input(input_)
    if not at.table or not DeltaRs.is_deltatable(path):
        return None
    stays = None
    if at.snapshot is not None and reading.version == at.snapshot:
        at = Position(at.snapshot, -1, at.table)
        stays = at, None
    reopened = input_.upstream is None and reopened_since(path, at.version if at.snapshot is None else at.snapshot)
    known = _last_read(timeline, input_, reading, at) if reopened or _is_cut_off(path, input_, at) else None
    listing = None if known is None else files_behind(path, at.version, input_)
    if known is None or listing is None:
        if reopened:
            name = timeline.operator
            where, fix = (
                f"input '{input_.name}' of '{name}'",
                f"Compute it anew: floodmark run {name} --unbounded --from-scratch",
            )
            got = "not known any more; an end of input was taken back behind it"
            raise ExecutionError(where, "the last row that is read", got, fix, code="EXECUTION-060")
        return stays
    version, files = listing
    behind = sum(file.last <= known for file in files)
    return Position(at.version, behind - 1, at.table, version), Passed(known, at.version)


def _is_cut_off(path: str, input_: Input, at: Position) -> bool:
    """Whether a file or a commit after a position is gone, or the commits are too many to be read one by one."""
    version, newest = at.version if at.snapshot is None else at.snapshot, entries.version_of(path)
    if newest - version >= FAR_BEHIND or not entries.readable(path, version + 1, newest):
        return True
    files = [] if at.snapshot is None else files_of(path, at.snapshot, input_) or []
    return not entries.all_there(path, (file.path for file in files[at.file + 1 :]))


def _last_read(timeline: Timeline, input_: Input, reading: TableVersion, at: Position) -> int | None:
    """The last ``_sequence`` that is read at a position; None if it cannot be derived any more."""
    path = timeline.lake.input(input_)
    if at.snapshot is None:
        last = last_read(path, at.version, at.file, input_)
        return noted(timeline.folder(REACHED), reading) if last is None else last
    files, passed = files_of(path, at.snapshot, input_), checkpoint_of(timeline).passed().get(at.table)
    if files is None:
        return None
    return max(files[at.file].last if at.file >= 0 else -1, -1 if passed is None else passed.sequence)


def read(spark: SparkSession, operator: Operator, timeline: Timeline, input_: Input, files: int | None) -> DataFrame:
    """The rows of an input from the first one on, with Spark's watermark on the carrier.

    A table whose files are in the order of their sequences is read file by file, from its newest version on; compaction keeps this order, and
    older commits are not needed. Another table is read commit by commit.
    A table that was restored, replaced or vacuumed is read in its newest version as well, in one micro-batch: its first versions hold rows
    that were removed, or lack files. Rows of bounded runs that have replaced rows of the stream are read in this case.
    """
    path = timeline.lake.input(input_)
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", _BYTES)
    last = timeline.checkpoint.last_committed()
    by_commit = not _file_by_file(timeline, input_, last)
    as_it_is = by_commit and last < 0 and history.rewritten(path)
    if as_it_is:
        files = _ALL_FILES  # the files have no order: one micro-batch reads them all
        reader = reader.option("maxBytesPerTrigger", _ALL_BYTES)
    elif by_commit:
        # at a start Spark plans the last micro-batch again, the first from this version: not from before the commits of a rollback
        first = inputs_at(timeline, 0)[input_.name].version if last == 0 else 0
        reader = reader.option("startingVersion", max(first, 0))
    reader = reader.option("maxFilesPerTrigger", files or _FILES)
    if input_.upstream is not None:  # commits of bounded runs replace rows of an output, and are skipped
        reader = reader.option("skipChangeCommits", "true")
    rows = require_columns(reader.load(path), operator, input_)
    rows = (_with_restated(spark, path, rows) if as_it_is else rows).filter("_progress IS NOT NULL")
    position = positions_at(timeline, last).get(input_.name)
    passed = checkpoint_of(timeline).passed().get(position.table) if position else None
    if passed is not None:  # markers of an output have no sequence
        rows = rows.filter(F.col("_sequence").isNull() | (F.col("_sequence") > passed.sequence))
    rows = unranged(rows.select(*(f"`{name}`" for name in (*input_.schema.names, *STAMPS))))
    rows = markers.with_starts(spark, operator, timeline, input_, rows)
    carrier = F.expr(f"timestamp_millis(`_progress` + {SHIFT})").alias(CARRIER)
    return rows.select("*", carrier).withWatermark(CARRIER, "1 millisecond")


def _file_by_file(timeline: Timeline, input_: Input, last: int) -> bool:
    """Whether a table is read file by file from its starting version. Matters while Spark plans the first rows, or plans them again."""
    planned = checkpoint_of(timeline).batches("offsets")[-2:]
    known = [at for batch in planned if (at := positions_at(timeline, batch).get(input_.name)) is not None]
    if any(at.snapshot is not None for at in known):
        return True
    if input_.upstream is not None and last >= 0:
        return False
    return begins_in_order(timeline.lake.input(input_), input_) is not None


def arrived(spark: SparkSession, number: int, *, operator: Operator, timeline: Timeline) -> dict[str, DataFrame]:
    """Input name -> the rows that no micro-batch before this one has read; perhaps also read rows of the last commit before.

    Args:
        spark: session.
        number: of the micro-batch.
        operator: of the stream.
        timeline: of the stream.
    """
    before = inputs_at(timeline, number - 1) if number else {}
    rows_by_input = {}
    for input_ in operator.inputs:
        path = timeline.lake.input(input_)
        rows = spark.read.format("delta").load(path).filter(f"_progress IS NOT NULL AND _kind <> {MARKER}")
        if input_.name in before and before[input_.name].version >= 0:
            known = (
                spark.read.format("delta").option("versionAsOf", unchanged_until(path, before[input_.name])).load(path)
            )
            last = known.filter("_progress IS NOT NULL").agg(F.max("_sequence")).collect()[0][0]
            rows = rows if last is None else rows.filter(F.col("_sequence") > last)
        rows_by_input[input_.name] = unranged(rows.select(*(f"`{name}`" for name in (*input_.schema.names, *STAMPS))))
    return rows_by_input


def rows_read(spark: SparkSession, name: str) -> int:
    """Rows that the micro-batch at work of a query has read, markers included, by the counters of Spark's scans; no job is run.

    Args:
        spark: session that has started the query.
        name: of the query.
    """
    query = next(query for query in spark.streams.active if query.name == name)
    plan: Any = query._jsq.streamingQuery().lastExecution().executedPlan()  # noqa: SLF001 - Python has no plan of a query
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":  # of steps without state
        plan = plan.executedPlan()
    leaves = plan.collectLeaves()
    counters = (leaves.apply(number).metrics().get("numOutputRows") for number in range(leaves.size()))
    return sum(int(counter.get().value()) for counter in counters if counter.isDefined())


def _with_restated(spark: SparkSession, path: str, rows: DataFrame) -> DataFrame:
    """Rows in which those that bounded runs have written until now get a progress, like rows of the stream; later ones stay without."""
    restated = spark.read.format("delta").load(path).where("_progress IS NULL")
    (last,) = restated.agg(F.max(F.unix_micros("_ingest_time"))).collect()[0]
    if last is None:
        return rows
    counts = F.col("_progress").isNull() & (F.unix_micros("_ingest_time") <= last)
    return rows.withColumn("_progress", F.when(counts, F.lit(NEVER)).otherwise(F.col("_progress")))


def tagged(operator: Operator, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Several inputs as one stream: a struct column per input, null for rows of other inputs."""
    if len(inputs) == 1:
        return next(iter(inputs.values()))
    types = {
        input_.name: inputs[input_.name].select(F.struct("*").alias("row")).schema["row"].dataType
        for input_ in operator.inputs
    }
    parts = [
        rows.select(*((F.struct("*") if n == name else F.lit(None).cast(types[n])).alias(n) for n in types))
        for name, rows in inputs.items()
    ]
    return reduce(DataFrame.union, parts)


def untagged(operator: Operator, batch: DataFrame) -> dict[str, DataFrame]:
    """Input name -> rows, of a micro-batch of the stream of ``tagged``."""
    names = [input_.name for input_ in operator.inputs]
    if len(names) == 1:
        return {names[0]: batch.drop(CARRIER)}
    return {name: batch.filter(F.col(name).isNotNull()).select(f"{name}.*").drop(CARRIER) for name in names}
