"""Units of few rows are read by the process of a landing on Spark, unless the rows are long; without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from floodmark.connectors.unit import Unit
from floodmark.engines.landing.lander import reader_of
from floodmark.engines.spark.landing import workers
from floodmark.engines.spark.landing.workers import SparkWorkers
from floodmark.spec.rows.connector import Rows
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.rows.source import Ascending, Source

FIRST = Expectation("column_values_to_not_be_null", column="text", on_fail="quarantine", name="there")


class Text(Contract):
    at: EventTime
    text: str


class JudgedText(Contract, expectations=[FIRST]):
    at: EventTime
    text: str


def source(contract: type[Contract], length: int) -> Source:
    rows = [{"at": f"2001-01-01T00:00:{n:02d}", "text": "x" * length} for n in range(10)]
    return Source("texts", contract=contract, connector=Rows(rows), watermark=Ascending())


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> SparkWorkers:
    """Workers without a session, on this machine; 10 rows are few, 10,000 bytes are not."""
    monkeypatch.setattr(workers, "_READ_BYTES", 10_000)
    spark: Any = None
    hand = SparkWorkers(spark)
    hand._in_place = True
    return hand


UNITS, NOW = [Unit(name="rows 1-10", rows=10)], 2_000_000_000_000


def test_rows_that_are_long_are_left_to_workers_and_so_are_as_many_later_ones(hand: SparkWorkers) -> None:
    code = source(JudgedText, 5_000)
    assert hand._are_at_hand(UNITS, code)
    assert hand._read_here(reader_of(code), UNITS, code, NOW) is None
    assert not hand._are_at_hand(UNITS, code)
    assert hand._are_at_hand([Unit(name="rows 1-1", rows=1)], code)


@pytest.mark.parametrize(("length", "again"), [(5_000, False), (1, True)])
def test_rows_that_nothing_judges_are_landed_by_the_process_that_has_read_them(
    hand: SparkWorkers, length: int, again: bool
) -> None:
    code = source(Text, length)
    blobs = hand._read_here(reader_of(code), UNITS, code, NOW)
    assert blobs is not None
    assert [report.rows for report in blobs.reports] == [10]
    assert blobs.size >= 10 * length
    blobs.release()
    assert hand._are_at_hand(UNITS, code) == again
