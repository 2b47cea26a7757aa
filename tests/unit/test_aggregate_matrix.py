"""Every aggregate over odd values, in every form and cut, against an oracle of fractions. Run as a script it prints the matrix.

The same values on Spark: ``tests/spark/test_aggregates.py``.
"""

from __future__ import annotations

import math
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.support.aggregate_forms import FUNCTIONS, NOTHING, accepts, forms
from tests.support.oracle_aggregates import answer, same, tolerance

NAN, INF, MOST, LEAST = math.nan, math.inf, 2**63 - 1, -(2**63)
NINE = Decimal(9).scaleb(37)
FULL = Decimal("9" * 36 + ".99")

CASES: dict[str, tuple[str, list[Any]]] = {
    "NaN": ("double", [1.0, NAN, 5.0, 2.0]),
    "only NaN": ("double", [NAN, None, NAN]),
    "inf": ("double", [1.0, INF, 2.0]),
    "+inf and -inf": ("double", [INF, 1.0, -INF]),
    "NaN and inf": ("double", [NAN, INF]),
    "-0.0": ("double", [-0.0, 0.0, -0.0]),
    "only -0.0": ("double", [-0.0]),
    "null": ("bigint", [None, 3, None, 5]),
    "only null": ("bigint", [None, None]),
    "2^63-1": ("bigint", [MOST]),
    "-2^63": ("bigint", [LEAST]),
    "-2^63 and 0": ("bigint", [LEAST, 0]),
    "2^63-1 and 1": ("bigint", [MOST, 1]),
    "-2^63 and -1": ("bigint", [LEAST, -1]),
    "both ends": ("bigint", [MOST, LEAST]),
    "out and back": ("bigint", [2**62, 2**62, -(2**62)]),
    "out, far, back": ("bigint", [MOST] * 5 + [LEAST] * 5 + [12]),
    "bytes": ("tinyint", [127] * 300 + [-128]),
    "ints": ("int", [2**31 - 1] * 5),
    "decimal(38,0)": ("decimal(38,0)", [NINE, Decimal(1), None]),
    "decimal over": ("decimal(38,0)", [NINE, NINE]),
    "decimal 4 over": ("decimal(38,0)", [NINE] * 4),
    "decimal out, back": ("decimal(38,0)", [NINE, NINE, -NINE]),
    "decimal(38,2) over": ("decimal(38,2)", [FULL] * 3),
    "decimal(38,2) edge": ("decimal(38,2)", [FULL, Decimal("0.00")]),
    "decimal(9,2)": ("decimal(9,2)", [Decimal("0.10"), Decimal("0.20"), Decimal("-9999999.99")]),
    "close": ("double", [1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.3]),
    "equal": ("double", [0.1] * 7),
    "cancelling": ("double", [1.0, 1e16, -1e16, 1.0]),
    "floats": ("float", [0.5, -1.25, NAN]),
    "empty": ("double", []),
    "one row": ("double", [7.5]),
    "one bigint": ("bigint", [7]),
    "strings": ("string", ["b", "", "é", None, "a long text of more than eight bytes", "b"]),
    "bytes of any": ("binary", [b"\x00", b"", b"\x00\x00", b"\x00"]),
    "booleans": ("boolean", [True, False, None, True]),
    "dates": ("date", [date(1969, 12, 31), date(2024, 2, 29), date(1969, 12, 31)]),
    "instants": ("timestamp", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]),
}


_ACCEPTED = [(function, case) for function in FUNCTIONS for case, (kind, _) in CASES.items() if accepts(function, kind)]


@pytest.mark.parametrize(("function", "case"), _ACCEPTED)
def test_every_form_and_cut_of_an_aggregate_gives_the_oracles_answer(function: str, case: str) -> None:
    kind, values = CASES[case]
    wanted, scale = answer(function, kind, values), tolerance(function, values)
    for form, got in forms(function, kind, values):
        if not values and got == NOTHING:
            continue  # columns know groups by their rows
        assert same(got, wanted, scale), f"{function} of {case}, {form}: {got!r}, not {wanted!r}"


def _short(value: Any) -> str:
    text = str(value).replace("EXECUTION-001", "EXEC-001")
    if isinstance(value, float):
        text = f"{value:.17g}"
    return text if len(text) <= 24 else text[:21] + "..."


def main() -> None:
    """Write a Markdown table: the answer of all forms, or those that differ."""
    sys.stdout.write("| case | values | " + " | ".join(FUNCTIONS) + " |" + "\n")
    sys.stdout.write("|---" * (len(FUNCTIONS) + 2) + "|" + "\n")
    for case, (kind, values) in CASES.items():
        cells = []
        for function in FUNCTIONS:
            if not accepts(function, kind):
                cells.append("refused")
                continue
            wanted, scale = answer(function, kind, values), tolerance(function, values)
            answers = [(form, got) for form, got in forms(function, kind, values) if values or got != NOTHING]
            wrong = {form: got for form, got in answers if not same(got, wanted, scale)}
            cells.append(f"WRONG {wrong}" if wrong else f"{_short(wanted)} ({len(answers)})")
        sys.stdout.write(f"| {case} | {kind} x {len(values)} | " + " | ".join(cells) + " |" + "\n")


if __name__ == "__main__":
    main()
