"""Check that Python and an engine agree on a time zone, as the days of a table divided by day must begin at one instant in both."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from floodmark.core.errors import ExecutionError
from floodmark.core.time import iso
from floodmark.engines.frames.client import is_sail
from floodmark.spec.windowing.partitions import Daily, Partitions

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession as Connected

_AHEAD_DAYS = 366
_checked: set[tuple[bool, Daily]] = set()
"""Engines and partitions that this process has compared."""


def check(spark: SparkSession | Connected, partitions: Partitions) -> None:
    """Compare the days of a time zone from the first partition to the last, at most a year from now. Hours need no zone.

    Raises:
        ExecutionError: EXECUTION-047, the engine does not know the zone, or begins a day at another instant.
    """
    sail = is_sail(spark)
    whose = "Sail" if sail else "Java"
    if not isinstance(partitions, Daily) or partitions.timezone == "UTC" or (sail, partitions) in _checked:
        return
    first, last = _days(partitions)
    midnight = f"unix_millis(to_utc_timestamp(timestamp(d), '{partitions.timezone}'))"
    text = f"SELECT transform(sequence(date'{first}', date'{last}'), d -> {midnight}) AS days"
    try:
        theirs: list[int] = spark.sql(text).collect()[0]["days"]
    except PySparkException as error:
        raise _differ(partitions, f"a zone that {whose} does not know") from error
    day = first
    for instant in theirs:
        ours = partitions.midnight(day)
        if instant != ours:
            raise _differ(partitions, f"{day} from {iso(ours)} in Python, from {iso(instant)} in {whose}")
        day += timedelta(days=1)
    _checked.add((sail, partitions))


def _days(partitions: Daily) -> tuple[date, date]:
    """The first and the last day to compare."""
    first = date.fromisoformat(partitions.start)
    ahead = max(first, datetime.now(UTC).date() + timedelta(days=_AHEAD_DAYS))
    return first, ahead if partitions.end is None else min(ahead, date.fromisoformat(partitions.end))


def _differ(partitions: Daily, got: str) -> ExecutionError:
    fix = "Update Java and the operating system's tzdata to releases of one year, or divide by a zone that both know."
    where, expected = f"time zone '{partitions.timezone}'", "one beginning of each day in Python and in the engine"
    return ExecutionError(where, expected, got, fix, code="EXECUTION-047")
