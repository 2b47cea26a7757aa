"""Inputs of a stream: where each is read from, and what a micro-batch takes of it. Several come as one stream, each row with its input's name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from deltalake import DeltaTable as DeltaRs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from floodmark.core.time import NEVER
from floodmark.engines.frames.compile import CARRIER
from floodmark.engines.frames.inputs import require_columns
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.engines.spark.unbounded import starts as markers
from floodmark.lake import entries, history
from floodmark.lake.canonical import Passed
from floodmark.lake.carrier import SHIFT
from floodmark.lake.checkpoint import Position
from floodmark.lake.readers import unchanged_until
from floodmark.lake.sequences import FAR_BEHIND, in_order, last_read, noted
from floodmark.lake.switch import newest_written
from floodmark.lake.timeline import REACHED, Timeline, inputs_at, positions_at
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.spec.operator import Input, Operator
from floodmark.spec.schema import MARKER, STAMPS

_ALL_FILES = 2**31 - 1
_ALL_BYTES = 2**63 - 1
_FILES, _BYTES = 10_000, 2**30
"""Of an input, a micro-batch takes at most so many files; and no more once it has so many bytes."""


def shorten(timeline: Timeline, last: int, reading: Mapping[str, TableVersion], *, clocked: bool) -> None:
    """Let a stream go on with the files of its logs as they are now, where it would have to read commit by commit what has come meanwhile.

    And behind a version it has read all of file by file: Spark would look at that one again at each start. A micro-batch that is planned and
    that no table has rows of is planned again; one that has is left as it is, and so are the positions before it.
    """
    checkpoint = checkpoint_of(timeline)
    positions = positions_at(timeline, last)
    sources = len(checkpoint.positions(last)) // max(len(positions), 1)
    places = {
        place * sources: _nearer(timeline, reading[name], at) for place, (name, at) in enumerate(positions.items())
    }
    nearer = {source: place for source, place in places.items() if place is not None}
    planned = max(checkpoint.batches("offsets"), default=-1)
    if not nearer or (planned > last and (clocked or newest_written(timeline) > last)):
        return
    if planned > last:
        checkpoint.forget(planned)
    for source, (position, passed) in nearer.items():
        checkpoint.place(last, source, position, passed)


def _nearer(timeline: Timeline, reading: TableVersion, at: Position) -> tuple[Position, Passed | None] | None:
    """Where a source may go on that stands at a position, and what it has to leave out then; None where it stays."""
    path = timeline.lake.log(reading.table)
    if at.snapshot is not None:
        whole = reading.version == at.snapshot
        return (Position(at.snapshot, -1, at.table), None) if whole else None
    if not at.table or not DeltaRs.is_deltatable(path):
        return None
    newest = DeltaRs(path)
    if newest.version() - at.version < FAR_BEHIND and _entry_there(path, at.version + 1, newest.version()):
        return None
    files, read = in_order(newest), last_read(path, at.version, at.file)
    read = noted(timeline.folder(REACHED), reading) if read is None else read
    if files is None or read is None:
        return None
    behind = sum(file.last <= read for file in files)
    return Position(at.version, behind - 1, at.table, newest.version()), Passed(read, at.version)


def _entry_there(path: str, version: int, newest: int) -> bool:
    """Whether a reader finds the commit it goes on with, or none has come yet."""
    return version > newest or entries.entry(path, version) is not None


def read(spark: SparkSession, operator: Operator, timeline: Timeline, given: Input, files: int | None) -> DataFrame:
    """The rows of an input from the first one on, with Spark's watermark on the carrier.

    A log is read from its newest version on, file by file, where these are in the order of their sequences: as they are when they are merged,
    and whatever has become of the commits before. Otherwise it is read commit by commit.
    A table that was taken back, replaced or cleaned is read as it is now too: its first versions hold rows that do not count any more,
    or lack files. What bounded runs have put in place of the stream's rows is read then, too.
    """
    path = timeline.lake.input(given)
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", _BYTES)
    last = timeline.checkpoint.last_committed()
    by_commit = given.upstream is not None or not _file_by_file(timeline, given)
    as_it_is = by_commit and last < 0 and history.rewritten(path)
    if as_it_is:
        files = _ALL_FILES  # its files have no order: one micro-batch takes them all
        reader = reader.option("maxBytesPerTrigger", _ALL_BYTES)
    elif by_commit:
        # Spark plans the last micro-batch again at a start, the first one from here: not across what a rollback has moved it over
        first = inputs_at(timeline, 0)[given.name].version if last == 0 else 0
        reader = reader.option("startingVersion", max(first, 0))
    reader = reader.option("maxFilesPerTrigger", files or _FILES)
    if given.upstream is not None:  # bounded runs replace rows there; they are not the stream's
        reader = reader.option("skipChangeCommits", "true")
    rows = require_columns(reader.load(path), operator, given)
    rows = (_with_restated(spark, path, rows) if as_it_is else rows).filter("_progress IS NOT NULL")
    position = positions_at(timeline, last).get(given.name)
    passed = checkpoint_of(timeline).passed().get(position.table) if position else None
    rows = rows if passed is None else rows.filter(F.col("_sequence") > passed.sequence)
    rows = rows.select(*(f"`{name}`" for name in (*given.schema.names, *STAMPS)))
    rows = markers.with_starts(spark, operator, timeline, given, rows)
    carrier = F.expr(f"timestamp_millis(`_progress` + {SHIFT})").alias(CARRIER)
    return rows.select("*", carrier).withWatermark(CARRIER, "1 millisecond")


def _file_by_file(timeline: Timeline, given: Input) -> bool:
    """Whether a log is read from a version on, where Spark plans its first rows, or plans them again; for later ones it makes no difference."""
    planned = checkpoint_of(timeline).batches("offsets")[-2:]
    positions = [at for batch in planned if (at := positions_at(timeline, batch).get(given.name)) is not None]
    if any(at.snapshot is not None for at in positions):
        return True
    return in_order(DeltaRs(timeline.lake.input(given))) is not None


def arrived(spark: SparkSession, number: int, *, operator: Operator, timeline: Timeline) -> dict[str, DataFrame]:
    """The rows of each input that no micro-batch before this one has read, of the last commit before it perhaps some that one has."""
    before = inputs_at(timeline, number - 1) if number else {}
    found = {}
    for given in operator.inputs:
        path = timeline.lake.input(given)
        rows = spark.read.format("delta").load(path).filter(f"_progress IS NOT NULL AND _kind <> {MARKER}")
        if given.name in before and before[given.name].version >= 0:
            known = (
                spark.read.format("delta").option("versionAsOf", unchanged_until(path, before[given.name])).load(path)
            )
            last = known.filter("_progress IS NOT NULL").agg(F.max("_sequence")).collect()[0][0]
            rows = rows if last is None else rows.filter(F.col("_sequence") > last)
        found[given.name] = rows.select(*(f"`{name}`" for name in (*given.schema.names, *STAMPS)))
    return found


def _with_restated(spark: SparkSession, path: str, rows: DataFrame) -> DataFrame:
    """Rows of bounded runs that are there now as if the stream had written them; those of later ones stay without progress."""
    restated = spark.read.format("delta").load(path).where("_progress IS NULL")
    (last,) = restated.agg(F.max(F.unix_micros("_ingest_time"))).collect()[0]
    if last is None:
        return rows
    counts = F.col("_progress").isNull() & (F.unix_micros("_ingest_time") <= last)
    return rows.withColumn("_progress", F.when(counts, F.lit(NEVER)).otherwise(F.col("_progress")))


def tagged(operator: Operator, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Several inputs as one stream: a struct column per input, filled for its own rows."""
    if len(inputs) == 1:
        return next(iter(inputs.values()))
    types = {
        given.name: inputs[given.name].select(F.struct("*").alias("row")).schema["row"].dataType
        for given in operator.inputs
    }
    parts = [
        rows.select(*((F.struct("*") if n == name else F.lit(None).cast(types[n])).alias(n) for n in types))
        for name, rows in inputs.items()
    ]
    return reduce(DataFrame.union, parts)


def untagged(operator: Operator, batch: DataFrame) -> dict[str, DataFrame]:
    """The rows of each input in a micro-batch of the one stream."""
    names = [given.name for given in operator.inputs]
    if len(names) == 1:
        return {names[0]: batch.drop(CARRIER)}
    return {name: batch.filter(F.col(name).isNotNull()).select(f"{name}.*").drop(CARRIER) for name in names}
