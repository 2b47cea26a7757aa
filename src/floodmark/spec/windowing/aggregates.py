"""Aggregates: what a window computes. Declarations and laws only; ``semantics.aggregates`` does the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from attrs import field, frozen

from floodmark.core.code import class_of
from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import OMITTED, Declared, renamed
from floodmark.core.types import MAX_DIGITS, decimal, parse
from floodmark.spec.expressions import known_type
from floodmark.spec.values.schema import Schema


@frozen
class Builtin(Declared):
    """One of floodmark's own aggregates over an expression (None only for ``count()``)."""

    function: str = field(metadata=renamed("aggregate"))
    expression: str | None = None
    by: str | None = field(default=None, metadata=OMITTED)
    n: int | None = field(default=None, metadata=OMITTED)


@frozen
class Percentile(Builtin):
    """A built-in aggregate of a share of the values. A class of its own, as code of users that names another aggregate is digested with its fields."""

    fraction: float = 0.5


def count(expression: str | None = None) -> Builtin:
    """Number of rows, or of rows where ``expression`` is not null. ``bigint``; 0 never appears, as empty windows do not fire."""
    return Builtin("count", expression)


def sum(expression: str) -> Builtin:  # noqa: A001 - the field's word for it
    """Sum of the non-null values; null when there are none.

    Exact for integers (``bigint``) and decimals (``decimal(38,s)``): the total alone has to fit, else EXECUTION-001. ``double`` for floats,
    which are added in no fixed order: two sums differ by at most 1e-9 of the sum of magnitudes.
    """
    return Builtin("sum", expression)


def min(expression: str) -> Builtin:  # noqa: A001
    """Smallest non-null value, NaN only if there is no number; null when there are none. Type of the expression."""
    return Builtin("min", expression)


def max(expression: str) -> Builtin:  # noqa: A001
    """Largest non-null value, NaN if there is one; null when there are none. Type of the expression."""
    return Builtin("max", expression)


def mean(expression: str) -> Builtin:
    """Arithmetic mean of the non-null values, ``double``; null when there are none."""
    return Builtin("mean", expression)


def stddev(expression: str) -> Builtin:
    """Sample standard deviation (n - 1) of the non-null values as doubles, ``double``; null for fewer than two. SQL ``stddev_samp``.

    Right within 1e-9 of the result, also of values that are close to each other; their squares have to lie within ``double``.
    """
    return Builtin("stddev", expression)


def count_distinct(expression: str) -> Builtin:
    """Exact number of different non-null values, ``bigint``. State grows with them."""
    return Builtin("count_distinct", expression)


def sum_distinct(expression: str) -> Builtin:
    """Sum of the different non-null values; type and overflow as of ``sum``. State grows with the values. SQL ``SUM(DISTINCT x)``."""
    return Builtin("sum_distinct", expression)


def mean_distinct(expression: str) -> Builtin:
    """Arithmetic mean of the different non-null values, ``double``. State grows with the values. SQL ``AVG(DISTINCT x)``."""
    return Builtin("mean_distinct", expression)


def approx_count_distinct(expression: str) -> Builtin:
    """Number of different non-null values within about 2 %, ``bigint``; exact up to 4,096 of them.

    The state holds the 4,096 smallest hashes (k minimum values), so the answer depends on the set of values alone, not on their order. On
    an input that can be revised the state holds all hashes, as any value may be retracted.
    Source: Bar-Yossef et al., "Counting distinct elements in a data stream", 2002.
    """
    return Builtin("approx_count_distinct", expression)


def min_by(expression: str, by: str) -> Builtin:
    """``expression`` of the row whose ``by`` is smallest; the first to arrive of several. Null ``by`` does not count.

    Type of the expression. Source: Flink ``minBy``. All ``min_by`` with the same ``by`` describe the same row.
    """
    return Builtin("min_by", expression, by)


def max_by(expression: str, by: str) -> Builtin:
    """``expression`` of the row whose ``by`` is largest; the first to arrive of several. See ``min_by``."""
    return Builtin("max_by", expression, by)


def first(expression: str) -> Builtin:
    """``expression`` of the row that arrived first; null if it is null there. Type of the expression."""
    return Builtin("first", expression)


def last(expression: str) -> Builtin:
    """``expression`` of the row that arrived last; null if it is null there. Type of the expression."""
    return Builtin("last", expression)


def collect(expression: str) -> Builtin:
    """The non-null values in order of arrival, an array. State grows with them."""
    return Builtin("collect", expression)


def distinct(expression: str) -> Builtin:
    """The different non-null values in ascending order, an array. State grows with them."""
    return Builtin("distinct", expression)


def median(expression: str) -> Builtin:
    """The middle of the non-null values, or the mean of the middle two, ``double``; null when there are none. State grows with them."""
    return Builtin("median", expression)


def percentile(expression: str, fraction: float) -> Builtin:
    """The value below which a share of the non-null values lies, between two values on the line through them, ``double``.

    Null when there are none. ``fraction`` is from 0 to 1: ``percentile("latency", 0.99)``; 0.5 is the median. State grows with the values.
    Source: SQL ``PERCENTILE_CONT``, computed as by Spark's ``percentile``.
    """
    return Percentile("percentile", expression, fraction=fraction)


def percentile_disc(expression: str, fraction: float) -> Builtin:
    """The smallest non-null value that at least a share of the values does not exceed; null when there are none. Type of the expression.

    ``fraction`` is from 0 to 1. State grows with the values. Source: SQL ``PERCENTILE_DISC``.
    """
    return Percentile("percentile_disc", expression, fraction=fraction)


def mode(expression: str) -> Builtin:
    """The most frequent non-null value, the smallest of several; null when there are none. Type of the expression. State grows with the values."""
    return Builtin("mode", expression)


def top_n(expression: str, n: int) -> Builtin:
    """The ``n`` largest non-null values, largest first, an array; fewer where there are fewer. State grows with the values."""
    return Builtin("top_n", expression, n=n)


@dataclass(frozen=True, slots=True)
class Law:
    """Properties of a built-in aggregate, the same in every form (by row, in columns, in SQL).

    Args:
        accepts: types of its expression: every type, types whose values can be told apart, types with an order, numbers.
        result: type of its column; "value" is the expression's type, "array" an array of it, "total" the widest exact type, or double.
        in_order: the result depends on the order of arrival.
        keeps_values: the state holds value -> number of occurrences.
        retracts: a value can be subtracted again: always, if the expression is an integer or a decimal, or never.
    """

    accepts: Literal["every", "distinguishable", "ordered", "number"]
    result: Literal["bigint", "double", "value", "array", "total"]
    in_order: bool = False
    keeps_values: bool = False
    retracts: Literal["always", "exact", "never"] = "never"


LAWS = {
    "count": Law("every", "bigint", retracts="always"),
    "sum": Law("number", "total", retracts="exact"),
    "min": Law("ordered", "value"),
    "max": Law("ordered", "value"),
    "mean": Law("number", "double", retracts="exact"),
    "stddev": Law("number", "double"),
    "count_distinct": Law("distinguishable", "bigint", keeps_values=True),
    "approx_count_distinct": Law("distinguishable", "bigint", retracts="always"),
    "sum_distinct": Law("number", "total", keeps_values=True),
    "mean_distinct": Law("number", "double", keeps_values=True),
    "min_by": Law("every", "value", in_order=True),
    "max_by": Law("every", "value", in_order=True),
    "first": Law("every", "value", in_order=True),
    "last": Law("every", "value", in_order=True),
    "collect": Law("every", "array", in_order=True),
    "distinct": Law("ordered", "array", keeps_values=True),
    "median": Law("number", "double", keeps_values=True),
    "percentile": Law("number", "double", keeps_values=True),
    "percentile_disc": Law("ordered", "value", keeps_values=True),
    "mode": Law("ordered", "value", keeps_values=True),
    "top_n": Law("ordered", "array", keeps_values=True),
}
"""Aggregate -> its laws. The forms of each (by row, in columns, in SQL) are in ``semantics.aggregates.table``."""

ORDERED = frozenset(name for name, law in LAWS.items() if law.in_order)
"""Aggregates that depend on the order of arrival."""


class Aggregate:
    """An aggregate of your own: plain Python, one accumulator per key and window.

    Accumulators are plain data (numbers, strings, booleans, None, lists, dictionaries with string keys), stored as JSON.
    A subclass sets ``type`` and defines the four methods. Define ``retract(accumulator, value)`` too if the input can be revised and a
    value can be subtracted again: without it the state holds every value, and a retraction computes the aggregate again.

    Example:
        >>> class Range(Aggregate):
        ...     type = "bigint"
        ...     def create(self): return None
        ...     def add(self, acc, value): return [min(acc[0], value), max(acc[1], value)] if acc else [value, value]
        ...     def merge(self, a, b): return [min(a[0], b[0]), max(a[1], b[1])] if a and b else a or b
        ...     def result(self, acc): return acc[1] - acc[0] if acc else None
    """

    type: ClassVar[str]
    """Spark SQL type of the result."""

    def __init__(self, expression: str) -> None:
        self.expression = expression

    def create(self) -> Any:
        """An empty accumulator."""
        raise NotImplementedError

    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with one more non-null value; values come in no particular order."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Two accumulators of the same window made one. Must be associative and commutative."""
        raise NotImplementedError

    def result(self, accumulator: Any) -> Any:
        """The value that goes into the output."""
        raise NotImplementedError

    def canonical(self) -> dict[str, object]:
        """As ``Declared.canonical``; the class is identified by its code, which is part of the version."""
        form = {"aggregate": type(self).__qualname__, "expression": self.expression, "type": self.type}
        return form | class_of(self, "aggregate", without="expression")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aggregate) and type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self).__qualname__, self.expression))


AnyAggregate = Builtin | Aggregate


def texts(aggregate: AnyAggregate) -> tuple[str, ...]:
    """The Spark SQL expressions of an aggregate."""
    by = aggregate.by if isinstance(aggregate, Builtin) else None
    return tuple(text for text in (aggregate.expression, by) if text)


def result_type(aggregate: object, schema: Schema, where: str) -> str:
    """(aggregate, input columns) -> Spark SQL type of the aggregate's column; refuses an aggregate that does not fit the columns.

    Raises:
        DefinitionError: DEFINITION-040 no aggregate, 041 a type it cannot work on, 042 an incomplete user aggregate.
    """
    if not isinstance(aggregate, (Builtin, Aggregate)):
        fix = 'Write departures=count() or mean_delay=mean("dep_delay"); import them from floodmark.'
        raise DefinitionError(where, "an aggregate", repr(aggregate), fix, code="DEFINITION-040")
    if aggregate.expression is None:
        if not isinstance(aggregate, Builtin) or aggregate.function != "count":
            fix = 'Name what it is of: sum("amount").'
            raise DefinitionError(where, "an expression", "None", fix, code="DEFINITION-041")
        return "bigint"
    kind = known_type(aggregate.expression, schema, where)
    if isinstance(aggregate, Aggregate):
        return _user_type(aggregate, where)
    _check_builtin(aggregate, kind, schema, where)
    match LAWS[aggregate.function].result:
        case "value":
            return kind
        case "array":
            return f"array<{kind}>"
        case "total":
            return total_type(kind)
        case fixed:
            return fixed


def total_type(kind: str) -> str:
    """The type of a sum: ``decimal(38,s)`` of decimals, ``double`` of floats, else ``bigint``."""
    summed = parse(kind)
    if summed.is_decimal:
        return str(decimal(MAX_DIGITS, summed.scale))
    return "double" if summed.is_floating else "bigint"


def _check_builtin(aggregate: Builtin, kind: str, schema: Schema, where: str) -> None:
    function, of, got = aggregate.function, parse(kind), f"'{aggregate.expression}' of type {kind}"
    match LAWS[function].accepts:
        case "number" if not of.is_numeric:
            fix = f'Use count() or count_distinct(), or cast it: {function}("CAST({aggregate.expression} AS double)").'
            raise DefinitionError(where, f"a number to take the {function} of", got, fix, code="DEFINITION-041")
        case "ordered" if not of.is_orderable:
            fix = f"{function} works on numbers, strings, dates and timestamps."
            raise DefinitionError(where, "values with an order", got, fix, code="DEFINITION-041")
        case "distinguishable" if not of.is_groupable:
            fix = f'{function} works on numbers, strings, dates, timestamps, booleans and bytes; count the text instead: {function}("to_json({aggregate.expression})").'
            raise DefinitionError(where, "values that can be told apart", got, fix, code="DEFINITION-041")
    if aggregate.by is not None:
        by = known_type(aggregate.by, schema, where)
        if not parse(by).is_groupable:
            fix = f"{function} compares numbers, strings, dates, timestamps, booleans and bytes."
            raise DefinitionError(
                where, "a 'by' with an order", f"'{aggregate.by}' of type {by}", fix, code="DEFINITION-041"
            )
    if isinstance(aggregate, Percentile):
        share = aggregate.fraction
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            fix = f'{function}("{aggregate.expression}", 0.99).'
            raise DefinitionError(where, "a share from 0 to 1", repr(share), fix, code="DEFINITION-041")
    if function == "top_n" and not (isinstance(aggregate.n, int) and aggregate.n > 0):
        fix = f'top_n("{aggregate.expression}", 10).'
        raise DefinitionError(where, "a number of values, 1 or more", repr(aggregate.n), fix, code="DEFINITION-041")


def _user_type(aggregate: Aggregate, where: str) -> str:
    missing = [n for n in ("create", "add", "merge", "result") if getattr(type(aggregate), n) is getattr(Aggregate, n)]
    missing += [] if hasattr(aggregate, "type") else ["type"]
    if missing:
        fix = f"Define them on {type(aggregate).__name__}; see the docstring of Aggregate."
        raise DefinitionError(
            where, "a complete Aggregate", f"none of {', '.join(missing)}", fix, code="DEFINITION-042"
        )
    return str(parse(aggregate.type, f"{where}, {type(aggregate).__name__}.type"))


def check_retracts(aggregate: AnyAggregate, schema: Schema, where: str) -> None:
    """Refuse a user aggregate over arrays, maps or structs that lacks ``retract``, where the input can be revised.

    Without ``retract`` the state holds value -> number of occurrences, and such values cannot be compared.

    Raises:
        DefinitionError: DEFINITION-130.
    """
    if not isinstance(aggregate, Aggregate) or hasattr(aggregate, "retract"):
        return
    kind = known_type(aggregate.expression, schema, where)
    if not parse(kind).is_groupable:
        got = f"'{aggregate.expression}' of type {kind}, and no {type(aggregate).__name__}.retract"
        fix = f"Define retract(self, accumulator, value) on {type(aggregate).__name__}, which takes a value out again."
        raise DefinitionError(
            where, "values that can be kept until they are taken back", got, fix, code="DEFINITION-130"
        )
