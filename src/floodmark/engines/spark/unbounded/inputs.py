"""Inputs of a stream: where each is read from, and what a micro-batch takes of it. Several come as one stream, each row with its input's name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

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
from floodmark.lake import entries, history, positions
from floodmark.lake.canonical import Passed
from floodmark.lake.carrier import SHIFT
from floodmark.lake.checkpoint import Position
from floodmark.lake.ending import reopened_since
from floodmark.lake.readers import unchanged_until
from floodmark.lake.sequences import FAR_BEHIND, begins_in_order, files_behind, files_of, last_read, noted
from floodmark.lake.timeline import REACHED, Timeline, inputs_at, positions_at
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.spec.operator import Input, Operator
from floodmark.spec.schema import MARKER, STAMPS

_ALL_FILES = 2**31 - 1
_ALL_BYTES = 2**63 - 1
_FILES, _BYTES = 10_000, 2**30
"""Of an input, a micro-batch takes at most so many files; and no more once it has so many bytes."""


def shorten(operator: Operator, timeline: Timeline, last: int, reading: Mapping[str, TableVersion]) -> None:
    """Let a stream go on with the files of its inputs as they are now, where it would have to read commit by commit what has come meanwhile.

    And behind a version it has read all of file by file: Spark would look at that one again at each start. A micro-batch that is planned and
    that no table has rows of is planned again; one that has is left as it is, and so are the positions before it.
    """
    checkpoint = checkpoint_of(timeline)
    deployed = timeline.identity.deployed()
    assert deployed is not None
    numbers = positions.numbers(deployed.graph, len(checkpoint.positions(last)))
    by_name = {given.name: given for given in operator.inputs}
    places = {n: _nearer(timeline, by_name[n], reading[n], at) for n, at in positions_at(timeline, last).items()}
    nearer = {source: place for name, place in places.items() if place is not None for source in numbers[name]}
    planned = max(checkpoint.batches("offsets"), default=-1)
    clocked = operator.stateful is not None and operator.stateful.clocked
    if not nearer or (planned > last and (clocked or timeline.newest_written > last)):
        return
    if planned > last:
        checkpoint.forget(planned)
    for source, (position, passed) in nearer.items():
        checkpoint.place(last, source, position, passed)


def _nearer(
    timeline: Timeline, given: Input, reading: TableVersion, at: Position
) -> tuple[Position, Passed | None] | None:
    """Where a source may go on that stands at a position, and what it has to leave out then; None where it stays."""
    path = timeline.lake.input(given)
    if not at.table or not DeltaRs.is_deltatable(path):
        return None
    stays = None
    if at.snapshot is not None and reading.version == at.snapshot:
        at = Position(at.snapshot, -1, at.table)
        stays = at, None
    reopened = given.upstream is None and reopened_since(path, at.version if at.snapshot is None else at.snapshot)
    known = _last_read(timeline, given, reading, at) if reopened or _is_cut_off(path, given, at) else None
    found = None if known is None else files_behind(path, at.version, given)
    if known is None or found is None:
        if reopened:
            name = timeline.operator
            where, fix = (
                f"input '{given.name}' of '{name}'",
                f"Compute it anew: floodmark run {name} --unbounded --from-scratch",
            )
            got = "not known any more; an end of input was taken back behind it"
            raise ExecutionError(where, "the last row that is read", got, fix, code="EXECUTION-060")
        return stays
    version, files = found
    behind = sum(file.last <= known for file in files)
    return Position(at.version, behind - 1, at.table, version), Passed(known, at.version)


def _is_cut_off(path: str, given: Input, at: Position) -> bool:
    """Whether a file behind a position is gone, or a commit, or so many have come that they are not read one by one."""
    version, newest = at.version if at.snapshot is None else at.snapshot, entries.version_of(path)
    if newest - version >= FAR_BEHIND or not entries.readable(path, version + 1, newest):
        return True
    files = [] if at.snapshot is None else files_of(path, at.snapshot, given) or []
    return not entries.all_there(path, (file.path for file in files[at.file + 1 :]))


def _last_read(timeline: Timeline, given: Input, reading: TableVersion, at: Position) -> int | None:
    """The last ``_sequence`` that is read at a position; None where that is not known any more."""
    path = timeline.lake.input(given)
    if at.snapshot is None:
        last = last_read(path, at.version, at.file, given)
        return noted(timeline.folder(REACHED), reading) if last is None else last
    files, passed = files_of(path, at.snapshot, given), checkpoint_of(timeline).passed().get(at.table)
    if files is None:
        return None
    return max(files[at.file].last if at.file >= 0 else -1, -1 if passed is None else passed.sequence)


def read(spark: SparkSession, operator: Operator, timeline: Timeline, given: Input, files: int | None) -> DataFrame:
    """The rows of an input from the first one on, with Spark's watermark on the carrier.

    A table is read from its newest version on, file by file, where these are in the order of their sequences: as they are when they are merged,
    and whatever has become of the commits before. Otherwise it is read commit by commit.
    One that was taken back, replaced or cleaned is read as it is now too: its first versions hold rows that do not count any more,
    or lack files. What bounded runs have put in place of the stream's rows is read then, too.
    """
    path = timeline.lake.input(given)
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", _BYTES)
    last = timeline.checkpoint.last_committed()
    by_commit = not _file_by_file(timeline, given, last)
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
    if passed is not None:  # markers of an output have no sequence
        rows = rows.filter(F.col("_sequence").isNull() | (F.col("_sequence") > passed.sequence))
    rows = unranged(rows.select(*(f"`{name}`" for name in (*given.schema.names, *STAMPS))))
    rows = markers.with_starts(spark, operator, timeline, given, rows)
    carrier = F.expr(f"timestamp_millis(`_progress` + {SHIFT})").alias(CARRIER)
    return rows.select("*", carrier).withWatermark(CARRIER, "1 millisecond")


def _file_by_file(timeline: Timeline, given: Input, last: int) -> bool:
    """Whether a table is read from a version on, where Spark plans its first rows, or plans them again; for later ones it makes no difference."""
    planned = checkpoint_of(timeline).batches("offsets")[-2:]
    known = [at for batch in planned if (at := positions_at(timeline, batch).get(given.name)) is not None]
    if any(at.snapshot is not None for at in known):
        return True
    if given.upstream is not None and last >= 0:
        return False
    return begins_in_order(timeline.lake.input(given), given) is not None


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
        found[given.name] = unranged(rows.select(*(f"`{name}`" for name in (*given.schema.names, *STAMPS))))
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
