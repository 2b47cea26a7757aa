"""Checking: the expectations of an operator's outputs judged over an asset partition, and the gates and verdicts that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from floodmark.core.time import Interval, describe
from floodmark.engines.outcome import described
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates, verdicts
from floodmark.lake.results.parts import complete
from floodmark.observe.data_docs import Rows, rows_of
from floodmark.observe.drift import drifts, longest, split_off
from floodmark.observe.expectations import evaluate, plain
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.rows.criterion import Judged
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.windowing.partitions import Partitions, first

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _never(_: Interval) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Divided:
    """Rows of an asset with partitions, for expectations of drift.

    Args:
        rows: (session, interval of event time) -> the rows, with the partition column.
        by: how they are divided.
    """

    rows: Rows
    by: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Rows of one table and their expectations.

    Args:
        rows: (session, interval of event time) -> the rows, without stamps.
        expectations: expectations of the rows.
        stream: name of the source or operator.
        table: path of the output's table, whose gates blocking expectations close; None for a source.
        divided: rows with their partition, and how they are divided; None for a source and an asset that is not divided.
        complete: (interval of event time) -> whether all of its asset partitions are complete.
    """

    rows: Rows
    expectations: tuple[Expectation, ...]
    stream: str
    table: str | None = None
    divided: Divided | None = None
    complete: Callable[[Interval], bool] = _never

    def has_rows(self, interval: Interval, session: SparkSession) -> bool:
        """True if there is a row in an interval of event time."""
        return bool(self.rows(session, interval).limit(1).count())

    def judge(self, interval: Interval, session: SparkSession) -> list[Judged]:
        """Judge the rows of an interval. Reads only.

        Args:
            interval: event time of the rows.
            session: of Spark or Sail.

        Raises:
            CapabilityError: CAPABILITY-037, an expectation that only Spark computes, over rows of Sail.
            DefinitionError: DEFINITION-096, an expectation or argument that Great Expectations does not have.
        """
        of_drift, others = split_off(self.expectations)
        results = evaluate(self.rows(session, interval), others) if others else []
        return results + (self._drifted(of_drift, interval, session) if of_drift else [])

    def _drifted(self, expectations: list[Expectation], interval: Interval, session: SparkSession) -> list[Judged]:
        """Expectations of drift, of one asset partition; of several together nothing is judged."""
        assert self.divided is not None
        by = self.divided.by
        if interval.everything or by.around(interval.start) != interval:
            return [
                (expectation, True, {"judged": False, "why": "several partitions together"})
                for expectation in expectations
            ]
        start = interval.start
        for _ in range(longest(expectations)):
            start = by.around(start - 1).start if start > first(by) else start
        rows = self.divided.rows(session, Interval(start=start, end=interval.end))
        return drifts(rows, expectations, by.key(interval.start))

    def gate(self, judged: Judged, key: str | None, interval: Interval) -> str:
        """Close the gate of asset partitions that do not meet a blocking expectation, release it if they do. Returns what was done; empty for nothing.

        Nothing is done for an expectation that is not blocking, for a source, and for the failure of rows that belong to no asset partition in particular.

        Args:
            judged: result of one expectation.
            key: name of the asset partition; None for several together.
            interval: its event time.
        """
        expectation, passed, numbers = judged
        whole = self.divided is not None and interval.everything
        if not expectation.blocking or self.table is None or (whole and not passed):
            return ""
        if passed:
            if expectation.strict and self.complete(interval):
                verdicts.record(self.table, expectation.name, interval)
            released = gates.passed(self.table, expectation.name, interval)
            return f"released: {', '.join(one.partition for one in released)}" if released else ""
        name, table = partition_name(key, interval), self.table.rsplit("/", 1)[-1]
        closing = gates.gate(table, name, interval, expectation.name, described(numbers))
        gates.close(self.table, closing)
        return f"closed. {gates.release_fix(closing)}"


def outputs_of(asset: OperatorAsset, lake: Lake) -> dict[str, Checked]:
    """Name of an output -> its rows and expectations, of each output of an operator that has expectations.

    Args:
        asset: the operator with its expectations and partitions.
        lake: the lake of its tables.
    """
    operator, by = asset.operator, asset.partitions

    def checked(name: str, expectations: tuple[Expectation, ...]) -> Checked:
        whole = rows_of(asset, name, lake)

        def rows(session: SparkSession, interval: Interval) -> DataFrame:
            return plain(whole(session, interval))

        return Checked(
            rows=rows,
            expectations=expectations,
            stream=operator.name,
            table=lake.output(operator.output(name).table),
            divided=Divided(whole, by) if by else None,
            complete=partial(complete, operator, by, lake) if by else _never,
        )

    return {name: checked(name, expectations) for name, expectations in asset.expectations.items()}


def partition_name(key: str | None, interval: Interval) -> str:
    """Name of checked rows, for people: of their asset partition, ``first...last`` of several together, ``all``."""
    return key or ("all" if interval.everything else f"{describe(interval.start)}...{describe(interval.end)}")
