"""Aggregates of windows that depend on the order of rows, as SQL: each has its value from one row, the first of its window in an order.

The value with the greatest or least ``by``, of several such rows from the one that arrived first, and the first or last value by arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from floodmark.core.types import parse
from floodmark.spec.expressions import check
from floodmark.spec.graph.interleaving import keeps_arrival
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import FlatMap, WindowAggregate, walk
from floodmark.spec.windowing.aggregates import ORDERED, AnyAggregate, Builtin

_ARRIVAL = "_at"
_ORDERS = {
    "max_by": f"`{{by}}` DESC NULLS LAST, `{_ARRIVAL}`",
    "min_by": f"`{{by}}` ASC NULLS LAST, `{_ARRIVAL}`",
    "first": f"`{_ARRIVAL}`",
    "last": f"`{_ARRIVAL}` DESC",
}
"""Aggregate -> the order in which the row with its value is the first one."""
_FRAME = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
"""Without it Sail takes a frame by values, which it has not of binary ones."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the rows of a window.

    Args:
        function: aggregate that has its value from the first row.
        by: its second expression; None if only the arrival decides.
    """

    function: str
    by: str | None


def orders(step: WindowAggregate) -> tuple[Order, ...]:
    """The different orders in which aggregates of a step need rows; empty if none does."""
    return tuple(dict.fromkeys(_order(a) for _, a in step.aggregates if _in_order(a)))


def possible(operator: Operator, step: WindowAggregate) -> bool:
    """Whether SQL finds the rows of the kernel: no two of them arrive at once, all orders are known, and all values have an order."""
    chosen = orders(step)
    if (
        not step.once_on_grid
        or operator.order == "event_time"
        or any(order.function not in _ORDERS for order in chosen)
    ):
        return False
    if any(given.inner for given in operator.inputs) or any(isinstance(one, FlatMap) for one in walk(step.parent)):
        return False
    if not keeps_arrival(step.parent):
        return False
    schema, where = step.parent.schema, f"step '{step.uid}'"
    texts = [a.expression for _, a in step.aggregates if _in_order(a)] + [order.by for order in chosen]
    kinds = [parse(check(text, schema, where)) for text in texts if text is not None]
    keys = [parse(schema.types[key]) for key in step.keys]
    return not any(kind.inner for kind in (*kinds, *keys)) and not any(key.is_floating for key in keys)


def columns(chosen: tuple[Order, ...], value: Callable[[str], str]) -> list[str]:
    """SQL of the columns by which rows are ordered.

    Args:
        chosen: orders of a step.
        value: expression -> its SQL.
    """
    deciding = [f"{value(order.by)} AS `{_by(n)}`" for n, order in enumerate(chosen) if order.by is not None]
    return [*deciding, f"`_sequence` AS `{_ARRIVAL}`"] if chosen else []


def alone(step: WindowAggregate) -> bool:
    """Whether all aggregates have their values from one and the same row."""
    return len(orders(step)) == 1 and all(_in_order(a) for _, a in step.aggregates)


def measured(aggregate: AnyAggregate) -> AnyAggregate:
    """The aggregate of the values that ``marked`` leaves: the one that there is."""
    return Builtin("max", aggregate.expression) if _in_order(aggregate) else aggregate


def marked(step: WindowAggregate, pairs: DataFrame) -> DataFrame:
    """The rows of each window, in which the values ``v`` of aggregates in order are null but for the row that has them.

    If all aggregates have their values from one row, only that row is left.

    Args:
        step: with aggregates in order.
        pairs: keys ``k``, values ``v``, ``_end`` and ``columns``.
    """
    chosen = orders(step)
    window = ", ".join([*(f"k{i}" for i, _ in enumerate(step.keys)), "_end"])
    ranks = [
        f"row_number() OVER (PARTITION BY {window} ORDER BY {_ORDERS[order.function].format(by=_by(n))} {_FRAME}) AS `_rank{n}`"
        for n, order in enumerate(chosen)
    ]
    ranked = pairs.selectExpr("*", *ranks)
    if alone(step):
        ranked = ranked.filter("`_rank0` = 1")
    others = [name for name in ranked.columns if not name.startswith("v")]
    values = [
        f"{_left(i, chosen.index(_order(a)), a) if _in_order(a) else f'v{i}'} AS v{i}"
        for i, (_, a) in enumerate(step.aggregates)
    ]
    return ranked.selectExpr(*(f"`{name}`" for name in others), *values)


def _left(value: int, order: int, aggregate: AnyAggregate) -> str:
    """SQL of a value in the row that has it; null if what decides is null in all rows."""
    there = "" if _order(aggregate).by is None else f" AND `{_by(order)}` IS NOT NULL"
    return f"CASE WHEN `_rank{order}` = 1{there} THEN v{value} END"


def _in_order(aggregate: AnyAggregate) -> bool:
    return isinstance(aggregate, Builtin) and aggregate.function in ORDERED


def _order(aggregate: AnyAggregate) -> Order:
    assert isinstance(aggregate, Builtin)
    return Order(aggregate.function, aggregate.by)


def _by(order: int) -> str:
    return f"_by{order}"
