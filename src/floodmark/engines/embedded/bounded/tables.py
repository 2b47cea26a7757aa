"""The outputs of a bounded run on the embedded engine: Sail writes the files, the lake's writer commits them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from floodmark.core import crash
from floodmark.core.errors import CapabilityError
from floodmark.core.time import Interval, from_ms
from floodmark.engines.embedded.bounded.files import gather
from floodmark.engines.embedded.parity.aggregates import sail_aggregate
from floodmark.engines.embedded.parity.check import sail_sql
from floodmark.engines.frames import zones
from floodmark.engines.frames.floats import unranged
from floodmark.engines.frames.judging import ROWS_ONLY, criteria_of, judged
from floodmark.engines.frames.results import Computed, latest, stamped
from floodmark.engines.outcome import unmet
from floodmark.lake.folder import staging
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import tables
from floodmark.lake.table.commits import BoundedRun
from floodmark.lake.table.files import Written
from floodmark.lake.table.outputs import partition_by, table_schema
from floodmark.lake.writing.writer import Writer
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import RETRACTION, ROW

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


def write(
    spark: SparkSession, operator: Operator, lake: Lake, computed: Computed, run: BoundedRun, replaced: Interval
) -> dict[str, tuple[int, int]]:
    """Replace the rows of an interval in every output, side outputs first: the commit of the first output marks the run's interval as covered.

    Args:
        spark: session.
        operator: of the outputs.
        lake: of the tables.
        computed: rows of the outputs.
        run: record of the commits.
        replaced: event time whose rows are replaced: the run's interval at least.

    Returns:
        Output table -> rows and retractions written.

    Raises:
        ExecutionError: EXECUTION-090, rows do not meet an expectation with ``on_fail="stop"``; nothing is committed.
    """
    counts: dict[str, tuple[int, int]] = {}
    files: dict[str, Written] = {}
    for output, rows in reversed(computed.outputs):
        path = tables.ensure(lake, operator, output, replace=run.interval.everything)
        if output.partitions is not None:
            zones.check(spark, output.partitions)
        ready = computed.ready.get(output.table)
        files[output.table] = (
            _written(stamped(rows, output), path, output) if ready is None else _gathered(ready.rows, path)
        )
    unmet_rows = {output.table: _unmet(spark, operator, output, files[output.table]) for output, _ in computed.outputs}
    for output, _ in reversed(computed.outputs):
        main = output is computed.outputs[0][0]
        name = "main" if main else "side"
        path, written = lake.output(output.table), files[output.table]
        if output.current:  # before the changelog, whose commit marks the interval as covered
            crash.point("bounded.before_current")
            ready = computed.ready.get(output.table)
            _replace_current(spark, lake, operator, output, written, run, None if ready is None else ready.last)
            crash.point("bounded.after_current")
        crash.point(f"bounded.before_{name}")
        record = replace(run, table=output.table, unmet=unmet_rows[output.table])
        record = replace(record, late=computed.late(), dropped=computed.dropped()) if main else record
        kinds = _replace(written, path, output, record, replaced)
        counts[output.table] = kinds[ROW], kinds[RETRACTION]
        crash.point(f"bounded.after_{name}")
    return counts


def _unmet(spark: SparkSession, operator: Operator, output: Output, written: Written) -> dict[str, int]:
    """The expectations that the rows in files do not meet, before the files are committed.

    Raises:
        ExecutionError: EXECUTION-090, one with ``on_fail="stop"`` is not met.
    """
    criteria = criteria_of(operator, output)
    if not criteria or not written.kinds()[ROW]:
        return {}
    rows = unranged(spark.read.parquet(str(written.folder)))
    results = judged(rows, output.schema, criteria, sail_sql, sail_aggregate, ROWS_ONLY)
    return unmet(operator, output, "bounded", results)


def _written(rows: DataFrame, path: str, output: Output) -> Written:
    """Write the files of rows into a new folder of the table."""
    folder = staging.new_folder(path, make=False)
    rows.write.partitionBy(*partition_by(output)).parquet(str(folder))
    return Written(folder=folder, partition_by=partition_by(output))


def _gathered(source: Path, path: str) -> Written:
    """The files of complete rows of a table that is not divided, in a new folder of the table."""
    folder = staging.new_folder(path)
    gather(source, folder)
    return Written(folder=folder)


def _replace(written: Written, path: str, output: Output, record: BoundedRun, replaced: Interval) -> Counter[int]:
    """Replace the rows of an interval by files; returns the rows written per ``_kind``."""
    kinds, writer = written.kinds(), Writer(path)
    first, last = from_ms(replaced.start), from_ms(replaced.end - 1)
    record = replace(record, rows=kinds[ROW], retractions=kinds[RETRACTION])
    if record.interval.everything and not tables.fits(path, output):
        writer.renew(written, table_schema(output.schema, output.partitions), record)
    elif not writer.replace(written, first, last, record):
        writer.replace_rows(written, first, last, record)
    return kinds


# ---- last values


def _replace_current(
    spark: SparkSession,
    lake: Lake,
    operator: Operator,
    output: Output,
    written: Written,
    run: BoundedRun,
    last: Path | None,
) -> None:
    """Replace the interval in the table of last values by the last values of the run's changelog; ``last``: the folder of their files, if there are some."""
    current = output.current
    assert current is not None
    path = tables.ensure(lake, operator, current, replace=run.interval.everything)
    if not run.interval.everything and not tables.fits(path, current):
        where, fix = f"table {path}", f"Run it on Spark: floodmark run {operator.name} --engine spark"
        raise CapabilityError(where, "the columns of its output", "other ones", fix, code="CAPABILITY-034")
    if last is not None:
        last_values = _gathered(last, path)
    elif not current.keys and set(written.kinds()) <= {
        ROW
    }:  # every row is left: the same files, without a plan that looks for copies
        last_values = written.copied(path)
    elif written.files:
        rows = spark.read.parquet(str(written.folder))
        last_values = _written(latest(rows, current).filter(f"`_kind` = {ROW}"), path, current)
    else:
        last_values = Written(folder=staging.new_folder(path, make=False), partition_by=partition_by(current))
    _replace(last_values, path, current, replace(run, table=current.table), run.interval)
