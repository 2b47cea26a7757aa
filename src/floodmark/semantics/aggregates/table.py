"""The table of built-in aggregates: each once, its forms beside each other. Its laws are ``spec.windowing.aggregates.LAWS``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from floodmark.core.types import parse
from floodmark.semantics.aggregates import bags, parts, rows, sql
from floodmark.spec.windowing.aggregates import LAWS, Aggregate, AnyAggregate, Builtin, Law


@dataclass(frozen=True, slots=True)
class Columns:
    """The form in Arrow columns, of partial results that are merged.

    Args:
        parts: type of the value -> its parts in ``main``.
        result: (main, number of the value, its type) -> column of results.
        fits: same arguments -> where the result is right; None if it always is.
        spread: ``main`` has deviations too.
    """

    parts: Callable[[str], tuple[parts.Part, ...]]
    result: Callable[[Any, int, str], Any]
    fits: Callable[[Any, int, str], Any] | None = None
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Forms:
    """One aggregate.

    Args:
        row: (output column, declaration, type of the value) -> fold.
        columns: of partial results; None if the values themselves or their order are needed.
        bag: from a bag of values; None if never needed.
        sql: (declaration, value, its type, SQL text of the overflow's message) -> Spark SQL; None if SQL's answer may differ.
        empty: the result of no values, if not null.
    """

    row: Callable[[str, Builtin, str], rows.Fold]
    columns: Columns | None = None
    bag: bags.FromBag | None = None
    sql: Callable[[Builtin, str, str, str], str | None] = sql.none
    empty: Any = None


TABLE = {
    "count": Forms(rows.counts, Columns(parts.counts_of, parts.counted), sql=sql.counts, empty=0),
    "sum": Forms(rows.totals, Columns(parts.totals_of, parts.total, parts.total_fits), bags.total, sql.totals),
    "mean": Forms(rows.means, Columns(parts.totals_of, parts.average), bags.average, sql.means),
    "stddev": Forms(
        rows.deviations, Columns(parts.counts_of, parts.deviation, spread=True), bags.deviation
    ),  # Spark SQL loses digits of close values
    "min": Forms(rows.least, Columns(parts.least_of, parts.smallest), bags.least, sql.least),
    "max": Forms(rows.greatest, Columns(parts.greatest_of, parts.largest), bags.greatest, sql.greatest),
    "count_distinct": Forms(rows.bagged, bag=bags.number, sql=sql.distinct_counts, empty=0),
    "approx_count_distinct": Forms(rows.hashed, empty=0),  # in columns: a bag of hashes
    "sum_distinct": Forms(rows.distinct_totals, bag=bags.distinct_totals),
    "mean_distinct": Forms(rows.bagged, bag=bags.listed),
    "distinct": Forms(rows.bagged, bag=bags.listed, empty=[]),
    "median": Forms(rows.bagged, bag=bags.listed),
    "percentile": Forms(rows.bagged, bag=bags.listed),
    "percentile_disc": Forms(rows.bagged, bag=bags.listed),
    "mode": Forms(rows.bagged, bag=bags.listed),
    "top_n": Forms(rows.bagged, bag=bags.listed, empty=[]),
    "min_by": Forms(rows.least_by),
    "max_by": Forms(rows.greatest_by),
    "first": Forms(rows.firsts),
    "last": Forms(rows.lasts),
    "collect": Forms(rows.collected),
}


def fold(name: str, aggregate: AnyAggregate, kind: str) -> rows.Fold:
    """An aggregate by row.

    Args:
        name: of its column, for errors.
        aggregate: a built-in one, or the user's.
        kind: Spark SQL type of its expression.
    """
    form = (
        rows.users(name, aggregate)
        if isinstance(aggregate, Aggregate)
        else TABLE[aggregate.function].row(name, aggregate, kind)
    )
    return rows.with_one_zero(form)


def sql_of(aggregate: AnyAggregate, value: str, kind: str, error: str) -> str | None:
    """An aggregate in Spark SQL; None if SQL's answer may differ from that of the other forms."""
    return TABLE[aggregate.function].sql(aggregate, value, kind, error) if isinstance(aggregate, Builtin) else None


def needs_bag(aggregate: AnyAggregate, kind: str, *, revisable: bool) -> bool:
    """Whether the state holds the values themselves, with numbers of occurrences."""
    if isinstance(aggregate, Aggregate):
        return revisable and not hasattr(aggregate, "retract")
    law: Law = LAWS[aggregate.function]
    subtracts = law.retracts == "always" or (law.retracts == "exact" and parse(kind).is_exact)
    return law.keeps_values or (revisable and not subtracts)
