"""The columns of its inputs that a stream of the embedded engine reads."""

from __future__ import annotations

from typing import Any

import pytest

import floodmark as fm
from floodmark.engines.embedded.unbounded.columns import columns_read
from floodmark.spec.graph.operator import Operator


class Order(fm.Contract):
    """An order."""

    at: fm.EventTime
    shop: str
    cents: int
    note: str | None = None


class Shop(fm.Contract):
    """A shop."""

    since: fm.EventTime
    shop: str
    town: str | None = None
    phone: str | None = None


WHOLE = frozenset({"at", "shop", "cents", "note"})


def of(program: Any) -> dict[str, frozenset[str]]:
    """What a program reads of its orders."""
    made = fm.operator(program, name="made")
    assert isinstance(made, Operator)
    return columns_read(made)


def doubled(row: Any) -> list[Any]:
    return [row, row]


PROGRAMS: dict[str, tuple[Any, set[str] | frozenset[str]]] = {
    "select": (lambda orders: orders.select("shop", twice="cents * 2"), {"shop", "cents"}),
    "filter first": (lambda orders: orders.filter("note IS NOT NULL").select("shop"), {"shop", "note"}),
    "rows as they are": (lambda orders: orders.filter("cents > 1"), WHOLE),
    "a column that nothing takes": (
        lambda orders: orders.with_columns(far="note").select("shop"),
        {"shop"},
    ),
    "a value that nothing takes, and that a row may not have": (
        lambda orders: orders.with_columns(parts="1 DIV cents").select("shop"),
        {"shop", "cents"},
    ),
    "windows": (
        lambda orders: orders.key_by("shop").window(fm.Tumbling("1 hour")).aggregate(sum=fm.sum("cents"), n=fm.count()),
        {"shop", "cents"},
    ),
    "sessions": (
        lambda orders: orders.key_by("shop").window(fm.Session("1 hour")).aggregate(n=fm.count()),
        {"shop"},
    ),
    "sessions whose gap is a column": (
        lambda orders: orders.key_by("shop").window(fm.Session("cents", per_row=True)).aggregate(n=fm.count()),
        {"shop", "cents"},
    ),
    "a name in other letters": (lambda orders: orders.select(twice="CENTS * 2"), {"cents"}),
    "a parameter that is named as a column": (
        lambda orders: orders.select(dear="exists(array(cents), note -> note > 5)"),
        {"cents"},
    ),
    "windows whose late rows are an output": (
        lambda orders: orders.key_by("shop").window(fm.Tumbling("1 hour"), late="side_output").aggregate(n=fm.count()),
        WHOLE,
    ),
    "a function": (lambda orders: orders.flat_map(doubled, schema=Order).select("shop"), WHOLE),
    "a quarantine": (lambda orders: orders.select("shop", parts="1 DIV cents", on_error="quarantine"), WHOLE),
    "a state of rows": (
        lambda orders: orders.key_by("shop").deduplicate("1 hour").select("shop"),
        WHOLE,
    ),
    "the union of parts": (
        lambda orders: orders.select("shop").union(orders.filter("cents > 1").select(shop="note")),
        {"shop", "cents", "note"},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_stream_reads_what_its_steps_name(name: str) -> None:
    program, expected = PROGRAMS[name]

    def made(orders: fm.Stream[Order]) -> fm.Stream:
        return program(orders)  # type: ignore[no-any-return]

    assert of(made) == {"orders": expected}


def test_each_side_of_a_join_and_each_stage_reads_its_own() -> None:
    text = """SELECT t.town, COUNT(*) AS n FROM (SELECT o.shop, s.town FROM orders AS o JOIN shops AS s ON o.shop = s.shop WHERE o.cents > 5) AS t
        GROUP BY t.town EMIT CHANGES"""
    joined = fm.sql_operator("towns", text, inputs={"orders": Order, "shops": Shop})
    read = columns_read(joined)
    assert read["orders"] == {"shop", "cents"}
    assert read["shops"] == {"shop", "town"}
