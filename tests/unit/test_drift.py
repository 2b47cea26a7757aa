"""Drift of a number of an asset partition against the partitions before it: its limits, and what cannot be judged."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from events import Event
from hypothesis import given
from hypothesis import strategies as st

from floodmark import (
    Ascending,
    Daily,
    Expectation,
    Rows,
    Source,
    Stream,
    Tumbling,
    count,
    operator,
    operator_asset,
    source_asset,
)
from floodmark.core.errors import DefinitionError
from floodmark.spec.rows.drift import Drift

NUMBERS = st.floats(-1e6, 1e6)


@operator
def per_day(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("1 day")).aggregate(n=count())


def drift(**values: Any) -> Drift:
    return Drift.of_expectation(Expectation("column_drift", column="n", **values), "here")


@given(st.lists(NUMBERS, min_size=3, max_size=9), NUMBERS, st.floats(0, 9), st.floats(0, 1))
def test_a_number_may_be_away_by_deviations_or_by_a_share(
    before: list[float], number: float, deviations: float, tolerance: float
) -> None:
    met, numbers = drift(deviations=deviations, tolerance=tolerance).verdict(number, before)
    mean = sum(before) / len(before)
    away = abs(number - mean)
    spread = (sum((one - mean) ** 2 for one in before) / len(before)) ** 0.5
    near = max(deviations * spread, tolerance * abs(mean))
    assert met == (away <= near) or away == pytest.approx(near, rel=1e-6, abs=1e-6)
    assert numbers["mean before"] == pytest.approx(statistics.fmean(before))


@pytest.mark.parametrize(("number", "before"), [(5.0, [1.0, 1.0]), (None, [1.0] * 5), (float("nan"), [1.0] * 5)])
def test_nothing_is_judged_by_two_partitions_or_without_a_number(number: float | None, before: list[float]) -> None:
    assert drift().verdict(number, before) == (True, {"partitions before": len(before), "judged": False})


@pytest.mark.parametrize(
    ("kind", "values", "code"),
    [
        ("column_drift", {}, "DEFINITION-300"),
        ("column_drift", {"column": "key"}, "DEFINITION-300"),
        ("column_drift", {"column": "n", "of": "median"}, "DEFINITION-300"),
        ("column_drift", {"column": "n", "last": 2}, "DEFINITION-300"),
        ("column_drift", {"column": "n", "deviations": -1}, "DEFINITION-300"),
        ("column_drift", {"column": "n", "mostly": 1}, "DEFINITION-300"),
        ("column_drift", {"column": "m"}, "DEFINITION-094"),
        ("table_row_count_drift", {"column": "n"}, "DEFINITION-300"),
        ("column_drift", {"column": "n", "on_fail": "stop"}, "DEFINITION-291"),
    ],
)
def test_what_cannot_be_judged_is_refused_when_it_is_defined(kind: str, values: dict[str, Any], code: str) -> None:
    with pytest.raises(DefinitionError, match=code):
        operator_asset(per_day, partitions=Daily("2025-01-01"), expectations=[Expectation(kind, **values)])


def test_an_asset_without_partitions_and_a_landing_have_none() -> None:
    with pytest.raises(
        DefinitionError, match="DEFINITION-300 asset of operator 'per_day': expected an asset with partitions"
    ):
        operator_asset(per_day, expectations=[Expectation("column_drift", column="n")])

    class Drifting(Event, expectations=(Expectation("column_drift", column="value"),)):
        """Of a contract."""

    with pytest.raises(DefinitionError, match="DEFINITION-300"):
        source_asset(Source("drifting", contract=Drifting, connector=Rows([]), watermark=Ascending()))
    assert operator_asset(
        per_day, partitions=Daily("2025-01-01"), expectations=[Expectation("column_drift", column="key", of="nulls")]
    )
