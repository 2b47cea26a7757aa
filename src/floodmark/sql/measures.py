"""Aggregates of a statement as those of the fluent API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import known_type
from floodmark.spec.windowing import aggregates
from floodmark.spec.windowing.aggregates import Builtin
from floodmark.sql.dialect import SPAN
from floodmark.sql.reading.spellings import LISTED, NAMED_AGGREGATES
from floodmark.sql.relation import Relation
from floodmark.sql.text import Text, begin_of
from floodmark.sql.windows import function_name

_ONE: Mapping[type[exp.Expr], Callable[[str], Builtin]] = {
    exp.Sum: aggregates.sum,
    exp.Min: aggregates.min,
    exp.Max: aggregates.max,
    exp.Avg: aggregates.mean,
    exp.Stddev: aggregates.stddev,
    exp.StddevSamp: aggregates.stddev,
    exp.ApproxDistinct: aggregates.approx_count_distinct,
    exp.First: aggregates.first,
    exp.FirstValue: aggregates.first,
    exp.Last: aggregates.last,
    exp.LastValue: aggregates.last,
    exp.ArrayAgg: aggregates.collect,
    exp.ArrayUniqueAgg: aggregates.distinct,
    exp.Median: aggregates.median,
    exp.Mode: aggregates.mode,
    exp.AnyValue: aggregates.min,
    exp.LogicalAnd: aggregates.min,
    exp.LogicalOr: aggregates.max,
}
_SHARES: Mapping[type[exp.Expr], Callable[[str, float], Builtin]] = {
    exp.Quantile: aggregates.percentile,
    exp.PercentileCont: aggregates.percentile,
    exp.ApproxQuantile: aggregates.percentile_disc,  # exact, which is within any accuracy
    exp.PercentileDisc: aggregates.percentile_disc,
}
_TWO: Mapping[type[exp.Expr], Callable[[str, str], Builtin]] = {
    exp.ArgMin: aggregates.min_by,
    exp.ArgMax: aggregates.max_by,
}
_ONE_TEXT = frozenset({"tinyint", "smallint", "int", "bigint", "string", "boolean", "date", "timestamp"})
"""Types whose equal values, and no others, have one text."""
_COLON = "':'"
_OWN: ContextVar[Mapping[str, Any]] = ContextVar("OWN", default=MappingProxyType({}))
"""Name, lower case -> class of an aggregate of the user that the statement may call."""
_DISTINCT: Mapping[type[exp.Expr], Callable[[str], Builtin]] = {
    exp.Min: aggregates.min,
    exp.Max: aggregates.max,
    exp.Sum: aggregates.sum_distinct,
    exp.Avg: aggregates.mean_distinct,
    exp.ArrayAgg: aggregates.distinct,
}
_POSITIONAL = (exp.First, exp.FirstValue, exp.Last, exp.LastValue)
_AS_IT_COMES = (*_POSITIONAL, exp.ArgMin, exp.ArgMax)
"""Aggregates that have the value of a row, null too."""
_NULLS = (exp.IgnoreNulls, exp.RespectNulls)
_NAMES = "COUNT, SUM, MIN, MAX, AVG, STDDEV, MEDIAN, MIN_BY, MAX_BY, FIRST, LAST, COLLECT_LIST, COLLECT_SET, TOP_N, MODE, PERCENTILE, PERCENTILE_CONT, PERCENTILE_DISC, APPROX_PERCENTILE, ANY_VALUE, LISTAGG, VAR_SAMP, VAR_POP, STDDEV_POP, BOOL_AND, BOOL_OR, EVERY, SOME, COUNT(DISTINCT x, y), SUM(DISTINCT x), AVG(DISTINCT x), APPROX_COUNT_DISTINCT"


@contextmanager
def own_aggregates(functions: Mapping[str, Any]) -> Iterator[None]:
    """Within, a statement may call the aggregates among some functions of the user."""
    token = _OWN.set({name: value for name, value in functions.items() if isinstance(value, type)})
    try:
        yield
    finally:
        _OWN.reset(token)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate with its FILTER."""
    if isinstance(node, (exp.Grouping, exp.GroupingId)):
        return False
    if isinstance(node, _NULLS):
        return is_aggregate(node.this) and not isinstance(node.parent, exp.Window)
    if isinstance(node, (exp.AggFunc, exp.Filter, exp.WithinGroup)) or function_name(node) in NAMED_AGGREGATES:
        return True
    return function_name(node).lower() in _OWN.get()


def measure(text: Text, node: exp.Expr, relation: Relation) -> Builtin:
    """The aggregate of a node, over the columns of a relation.

    Raises:
        DefinitionError: DEFINITION-389, an aggregate that no window computes.
    """
    condition = ""
    if isinstance(node, exp.Filter):
        where = node.expression
        condition = relation.scalar(text, where.this if isinstance(where, exp.Where) else where)
        node = node.this
    if isinstance(node, _NULLS):
        ignored = isinstance(node, exp.IgnoreNulls)
        if isinstance(node.this, _AS_IT_COMES) is ignored:
            written = text.sql[begin_of(node) :].partition("(")[0].strip().upper()
            got = f"{written} with {'IGNORE' if ignored else 'RESPECT'} NULLS"
            raise _unknown(text, node, got)
        node = node.this
    return _Measure(text, relation, condition).of(node)


@dataclass(frozen=True, slots=True)
class _Measure:
    """An aggregate over the rows for which a condition holds; over all rows if it is empty."""

    text: Text
    relation: Relation
    condition: str

    def of(self, node: exp.Expr) -> Builtin:
        """The aggregate."""
        if isinstance(node, exp.Count):
            return self._count(node)
        if isinstance(node, exp.CountIf):
            condition = self._argument(node.this)
            both = f"({self.condition}) AND ({condition})" if self.condition else condition
            return aggregates.count(f"CASE WHEN {both} THEN 1 END")
        if isinstance(node, exp.WithinGroup):
            return self._within_group(node)
        inner = node.this
        if type(node) in _SHARES:
            return self._share(node, node.args["quantile"], inner)
        if isinstance(inner, exp.Distinct):
            if type(node) not in _DISTINCT or len(inner.expressions) != 1:
                raise _unknown(self.text, node, "DISTINCT in another aggregate than COUNT, SUM, AVG, MIN and MAX")
            return _DISTINCT[type(node)](self._filtered(self._argument(inner.expressions[0])))
        if isinstance(node, _POSITIONAL) and self.condition:
            raise _unknown(self.text, node, "FILTER at FIRST or LAST")
        if type(node) in _TWO:
            return _TWO[type(node)](self._argument(inner), self._filtered(self._argument(node.expression)))
        if type(node) in _ONE and isinstance(inner, exp.Expr):
            return _ONE[type(node)](self._filtered(self._argument(inner)))
        return self._named(node)

    def _within_group(self, node: exp.WithinGroup) -> Builtin:
        """``PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)`` and ``MODE() WITHIN GROUP (ORDER BY x)``."""
        inner, order = node.this, node.expression.expressions
        first = order[0] if order and isinstance(order[0], exp.Ordered) else None
        if len(order) != 1 or first is None or (first.args.get("desc") and not isinstance(inner, exp.Mode)):
            raise _unknown(self.text, node, "WITHIN GROUP without ORDER BY one column, ascending")
        if isinstance(inner, exp.Mode):
            return aggregates.mode(self._filtered(self._argument(first.this)))
        if type(inner) in _SHARES:
            return self._share(inner, inner.this, first.this)
        raise _unknown(self.text, node, f"{inner.key.upper()} WITHIN GROUP")

    def _share(self, node: exp.Expr, share: object, value: exp.Expr) -> Builtin:
        if not isinstance(share, exp.Literal) or share.is_string:
            raise _unknown(self.text, node, "a share that is no number: write one aggregate for each")
        return _SHARES[type(node)](self._filtered(self._argument(value)), float(share.this))

    def _count(self, node: exp.Count) -> Builtin:
        inner = node.this
        if isinstance(inner, exp.Distinct):
            return aggregates.count_distinct(self._filtered(self._together(node, inner.expressions)))
        if node.expressions:
            raise _unknown(self.text, node, "COUNT of several columns, without DISTINCT")
        if inner is None or isinstance(inner, (exp.Star, exp.Literal)):
            return aggregates.count(self._filtered("1")) if self.condition else aggregates.count()
        return aggregates.count(self._filtered(self._argument(inner)))

    def _together(self, node: exp.Expr, columns: list[exp.Expr]) -> str:
        """One value for several ones, null if one of them is: their texts with the length before each."""
        values = [self._argument(column) for column in columns]
        if len(values) == 1:
            return values[0]
        schema = self.relation.stream.schema
        kinds = [known_type(value, schema, self.text.at(node)) for value in values]
        odd = next((kind for kind in kinds if kind not in _ONE_TEXT), "")
        if odd:
            raise _unknown(self.text, node, f"COUNT(DISTINCT ...) of several columns, one of type {odd}")
        texts = [f"CAST({value} AS string)" for value in values]
        return " || ".join(f"CAST(length({text}) AS string) || {_COLON} || {text}" for text in texts)

    def _named(self, node: exp.Expr) -> Builtin:
        """An aggregate that sqlglot does not know."""
        match function_name(node), node.expressions:
            case "TOP_N", [value, exp.Literal(is_int=True) as number]:
                return aggregates.top_n(self._filtered(self._argument(value)), int(number.this))
            case "EVERY", [value]:
                return aggregates.min(self._filtered(self._argument(value)))
            case "SOME", [value]:
                return aggregates.max(self._filtered(self._argument(value)))
            case "MEAN", [value]:
                return aggregates.mean(self._filtered(self._argument(value)))
            case name, [value] if name.lower() in _OWN.get():
                own: Any = _OWN.get()[name.lower()](self._filtered(self._argument(value)))
                return own  # type: ignore[no-any-return]  # each is compared and computed as a built-in one is
        raise _unknown(self.text, node, self.text.of(node) if SPAN in node.meta else node.key.upper())

    def _filtered(self, value: str) -> str:
        return f"CASE WHEN {self.condition} THEN {value} END" if self.condition else value

    def _argument(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Order):
            over = node.find_ancestor(exp.Window) is not None
            # by the value under another name, as f.x and x
            if not over and LISTED in node.meta and len(node.expressions) == 1:
                value, order = (self.relation.scalar(self.text, part) for part in (node.this, node.expressions[0].this))
                if value == order:
                    return value
            raise _unknown(
                self.text,
                node,
                f"values in {'an' if over else 'the'} order {'with OVER' if over else 'of other columns'}",
            )
        if isinstance(node, exp.Limit):
            raise _unknown(self.text, node, "LIMIT in an aggregate")
        if any(is_aggregate(part) for part in node.walk()):
            raise _unknown(self.text, node, "an aggregate in an aggregate")
        return self.relation.scalar(self.text, node)


def _unknown(text: Text, node: exp.Expr, got: str) -> DefinitionError:
    fix = f"There are {_NAMES}, each with FILTER (WHERE ...); an aggregate of your own is a class in Python."
    if isinstance(node, exp.Order):
        fix = (
            "Order by the values themselves, LISTAGG(x, ',') WITHIN GROUP (ORDER BY x); without ORDER BY they come as their rows do. The value at the least y is "
            "MIN_BY(x, y), at the greatest MAX_BY(x, y)."
        )
    if isinstance(node, exp.Order) and node.find_ancestor(exp.Window) is not None:
        fix = "Sort the array: SORT_ARRAY(ARRAY_AGG(x) OVER (...)), with false as second argument from the greatest on."
    if isinstance(node, _NULLS):
        fix = "FIRST, LAST, MIN_BY and MAX_BY take a null as it comes, all others leave nulls out. The first value of a group that is not null is MIN_BY(x, CASE WHEN x IS NOT NULL THEN at END), with the event time for at."
    if isinstance(node, exp.Limit):
        fix = "The two least values are SLICE(SORT_ARRAY(ARRAY_AGG(x)), 1, 2), the two greatest TOP_N(x, 2)."
    if isinstance(node, (exp.Corr, exp.CovarPop, exp.CovarSamp)):
        fix = (
            "It is said by others, over rows in which neither is null: COVAR_POP(x, y) is AVG(x * y) - AVG(x) * AVG(y), and CORR(x, y) that divided by "
            "NULLIF(STDDEV_POP(x) * STDDEV_POP(y), 0), to the digits that such a difference has."
        )
    return DefinitionError(text.at(node), "an aggregate of a window", got, fix, code="DEFINITION-389")
