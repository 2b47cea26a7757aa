"""Expectations over odd rows, one row and none, and what Great Expectations says of them on the embedded engine.

``python tests/support/odd_expectations.py`` records the answers anew.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from floodmark import Expectation
from floodmark.spec.rows.criterion import EXAMPLES, Judged

FILE = Path(__file__).with_suffix(".json")
Answer = tuple[bool, dict[str, Any]]
"""(whether the rows meet an expectation, the numbers of the result, without examples)."""

TYPES = {
    "i": "int",
    "b": "bigint",
    "d": "double",
    "f": "float",
    "big": "decimal(38,0)",
    "money": "decimal(10,2)",
    "s": "string",
    "t": "timestamp",
    "day": "date",
    "yes": "boolean",
    "none": "int",
}
DDL = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
NAN, INF, BIG = float("nan"), float("inf"), 10**38 - 1
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
ODD: list[tuple[Any, ...]] = [
    (1, 2**63 - 1, NAN, 0.1, Decimal(BIG), Decimal("0.10"), "", BEGIN, date(2020, 1, 1), True, None),
    (
        1,
        -(2**63),
        INF,
        0.5,
        Decimal(-BIG),
        Decimal("0.20"),
        "é",
        BEGIN.replace(microsecond=1),
        date(1, 1, 1),
        False,
        None,
    ),
    (2, 0, -INF, -0.0, Decimal(0), Decimal("-5.00"), "😀", BEGIN, date(9999, 12, 31), None, None),
    (None, 2**53 + 1, -0.0, 0.0, Decimal(7), Decimal("0.10"), "x1", BEGIN.replace(year=1969), None, True, None),
    (2**31 - 1, None, 0.0, NAN, None, None, "a\nb", None, date(2020, 1, 1), True, None),
    (-(2**31), 2**53, None, None, Decimal(7), Decimal("99999999.99"), None, BEGIN, date(2020, 2, 29), False, None),
    (None, None, None, None, None, None, None, None, None, None, None),
    (5, 5, 5.0, 5.0, Decimal(5), Decimal("5.00"), "5", BEGIN, date(2020, 1, 5), True, None),
    (5, 5, NAN, 5.0, Decimal(5), Decimal("5.00"), "X1", BEGIN, date(2020, 1, 5), True, None),
]
ZEROS = frozenset(
    [
        *(("odd", f"column_values_to_be_in_set {column} [('value_set', [0.5, 0.1, 0, 5])]") for column in "df"),
        *(("odd", f"column_values_to_be_unique {column} []") for column in "df"),
        ("odd", "compound_columns_to_be_unique [('column_list', ['d', 'yes'])]"),
        ("odd", "column_unique_value_count_to_be_between d [('min_value', 4)]"),
        ("odd", "column_unique_value_count_to_be_between f [('min_value', 4)]"),
        ("odd", "column_proportion_of_unique_values_to_be_between d [('min_value', 0.7), ('strict_min', True)]"),
    ]
)
"""(frame, expectation) that Great Expectations answers otherwise on the embedded engine, where it takes -0.0 for another value than 0.0."""
FRAMES = {"odd": ODD, "one": ODD[-2:-1], "none": []}


def _every(kind: str, columns: str, **arguments: Any) -> list[Expectation]:
    return [
        Expectation(kind, column=column, name=f"{kind} {column} {sorted(arguments.items())}", **arguments)
        for column in columns.split()
    ]


def _of(kind: str, **arguments: Any) -> list[Expectation]:
    return [Expectation(kind, name=f"{kind} {sorted(arguments.items())}", **arguments)]


EXPECTED = [
    *_every("column_values_to_not_be_null", "i d s none"),
    *_every("column_values_to_not_be_null", "i none", mostly=0.7),
    *_every("column_values_to_be_null", "i d none", mostly=0.3),
    *_every("column_values_to_be_between", "i b d f big money none", min_value=0, max_value=5),
    *_every(
        "column_values_to_be_between", "i b d f big money", min_value=0, max_value=5, strict_min=True, strict_max=True
    ),
    *_every("column_values_to_be_between", "i b d f money", min_value=0.5),
    *_every("column_values_to_be_between", "i d", max_value=1e300, mostly=0.6),
    *_every("column_values_to_be_between", "b", max_value=2**63 - 1, strict_max=True),
    *_every("column_values_to_be_between", "t", min_value="2020-01-01T00:00:00", strict_min=True),
    *_every("column_values_to_be_between", "t", max_value="2020-01-01T00:00:00.000001"),
    *_every("column_values_to_be_between", "day", min_value="2020-01-01", max_value="2020-02-28"),
    *_every("column_values_to_be_in_set", "i b d f big none", value_set=[5, 1]),
    *_every("column_values_to_be_in_set", "d f", value_set=[0.5, 0.1, 0, 5]),
    *_every("column_values_to_be_in_set", "s", value_set=["", "é", "😀", "5'"]),
    *_every("column_values_to_be_in_set", "yes", value_set=[True]),
    *_every("column_values_to_be_in_set", "i s", value_set=[]),
    *_every("column_values_to_not_be_in_set", "i b d", value_set=[5, 1]),
    *_every("column_values_to_not_be_in_set", "s", value_set=["", "x1"], mostly=0.8),
    *_every("column_values_to_match_regex", "s", regex="^[a-zé]"),
    *_every("column_values_to_match_regex", "s", regex="^.+$", mostly=0.5),
    *_every("column_values_to_match_regex", "s", regex="\\d"),
    *_every("column_values_to_not_match_regex", "s", regex="[0-9]+"),
    *_every("column_values_to_match_regex_list", "s", regex_list=["^x", "^X"]),
    *_every("column_values_to_match_regex_list", "s", regex_list=["^x", "1$"], match_on="all"),
    *_every("column_values_to_not_match_regex_list", "s", regex_list=["^x", "^X"]),
    *_every("column_value_lengths_to_equal", "s", value=1),
    *_every("column_value_lengths_to_be_between", "s", min_value=1, max_value=2),
    *_every("column_value_lengths_to_be_between", "s", max_value=2, strict_max=True, mostly=0.5),
    *_of("column_pair_values_to_be_equal", column_A="i", column_B="b"),
    *_of("column_pair_values_to_be_equal", column_A="d", column_B="f", mostly=0.3),
    *_of("column_pair_values_to_be_equal", column_A="i", column_B="b", ignore_row_if="either_value_is_missing"),
    *_of("column_pair_values_to_be_equal", column_A="i", column_B="b", ignore_row_if="neither"),
    *_of("column_pair_values_a_to_be_greater_than_b", column_A="d", column_B="i"),
    *_of("column_pair_values_a_to_be_greater_than_b", column_A="big", column_B="b", or_equal=True),
    *_of("column_pair_values_a_to_be_greater_than_b", column_A="none", column_B="i"),
    *_of("multicolumn_sum_to_equal", column_list=["i", "b"], sum_total=10),
    *_of("multicolumn_sum_to_equal", column_list=["d", "i"], sum_total=10),
    *_of("multicolumn_sum_to_equal", column_list=["b", "i"], sum_total=7, ignore_row_if="any_value_is_missing"),
    *_of("multicolumn_values_to_be_equal", column_list=["i", "b", "d"]),
    *_of("multicolumn_values_to_be_equal", column_list=["i", "b"], ignore_row_if="never"),
    *_of("select_column_values_to_be_unique_within_record", column_list=["i", "b", "big"]),
    *_of("select_column_values_to_be_unique_within_record", column_list=["d", "f"], mostly=0.4),
    *_every("column_values_to_be_unique", "i b d f big s t day yes none"),
    *_every("column_values_to_be_unique", "i", mostly=0.5),
    *_of("compound_columns_to_be_unique", column_list=["i", "b"]),
    *_of("compound_columns_to_be_unique", column_list=["d", "yes"]),
    *_of("compound_columns_to_be_unique", column_list=["s", "t", "none"]),
    *_of("table_row_count_to_be_between", min_value=1, max_value=9),
    *_of("table_row_count_to_be_between", max_value=9, strict_max=True),
    *_of("table_row_count_to_equal", value=9),
    *_every("column_min_to_be_between", "i b d f big money none", min_value=-5),
    *_every("column_min_to_be_between", "t", min_value="1969-01-01T00:00:00"),
    *_every("column_max_to_be_between", "i b d f big money none", max_value=2**40),
    *_every("column_max_to_be_between", "t", max_value="2020-01-01T00:00:00", strict_max=True),
    *_every("column_sum_to_be_between", "i b d f money none", max_value=100),
    *_every("column_mean_to_be_between", "i b d f money none", min_value=1, max_value=10),
    *_every("column_stdev_to_be_between", "i b d f money none", max_value=2),
    *_every("column_unique_value_count_to_be_between", "i b d f big s t day yes none", min_value=4),
    *_every("column_proportion_of_non_null_values_to_be_between", "i d none", min_value=0.7),
    *_every("column_proportion_of_unique_values_to_be_between", "i d none", min_value=0.7, strict_min=True),
]


def answer(judged: Judged) -> Answer:
    """The answer in a result: without examples, which are any of the unexpected rows; floats to 12 digits, without the sign of zero; a count that is missing is 0."""
    _, met, numbers = judged
    digits = {name: _digits(value) for name, value in numbers.items() if name != EXAMPLES}
    if digits.get("element_count") == 0:  # a sum of nothing is null there
        digits.setdefault("unexpected_count", 0)
    return met, digits


def _digits(value: Any) -> Any:
    return f"{value + 0.0:.12g}" if isinstance(value, float) else value


def recorded() -> dict[str, dict[str, Answer]]:
    """Frame -> expectation -> the answer of Great Expectations on the embedded engine."""
    frames = json.loads(FILE.read_text("utf-8"))
    return {
        frame: {name: (met, numbers) for name, (met, numbers) in answers.items()} for frame, answers in frames.items()
    }


def by_great_expectations(frame: str, session: Any, some: list[Expectation]) -> dict[str, Answer]:
    """Expectation -> the answer of Great Expectations."""
    from floodmark.engines.frames.expressions import on_sail
    from floodmark.engines.frames.floats import unranged
    from floodmark.observe.expectations import _by_great_expectations

    rows = unranged(session.createDataFrame(FRAMES[frame], DDL))
    return {one[0].name: answer(one) for one in _by_great_expectations(rows, some, on_sail=on_sail(rows))}


def main() -> None:
    """Record the answers."""
    from floodmark.engines.embedded.sail.session import on_sail, shared

    sail = shared(300)
    answers = {
        frame: on_sail(sail, lambda connection, frame=frame: by_great_expectations(frame, connection.spark, EXPECTED))
        for frame in FRAMES
    }
    FILE.write_text(json.dumps(answers, indent=0, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
