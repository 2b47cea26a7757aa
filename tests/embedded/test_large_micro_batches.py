"""Micro-batches that are too large for a message reach Sail as files: the rows are those of a message, in every type and with the oddest values."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from every_type import Everything

import floodmark as fm
from floodmark.core.time import from_ms, to_ms
from floodmark.engines.embedded.unbounded import compute
from floodmark.spec.values.schema import MARKER
from floodmark.testing.embedded import EmbeddedCase
from floodmark.testing.log import Log

FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)
ROWS: tuple[dict[str, Any], ...] = (
    {"key": "", "yes": True, "whole": -(2**63), "real": -0.0, "exact": Decimal("-99999999.99"), "day": date(1, 1, 1)},
    {
        "key": "ä\0\n",
        "yes": False,
        "whole": 2**63 - 1,
        "real": math.nan,
        "exact": Decimal(0),
        "day": date(9999, 12, 31),
    },
    {
        "key": "a" * 5000,
        "yes": True,
        "whole": 0,
        "real": -math.inf,
        "exact": Decimal("0.01"),
        "day": date(1582, 10, 10),
    },
    {"key": "b", "yes": False, "whole": 3, "real": 5e-324, "exact": Decimal("7.10"), "day": date(1969, 12, 31)},
)
NESTED: tuple[dict[str, Any], ...] = (
    {"moment": FIRST, "raw": b"", "tags": [], "labels": {}, "address": {"city": "", "zip": None}},
    {
        "moment": LAST,
        "raw": b"\0\xff",
        "tags": ["", "ä"],
        "labels": {"": 1, "b": -1},
        "address": {"city": "b", "zip": 7},
    },
)


@fm.operator
def passed(rows: fm.Stream[Everything]) -> fm.Stream:
    """All columns, and some that are computed of them."""
    kept = rows.filter("whole <> 1")
    return kept.with_columns(city="address.city", tagged="size(tags)", negative="real < 0", past="moment < at")


@fm.operator
def counted(rows: fm.Stream[Everything]) -> fm.Stream:
    """Windows by a key of every plain type; most columns are not read."""
    keyed = rows.key_by("key", "yes", "day", "exact", "real")
    return keyed.window(fm.Tumbling("1 hour")).aggregate(n=fm.count(), most=fm.max("moment"), sum=fm.sum("whole % 7"))


def log_of(operator: fm.Operator) -> Log:
    """Each plain value beside each nested one."""
    log, at = Log(operator.inputs[0].schema), datetime(2026, 3, 1, 9, tzinfo=UTC)
    for plain in ROWS:
        for nested in NESTED:
            log.row({"at": from_ms(to_ms(at)), **plain, **nested, "nothing": None}, to_ms(at))
    log.end()
    return log


@pytest.mark.parametrize("operator", [passed, counted], ids=["passed", "counted"])
def test_rows_in_a_file_are_those_of_a_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, operator: fm.Operator
) -> None:
    rows_by_size = {}
    for size in (1 << 30, 0):
        monkeypatch.setattr(compute, "_MESSAGE_BYTES", size)
        case = EmbeddedCase(operator, str(tmp_path / str(size)))
        case.land(log_of(operator))
        case.run_unbounded()
        names = operator.outputs[0].schema.names
        rows = [row for row in case.outputs()[""].to_pylist() if row["_kind"] < MARKER]
        rows_by_size[size] = sorted(repr({name: row[name] for name in names}) for row in rows)
    assert rows_by_size[0] == rows_by_size[1 << 30]
    assert len(rows_by_size[0]) == len(ROWS) * (len(NESTED) if operator is passed else 1)
