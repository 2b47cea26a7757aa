"""Expectations of the gallery are judged on each engine as counted by hand; the two that Sail cannot judge are refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import great_expectations as gx
import pytest

from floodmark import Expectation
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import CapabilityError
from floodmark.observe.expectations import evaluate
from floodmark.spec.rows.criterion import Judged
from floodmark.spec.rows.expectation import GALLERY

SCHEMA = "id bigint, key string, value double, n int, at timestamp, text string"
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
ROWS = [
    (i, "abc"[i % 3], None if i % 7 == 0 else i * 0.5, i % 5, BEGIN + timedelta(hours=i), f"x{i:03}") for i in range(60)
] + [(60, "a", float("nan"), 3, BEGIN, "y")]
"""61 rows; 9 have no value, one has NaN, which is greater than every number."""

COUNTED: list[tuple[Expectation, int]] = [
    (Expectation("column_values_to_not_be_null", column="value"), 9),
    (Expectation("column_values_to_not_be_null", column="id"), 0),
    (Expectation("column_values_to_be_null", column="value"), 52),
    (Expectation("column_values_to_be_between", column="value", min_value=0, max_value=20), 17),
    (Expectation("column_values_to_be_between", column="n", min_value=0, max_value=5, strict_max=True), 0),
    (Expectation("column_values_to_be_between", column="at", max_value="2020-01-02T00:00:00"), 35),
    (Expectation("column_values_to_be_in_set", column="key", value_set=["a", "b"]), 20),
    (Expectation("column_values_to_be_unique", column="id"), 0),
    (Expectation("column_values_to_be_unique", column="key"), 61),
    (Expectation("compound_columns_to_be_unique", column_list=["id", "key"]), 0),
    (Expectation("compound_columns_to_be_unique", column_list=["n", "key"]), 61),
    (Expectation("select_column_values_to_be_unique_within_record", column_list=["id", "n"]), 5),
    (Expectation("column_pair_values_to_be_equal", column_A="id", column_B="n"), 56),
    (Expectation("multicolumn_sum_to_equal", column_list=["id", "n"], sum_total=10), 60),
    (Expectation("column_values_to_match_regex", column="text", regex="^x[0-9]+$"), 1),
    (Expectation("column_value_lengths_to_equal", column="text", value=4), 1),
    (Expectation("column_values_to_be_decreasing", column="id"), 60),
]
"""With the rows that do not meet them."""
OBSERVED: list[tuple[Expectation, bool, Any]] = [
    (Expectation("column_mean_to_be_between", column="n", min_value=2, max_value=3), True, 123 / 61),
    (Expectation("column_stdev_to_be_between", column="n", max_value=1), False, 1.419997691),
    (Expectation("column_min_to_be_between", column="n", min_value=1), False, 0),
    (Expectation("column_max_to_be_between", column="n", max_value=4), True, 4),
    (Expectation("column_sum_to_be_between", column="n", max_value=122), False, 123),
    (Expectation("column_unique_value_count_to_be_between", column="key", min_value=3, max_value=3), True, 3),
    (Expectation("column_most_common_value_to_be_in_set", column="key", value_set=["b"]), False, "['a']"),
    (Expectation("column_values_to_be_of_type", column="n", type_="IntegerType"), True, "IntegerType"),
    (Expectation("table_row_count_to_equal", value=61), True, 61),
    (Expectation("table_column_count_to_equal", value=5), False, 6),
]


def judged(engine: Computing, expectations: list[Expectation]) -> list[Judged]:
    return engine.with_session(lambda session: evaluate(session.createDataFrame(ROWS, SCHEMA), expectations))


@pytest.mark.feature("Z1")
def test_rows_are_judged_as_counted_by_hand(engine: Computing) -> None:
    found = judged(engine, [one for one, _ in COUNTED] + [one for one, _, _ in OBSERVED])
    for (wanted, unexpected), (one, passed, numbers) in zip(COUNTED, found, strict=False):
        assert (one, passed, numbers["unexpected_count"]) == (wanted, unexpected == 0, unexpected), numbers
        assert numbers["element_count"] == 61
        assert ("unexpected, for example" in numbers) == (unexpected > 0)
    for (wanted, meets, value), (one, passed, numbers) in zip(OBSERVED, found[len(COUNTED) :], strict=True):
        seen = numbers["observed_value"]
        assert (one, passed) == (wanted, meets), numbers
        assert seen == (value if isinstance(value, str) else pytest.approx(value))


QUANTILES = [
    Expectation("column_median_to_be_between", column="n", min_value=2, max_value=2),
    Expectation(
        "column_quantile_values_to_be_between",
        column="n",
        quantile_ranges={"quantiles": [0.1, 0.5, 0.9], "value_ranges": [[0, 0], [2, 2], [4, 4]]},
    ),
]


@pytest.mark.parametrize("one", QUANTILES, ids=lambda one: one.kind)
@pytest.mark.engines("embedded")
def test_a_quantile_is_refused_by_the_embedded_engine(engine: Computing, one: Expectation) -> None:
    with pytest.raises(CapabilityError, match=one.kind) as refused:
        judged(engine, [one])
    assert refused.value.code == "CAPABILITY-037"
    assert "FLOODMARK_ENGINE=spark" in refused.value.fix


@pytest.mark.engines("spark")
def test_a_quantile_is_judged_by_spark(engine: Computing) -> None:
    assert [passed for _, passed, _ in judged(engine, QUANTILES)] == [True, True]


def test_the_kinds_that_validate_knows_are_those_of_great_expectations() -> None:
    known = [name.removeprefix("Expect") for name in dir(gx.expectations) if name.startswith("Expect")]
    assert {kind.replace("_", "") for kind in GALLERY} == {name.lower() for name in known if name != "Expectation"} - {
        "ation"
    }
