"""Asset partitions of rows in Arrow: the names that Python gives to instants one by one."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from floodmark import Daily, Hourly
from floodmark.core.errors import LifecycleError
from floodmark.core.time import END, EPOCH, NEVER, from_ms, to_ms
from floodmark.lake.table.division import divided
from floodmark.lake.table.rows import INSTANT
from floodmark.spec.graph.operator import Output
from floodmark.spec.values.schema import PARTITION, Schema
from floodmark.spec.windowing.partitions import Partitions, beginning, end, instant_of

KINDS = [
    Daily("2013-01-01"),
    Daily("2013-01-01", timezone="America/Havana"),  # its clocks change at midnight
    Hourly("2013-01-01", timezone="Asia/Kolkata"),
]


def moments() -> list[datetime | None]:
    """In no order, some many times, one a microsecond before 1970, and the ends of time."""
    rng = random.Random(4)
    near = [datetime(2013, 3, 10, 5, tzinfo=UTC) + timedelta(minutes=rng.randint(-3000, 3000)) for _ in range(80)]
    found = [*near, *near[:20], EPOCH - timedelta(microseconds=1), from_ms(NEVER), from_ms(END), None]
    rng.shuffle(found)
    return found


def named(kind: Partitions, given: list[datetime | None]) -> list[str | None]:
    rows = pa.table({"_event_time": pa.array(given, INSTANT)})
    output = Output(name="", table="t", schema=Schema(()), revisable=False, keys=(), partitions=kind)
    return divided(rows, output)[PARTITION].to_pylist()


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{type(k).__name__} {k.timezone}")
def test_rows_are_named_as_their_instants(kind: Partitions) -> None:
    given = moments()
    expected = [None if moment is None else kind.key(to_ms(moment)) for moment in given]
    assert named(kind, given) == expected
    assert named(kind, []) == []


def test_a_local_day_before_the_first_one_is_the_first_one() -> None:
    assert named(KINDS[1], [from_ms(NEVER)]) == ["0001-01-01"]
    assert named(Daily("2013-01-01", timezone="Asia/Kolkata"), [from_ms(END)]) == ["9999-12-31"]


def test_an_instant_is_the_start_of_a_partition_or_the_end_of_all() -> None:
    days = Daily("2013-01-01", end="2013-01-03", timezone="Europe/Berlin")
    third = to_ms(datetime(2013, 1, 2, 23, tzinfo=UTC))
    assert instant_of(days, "2013-01-03", "--before") == end(days) == third
    assert instant_of(days, "2013-01-02", "--before") == third - 86_400_000
    for text, got in (("2013-01-04", "outside of them"), ("2013-01-02T05:00", "of which the partition is 2013-01-02")):
        with pytest.raises(LifecycleError, match=f"LIFECYCLE-190 --before: .*'{text}', {got}"):
            instant_of(days, text, "--before")
    assert beginning(days, None, "--from") is None
    assert beginning(days, "2013-01-01", "--from") is None, "all of it"
    assert beginning(days, "2013-01-02", "--from") == third - 86_400_000
