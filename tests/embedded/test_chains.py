"""Chains of filters and computed columns on the embedded engine: what they cost to plan grows with their length, not as a power of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.spec.graph.operator import Operator
from floodmark.testing.embedded import EmbeddedCase
from floodmark.testing.log import Log

LENGTH = 12
"""So many had 3^12 conditions, half a million."""


class Number(fm.Contract):
    """A number."""

    at: fm.EventTime
    n: int | None = None


def chain(*parts: str, **settings: Any) -> Operator:
    """Filters, computed columns, or both in turn."""

    @fm.operator
    def chained(numbers: fm.Stream[Number]) -> fm.Stream:
        rows: Any = numbers
        for i in range(LENGTH):
            if "filter" in parts:
                rows = rows.filter(f"n <> {2 * i} OR n IS NULL", **settings)
            if "column" in parts:
                rows = rows.with_columns(n="n + 1", **settings)
        return rows.filter("n IS NULL OR n % 7 <> 3") if "one behind" in parts else rows

    return chained


def expected(parts: tuple[str, ...]) -> list[int | None]:
    """The numbers that are left."""
    left: list[int | None] = [None, *range(40)]
    for i in range(LENGTH):
        if "filter" in parts:
            left = [n for n in left if n != 2 * i]
        if "column" in parts:
            left = [None if n is None else n + 1 for n in left]
    return [n for n in left if n is None or n % 7 != 3] if "one behind" in parts else left


@pytest.mark.parametrize(
    ("parts", "settings"),
    [
        (("filter",), {}),
        (("filter", "column"), {}),
        (("column", "one behind"), {}),
        (("column",), {"on_error": "quarantine"}),
        (("filter", "column"), {"on_error": "quarantine"}),
    ],
    ids=["filters", "both", "columns before a filter", "columns that quarantine", "both that quarantine"],
)
def test_a_long_chain_is_planned_in_both_modes(
    tmp_path: Path, parts: tuple[str, ...], settings: Mapping[str, Any]
) -> None:
    operator = chain(*parts, **settings)
    for mode in ("run_bounded", "run_unbounded"):
        case, log = EmbeddedCase(operator, str(tmp_path / mode)), Log(operator.inputs[0].schema)
        for second, n in enumerate([None, *range(40)]):
            log.row({"at": from_ms(second * 1000), "n": n}, second * 1000)
        log.end()
        case.land(log)
        getattr(case, mode)()
        rows = [row for row in case.outputs()[""].to_pylist() if row["_kind"] == 0]
        assert [row["n"] for row in sorted(rows, key=lambda row: row["at"])] == expected(parts)
