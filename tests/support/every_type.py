"""A column of every type a contract can have, and a program that takes it through a state and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import Field

import floodmark as fm
from floodmark.testing import Run

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)


class Address(fm.Contract):
    """Where somebody lives."""

    city: str
    zip: int | None = None


class Everything(fm.Contract):
    """A column of every type a contract can have."""

    at: fm.EventTime
    key: str
    yes: bool
    whole: int
    real: float
    exact: Decimal = Field(max_digits=10, decimal_places=2)
    day: date
    moment: datetime
    raw: bytes
    tags: list[str]
    labels: dict[str, int]
    address: Address
    nothing: int | None = None


class Passing(fm.ProcessFunction):
    """Rows as they are; the type of what it keeps is said where it is declared."""

    seen = fm.ValueState("bigint")
    exact = fm.MapState("date", "decimal(10,2)")

    def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[Mapping[str, Any]]:
        """The row, with what the states hold in place of two of its values."""
        self.seen.update(row["whole"])
        self.exact.put(row["day"], row["exact"])
        ((day, exact),) = self.exact.items()
        yield {**row, "whole": self.seen.get(), "day": day, "exact": exact}


@fm.operator
def passing(rows: fm.Stream[Everything]) -> fm.Stream:
    """Through a state and back."""
    return rows.key_by("key").process(Passing(), schema=Everything)


def check(run: Run) -> None:
    """Values come out as they went in."""
    some = {
        "key": "k",
        "yes": True,
        "whole": 2**63 - 1,
        "real": -0.5,
        "exact": Decimal("12345678.90"),
        "day": date(2024, 2, 29),
        "moment": datetime(1999, 12, 31, 23, 59, 59, 123456, tzinfo=UTC),
        "raw": b"\x00\xff",
        "tags": ["a", ""],
        "labels": {"one": 1},
        "address": {"city": "Köln", "zip": None},
        "nothing": None,
    }
    rows = [{"at": NINE + timedelta(seconds=n), **some, "whole": 2**63 - 1 - n} for n in range(3)]
    found = run(passing, {"rows": rows}, event_time="at")[""]
    wanted = [{name: plain(value) for name, value in row.items()} for row in rows]
    assert sorted(({n: plain(v) for n, v in row.items()} for row in found), key=lambda row: -row["whole"]) == wanted
    assert passing.outputs[0].schema.columns[0].type == "string"


def plain(value: Any) -> Any:
    """Maps as mappings, instants as milliseconds and microseconds of one zone."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value
