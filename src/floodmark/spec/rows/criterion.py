"""Criteria: expectations compiled to SQL, so that a whole list of them is one aggregate over the rows. Great Expectations' answers, without it.

Source: Great Expectations 1.24, its metrics for Spark: which rows count, how ``mostly`` is judged, what a result holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

from floodmark.core.errors import DefinitionError
from floodmark.core.sql import spark_literal
from floodmark.core.types import Type, known
from floodmark.spec.expressions import check
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import Column, Schema

Function = Literal["rows", "min", "max", "sum", "mean", "stddev", "count_distinct"]
Judged = tuple[Expectation, bool, dict[str, Any]]
"""(expectation, True if the rows meet the expectation, {name: value} of the result)."""
SHOWN = 10
"""Most examples of unexpected rows."""
EXAMPLES = "unexpected, for example"
"""Name of the examples among the numbers of a result."""
ROWS, COUNTED, UNEXPECTED = "rows", "counted", "unexpected"
"""Names of the measures of a ``RowCriterion``."""
REPEATS = "_repeats"
"""Beginning of the name of a column with the number of rows that have the values of a row."""
_SUMMED_EXACTLY = 28
"""Digits of decimals whose sum fits 38 digits, however many rows there are."""
_LONGEST = 4_000
"""Most characters of a set or pattern that becomes SQL."""


class NotCompiledError(Exception):
    """Why an expectation has no SQL; a text that ends a sentence."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate over the rows.

    Args:
        function: ``rows`` counts the rows for which ``value`` is true; the others aggregate the values that are not null.
        value: Spark SQL over the columns of the rows, and of ``repeats``.
    """

    function: Function
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCriterion:
    """An expectation that each row meets or does not meet.

    Args:
        expectation: that was compiled.
        counted: SQL condition for the rows that can meet the expectation or not: those with a value. None for all rows.
        unexpected: SQL condition for the rows that do not meet the expectation; never null, false for rows that are not counted.
        columns: of an example of an unexpected row.
        repeats: columns whose values no two rows may share; the column ``REPEATS`` of them is part of ``unexpected``. Empty for a criterion
            that looks at one row alone.
    """

    expectation: Expectation
    counted: str | None
    unexpected: str
    columns: tuple[str, ...]
    repeats: tuple[str, ...] = ()

    @property
    def measures(self) -> dict[str, Measure]:
        """Name -> measure."""
        counted = {} if self.counted is None else {COUNTED: Measure("rows", self.counted)}
        return {ROWS: Measure("rows", "true"), **counted, UNEXPECTED: Measure("rows", self.unexpected)}

    def verdict(self, values: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """(measure -> value) -> (whether the rows meet the expectation, the numbers of the result)."""
        rows, unexpected = values[ROWS], values[UNEXPECTED]
        counted = values.get(COUNTED, rows)
        mostly = self.expectation.values.get("mostly", 1.0)
        met = counted == 0 or (float(counted) - float(unexpected)) / float(counted) >= mostly
        numbers: dict[str, Any] = {"element_count": rows, "unexpected_count": unexpected}
        if rows and counted:
            numbers["unexpected_percent"] = unexpected / counted * 100
        if self.counted is None:
            return met, numbers
        numbers["missing_count"] = rows - counted
        if rows:
            numbers["missing_percent"] = (rows - counted) / rows * 100
            numbers["unexpected_percent_total"] = unexpected / rows * 100
            if counted:
                numbers["unexpected_percent_nonmissing"] = numbers["unexpected_percent"]
        return met, numbers

    def example(self, row: Mapping[str, Any]) -> str:
        """(an unexpected row) -> the text of its values."""
        values = [_shown(row[name]) for name in self.columns]
        if len(values) == 1:
            return str(values[0])
        return str(
            tuple(values) if "column_A" in self.expectation.values else dict(zip(self.columns, values, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberCriterion:
    """An expectation of one number of all rows.

    Args:
        expectation: that was compiled.
        measures: name -> measure.
        observed: (measure -> value) -> the number; None if the rows have none.
        exact: the number that is expected; None for limits.
    """

    expectation: Expectation
    measures: Mapping[str, Measure]
    observed: Callable[[Mapping[str, Any]], Any]
    repeats: tuple[str, ...] = ()

    def verdict(self, values: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """(measure -> value) -> (whether the rows meet the expectation, the numbers of the result)."""
        observed, wanted = self.observed(values), self.expectation.values
        if observed is None or (isinstance(observed, float) and math.isnan(observed)):
            return False, {"observed_value": "None"}
        if "value" in wanted:
            return observed == wanted["value"], {"observed_value": observed}
        low, high = (_like(wanted.get(name), observed) for name in ("min_value", "max_value"))
        above = low is None or (observed > low if wanted.get("strict_min") else observed >= low)
        below = high is None or (observed < high if wanted.get("strict_max") else observed <= high)
        plain = float(observed) if isinstance(observed, Decimal) else observed  # a number that is plotted
        plain = plain if isinstance(plain, bool | int | float | str) else str(_shown(plain))
        return bool(above and below), {"observed_value": plain}


Criterion = RowCriterion | NumberCriterion


def compiled(expectation: Expectation, schema: Schema) -> Criterion:
    """The criterion of an expectation.

    Args:
        expectation: about columns of the schema.
        schema: of the rows.

    Raises:
        NotCompiledError: it has none.
    """
    kind = KINDS.get(expectation.kind)
    if kind is None:
        message = "it is not among those that are compiled"
        raise NotCompiledError(message)
    arguments = expectation.values
    unknown = sorted(arguments.keys() - kind.arguments)
    if unknown:
        message = f"{', '.join(unknown)} is not compiled"
        raise NotCompiledError(message)
    mostly = arguments.get("mostly", 1.0)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 <= mostly <= 1:
        message = f"mostly is {mostly!r}"
        raise NotCompiledError(message)
    criterion = kind.make(expectation, _Columns(schema))
    whole = with_counts(schema, [criterion])
    try:
        for measure in criterion.measures.values():
            check(measure.value, whole, f"expectation '{expectation.name}'")
    except DefinitionError as error:
        message = f"its SQL is refused: {error.expected}, got {error.got}"
        raise NotCompiledError(message) from error
    return criterion


def repeats_columns(criterion: Criterion) -> dict[str, tuple[str, ...]]:
    """The column of numbers of rows with the same values that a criterion needs -> the columns of these values; empty if it needs none."""
    return {"_".join([REPEATS, *criterion.repeats]): criterion.repeats} if criterion.repeats else {}


def with_counts(schema: Schema, criteria: Iterable[Criterion]) -> Schema:
    """The schema with the columns of ``repeats_columns``."""
    names = dict.fromkeys(name for criterion in criteria for name in repeats_columns(criterion))
    return Schema((*schema.columns, *(Column(name=name, type="bigint") for name in names)))


def unexpected(expectation: Expectation, schema: Schema) -> str:
    """The SQL condition for the rows that do not meet an expectation of each row alone, which ``check_on_fail`` has let through."""
    criterion = compiled(expectation, schema)
    assert isinstance(criterion, RowCriterion)
    return criterion.unexpected


def check_on_fail(expectation: Expectation, schema: Schema, where: str) -> None:
    """Refuse an expectation that a run cannot judge before it commits.

    Args:
        expectation: with or without ``on_fail``.
        schema: of the rows.
        where: for the message.

    Raises:
        DefinitionError: DEFINITION-291, it does not compile; DEFINITION-292, a quarantine for an expectation of rows together.
    """
    if expectation.on_fail is None:
        return
    got = expectation.describe()
    try:
        compiled(expectation, schema)
    except NotCompiledError as reason:
        fix = f"Leave on_fail out, so that checks alone judge it; or use one of {', '.join(sorted(KINDS))}."
        expected = f'an expectation that is compiled, for on_fail="{expectation.on_fail}"'
        raise DefinitionError(where, expected, f"{got}: {reason}", fix, code="DEFINITION-291") from reason
    if expectation.on_fail != "quarantine":
        return
    if expectation.kind not in BY_ROW:
        fix = f'Write on_fail="stop" or "warn"; or use one of {", ".join(sorted(BY_ROW))}.'
        expected = 'an expectation of each row alone, for on_fail="quarantine"'
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-292")
    if expectation.values.get("mostly", 1) != 1:
        fix = (
            'Leave mostly out: each row that does not meet it is set aside. For a share write on_fail="stop" or "warn".'
        )
        expected = 'an expectation without mostly, for on_fail="quarantine"'
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-292")


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the rows."""

    schema: Schema

    def type(self, name: Any, *families: str) -> Type:
        """The type of a column, which is of one of some families: ``number``, ``text``, ``time``, ``boolean``, ``binary``."""
        if name not in self.schema:
            message = f"there is no column {name!r}"
            raise NotCompiledError(message)
        kind = known(self.schema[name].type)
        if kind is None or (families and _family(kind) not in families):
            message = f"column '{name}' is {self.schema[name].type}"
            raise NotCompiledError(message)
        return kind


def _family(kind: Type) -> str:
    families = {"string": "text", "date": "time", "timestamp": "time", "boolean": "boolean", "binary": "binary"}
    return "number" if kind.is_numeric else families.get(str(kind), "nested")


def _name(column: str) -> str:
    return f"`{column}`"


def _value(value: Any, kind: Type) -> str:
    """A JSON value as a literal that can be compared with values of a type."""
    family = _family(kind)
    if isinstance(value, bool):
        if family == "boolean":
            return str(value).lower()
    elif isinstance(value, int) and family == "number":
        if -(1 << 63) <= value < 1 << 63:
            return str(value)
    elif isinstance(value, float) and family == "number":
        return f"{value!r}D" if math.isfinite(value) else f"CAST('{value!r}' AS double)"
    elif isinstance(value, str) and family == "text":
        return spark_literal(value)
    elif isinstance(value, str) and family == "time":
        return _instant(value, kind)
    message = f"{value!r} is no {kind}"
    raise NotCompiledError(message)


def _instant(text: str, kind: Type) -> str:
    try:
        if str(kind) == "date":
            return f"DATE '{date.fromisoformat(text).isoformat()}'"
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no {kind} in ISO 8601"
        raise NotCompiledError(message) from error
    utc = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    return f"TIMESTAMP '{utc.replace(tzinfo=None).isoformat(' ', 'microseconds')}Z'"


def _like(limit: Any, observed: Any) -> Any:
    """A limit, as JSON has it, as a value of the type of what was observed."""
    if isinstance(limit, str) and isinstance(observed, datetime):
        instant = datetime.fromisoformat(limit)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
    if isinstance(limit, str) and isinstance(observed, date):
        return date.fromisoformat(limit)
    return limit


def _shown(value: Any) -> Any:
    """A value as results show it: instants in UTC, without offset."""
    return str(value.replace(tzinfo=None)) if isinstance(value, datetime) else value


def _limits(expectation: Expectation, value: str, kind: Type) -> str:
    """The SQL condition of ``min_value`` and ``max_value``; at least one of them is set."""
    arguments = expectation.values
    conditions = []
    for name, strict, operator in (("min_value", "strict_min", ">"), ("max_value", "strict_max", "<")):
        if arguments.get(name) is not None:
            conditions.append(
                f"{value} {operator}{'' if arguments.get(strict) else '='} {_value(arguments[name], kind)}"
            )
    if not conditions:
        message = "neither min_value nor max_value is set"
        raise NotCompiledError(message)
    return " AND ".join(conditions)


def _ordered(expectation: Expectation) -> None:
    low, high = (expectation.values.get(name) for name in ("min_value", "max_value"))
    if low is not None and high is not None and (isinstance(low, str) != isinstance(high, str) or low > high):
        message = f"min_value {low!r} is above max_value {high!r}"
        raise NotCompiledError(message)


# ---- conditions of a column: (expectation, type of the column) -> SQL of the rows that meet the expectation


Condition = Callable[[Expectation, str, Type], str]


def _between(expectation: Expectation, value: str, kind: Type) -> str:
    _ordered(expectation)
    return _limits(expectation, value, kind)


def _in_set(expectation: Expectation, value: str, kind: Type) -> str:
    values = expectation.values.get("value_set")
    if not isinstance(values, list):
        message = f"value_set is {values!r}"
        raise NotCompiledError(message)
    if _family(kind) == "time":
        message = "a set of instants is not compiled"
        raise NotCompiledError(message)
    if kind.is_decimal and any(isinstance(one, float) for one in values):
        message = "a decimal is compared with whole numbers only"
        raise NotCompiledError(message)
    if kind.is_floating:
        values = [float(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in values]
    texts = [_value(one, kind) for one in values]
    return f"{value} IN ({_short(', '.join(texts))})" if texts else "false"


def _not_in_set(expectation: Expectation, value: str, kind: Type) -> str:
    return f"NOT ({_in_set(expectation, value, kind)})"


def _regex(expectation: Expectation, value: str, _: Type) -> str:
    return f"{value} RLIKE {_pattern(expectation.values.get('regex'))}"


def _not_regex(expectation: Expectation, value: str, kind: Type) -> str:
    return f"NOT ({_regex(expectation, value, kind)})"


def _patterns(expectation: Expectation, value: str) -> list[str]:
    patterns = expectation.values.get("regex_list")
    if not isinstance(patterns, list) or not patterns:
        message = f"regex_list is {patterns!r}"
        raise NotCompiledError(message)
    return [f"{value} RLIKE {_pattern(one)}" for one in patterns]


def _regexes(expectation: Expectation, value: str, _: Type) -> str:
    joined = {"any": " OR ", "all": " AND "}.get(expectation.values.get("match_on", "any"))
    if joined is None:
        message = "match_on is neither 'any' nor 'all'"
        raise NotCompiledError(message)
    return joined.join(f"({one})" for one in _patterns(expectation, value))


def _no_regexes(expectation: Expectation, value: str, _: Type) -> str:
    return " AND ".join(f"NOT ({one})" for one in _patterns(expectation, value))


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str):
        message = f"the pattern is {pattern!r}"
        raise NotCompiledError(message)
    return _short(spark_literal(pattern))


def _short(text: str) -> str:
    if len(text) > _LONGEST:
        message = f"it would be {len(text):,} characters of SQL"
        raise NotCompiledError(message)
    return text


_WHOLE = Type("int")


def _whole(value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value != int(value)):
        message = f"a length is {value!r}"
        raise NotCompiledError(message)


def _length(expectation: Expectation, value: str, _: Type) -> str:
    _whole(expectation.values.get("value", "missing"))
    return f"length({value}) = {_value(expectation.values['value'], _WHOLE)}"


def _lengths(expectation: Expectation, value: str, _: Type) -> str:
    for name in ("min_value", "max_value"):
        _whole(expectation.values.get(name))
    return _limits(expectation, f"length({value})", _WHOLE)


# ---- kinds


@dataclass(frozen=True, slots=True)
class _Kind:
    """How expectations of one kind are compiled, and the arguments they may have."""

    make: Callable[[Expectation, _Columns], Criterion]
    arguments: frozenset[str]
    by_row: bool


def _of_column(condition: Condition, families: Sequence[str], *arguments: str) -> _Kind:
    """A kind of expectations of the values of a column, nulls left out."""

    def make(expectation: Expectation, columns: _Columns) -> Criterion:
        column = expectation.values.get("column")
        kind, value = columns.type(column, *families), _name(str(column))
        met = condition(expectation, value, kind)
        return RowCriterion(
            expectation=expectation,
            counted=f"{value} IS NOT NULL",
            unexpected=f"{value} IS NOT NULL AND NOT coalesce({met}, true)",
            columns=(str(column),),
        )

    return _Kind(make, frozenset({"column", "mostly", *arguments}), by_row=True)


def _of_nulls(met: str) -> _Kind:
    def make(expectation: Expectation, columns: _Columns) -> Criterion:
        column = str(expectation.values.get("column"))
        columns.type(column)
        unexpected = f"{_name(column)} IS {'NULL' if met == 'NOT NULL' else 'NOT NULL'}"
        return RowCriterion(expectation=expectation, counted=None, unexpected=unexpected, columns=(column,))

    return _Kind(make, frozenset({"column", "mostly"}), by_row=True)


def _unique(expectation: Expectation, columns: _Columns) -> Criterion:
    column = str(expectation.values.get("column"))
    columns.type(column, *_SCALAR)
    repeats, value = (column,), _name(column)
    return RowCriterion(
        expectation=expectation,
        counted=f"{value} IS NOT NULL",
        unexpected=f"{value} IS NOT NULL AND {_name('_'.join([REPEATS, *repeats]))} > 1",
        columns=repeats,
        repeats=repeats,
    )


def _listed(expectation: Expectation, columns: _Columns) -> tuple[str, ...]:
    """The columns of an expectation of several."""
    names = expectation.values.get("column_list")
    if not isinstance(names, list) or len(names) < 2 or len(set(map(str, names))) < len(names):  # noqa: PLR2004 - several
        message = f"column_list is {names!r}"
        raise NotCompiledError(message)
    for name in names:
        columns.type(name, *_SCALAR)
    return tuple(names)


_IGNORED = {"all_values_are_missing": " OR ", "any_value_is_missing": " AND "}


def _of_several(
    condition: Callable[[Expectation, tuple[str, ...], _Columns], str], *arguments: str, repeats: bool = False
) -> _Kind:
    """A kind of expectations of several columns; by default, rows without any value are left out."""

    def make(expectation: Expectation, columns: _Columns) -> Criterion:
        names = _listed(expectation, columns)
        counted = _considered(
            names, expectation.values.get("ignore_row_if", "all_values_are_missing"), _IGNORED, "never"
        )
        met = condition(expectation, names, columns)
        unexpected = f"NOT coalesce({met}, true)"
        return RowCriterion(
            expectation=expectation,
            counted=counted,
            unexpected=unexpected if counted == "true" else f"({counted}) AND {unexpected}",
            columns=names,
            repeats=names if repeats else (),
        )

    allowed = frozenset({"column_list", "ignore_row_if", "mostly", *arguments})
    return _Kind(make, allowed, by_row=not repeats)


def _considered(names: Sequence[str], ignored: Any, ways: Mapping[str, str], none: str) -> str:
    """The SQL condition for rows that ``ignore_row_if`` does not leave out."""
    if ignored == none:
        return "true"
    if ignored not in ways:
        message = f"ignore_row_if is {ignored!r}"
        raise NotCompiledError(message)
    return ways[ignored].join(f"{_name(name)} IS NOT NULL" for name in names)


def _compound(_: Expectation, names: tuple[str, ...], __: _Columns) -> str:
    return f"{_name('_'.join([REPEATS, *names]))} <= 1"


def _alike(columns: _Columns, names: Sequence[str]) -> None:
    """Refuse columns of different families, which are not compared."""
    if len({_family(columns.type(name)) for name in names}) > 1:
        message = f"columns {', '.join(names)} are of types that are not compared"
        raise NotCompiledError(message)


def _distinct_within(_: Expectation, names: tuple[str, ...], columns: _Columns) -> str:
    _alike(columns, names)
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    return f"NOT ({' OR '.join(f'({_name(a)} <=> {_name(b)})' for a, b in pairs)})"


def _equal_within(_: Expectation, names: tuple[str, ...], columns: _Columns) -> str:
    _alike(columns, names)
    return " AND ".join(f"({_name(names[0])} <=> {_name(other)})" for other in names[1:])


def _sum_within(expectation: Expectation, names: tuple[str, ...], columns: _Columns) -> str:
    kinds = [columns.type(name, "number") for name in names]
    if any(kind.is_decimal for kind in kinds):
        message = "a sum of decimals is not compiled"
        raise NotCompiledError(message)
    wide = "CAST(coalesce({0}, 0) AS decimal(38,0))"
    parts = [
        (wide if kind.is_integer else "coalesce({0}, 0)").format(_name(name))
        for name, kind in zip(names, kinds, strict=True)
    ]
    return f"({' + '.join(parts)}) = {_value(expectation.values.get('sum_total'), Type('double'))}"


_PAIR_IGNORED = {"both_values_are_missing": " OR ", "either_value_is_missing": " AND "}


def _of_pair(condition: Callable[[Expectation, str, str], str], *arguments: str) -> _Kind:
    """A kind of expectations of two columns; by default, rows without both values are left out."""

    def make(expectation: Expectation, columns: _Columns) -> Criterion:
        names = tuple(str(expectation.values.get(name)) for name in ("column_A", "column_B"))
        for name in names:
            columns.type(name, "number", "text", "time", "boolean")
        _alike(columns, names)
        ignored = expectation.values.get("ignore_row_if", "both_values_are_missing")
        counted = _considered(names, ignored, _PAIR_IGNORED, "neither")
        unexpected = f"NOT coalesce({condition(expectation, _name(names[0]), _name(names[1]))}, true)"
        return RowCriterion(
            expectation=expectation,
            counted=counted,
            unexpected=unexpected if counted == "true" else f"({counted}) AND {unexpected}",
            columns=names,
        )

    return _Kind(make, frozenset({"column_A", "column_B", "ignore_row_if", "mostly", *arguments}), by_row=True)


def _equal(_: Expectation, a: str, b: str) -> str:
    return f"{a} <=> {b}"


def _greater(expectation: Expectation, a: str, b: str) -> str:
    return f"({a} >= {b}) OR ({a} <=> {b})" if expectation.values.get("or_equal") else f"{a} > {b}"


def _row_count(expectation: Expectation, _: _Columns) -> Criterion:
    return NumberCriterion(
        expectation=expectation, measures={ROWS: Measure("rows", "true")}, observed=lambda values: values[ROWS]
    )


def _number(function: Function, families: Sequence[str]) -> _Kind:
    """A kind of expectations of one aggregate of a column."""

    def make(expectation: Expectation, columns: _Columns) -> Criterion:
        column = str(expectation.values.get("column"))
        kind = columns.type(column, *families)
        if function == "sum" and kind.is_decimal and kind.precision > _SUMMED_EXACTLY:
            message = f"a sum of {kind} may overflow"
            raise NotCompiledError(message)
        if function == "mean" and kind.is_decimal and kind.precision > _SUMMED_EXACTLY:
            message = f"a mean of {kind} may overflow"
            raise NotCompiledError(message)
        _comparable(expectation, Type("bigint") if function == "count_distinct" else kind)
        value = _name(column)
        if (function == "sum" and not kind.is_decimal) or function == "stddev":
            value = f"CAST({value} AS double)"
        measures = {str(function): Measure(function, value)}
        return NumberCriterion(expectation=expectation, measures=measures, observed=lambda values: values[function])

    return _Kind(make, frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"}), by_row=False)


def _comparable(expectation: Expectation, kind: Type) -> None:
    for name in ("min_value", "max_value"):
        limit = expectation.values.get(name)
        if limit is not None:
            _value(limit, kind)


def _share(expectation: Expectation, columns: _Columns, part: Measure, whole: str) -> Criterion:
    def observed(values: Mapping[str, Any]) -> float:
        return values["part"] / values["whole"] if values["whole"] else 0

    _comparable(expectation, Type("double"))
    del columns
    return NumberCriterion(
        expectation=expectation, measures={"part": part, "whole": Measure("rows", whole)}, observed=observed
    )


def _filled(expectation: Expectation, columns: _Columns) -> Criterion:
    column = str(expectation.values.get("column"))
    columns.type(column)
    return _share(expectation, columns, Measure("rows", f"{_name(column)} IS NOT NULL"), "true")


def _differing(expectation: Expectation, columns: _Columns) -> Criterion:
    column = str(expectation.values.get("column"))
    columns.type(column, *_SCALAR)
    return _share(expectation, columns, Measure("count_distinct", _name(column)), f"{_name(column)} IS NOT NULL")


_SCALAR = ("number", "text", "time", "boolean")
_LIMITS = ("min_value", "max_value", "strict_min", "strict_max")
_OF_ONE = frozenset({"column", *_LIMITS})

KINDS: Mapping[str, _Kind] = {
    "column_values_to_not_be_null": _of_nulls("NOT NULL"),
    "column_values_to_be_null": _of_nulls("NULL"),
    "column_values_to_be_between": _of_column(_between, ("number", "time"), *_LIMITS),
    "column_values_to_be_in_set": _of_column(_in_set, _SCALAR, "value_set"),
    "column_values_to_not_be_in_set": _of_column(_not_in_set, _SCALAR, "value_set"),
    "column_values_to_match_regex": _of_column(_regex, ("text",), "regex"),
    "column_values_to_not_match_regex": _of_column(_not_regex, ("text",), "regex"),
    "column_values_to_match_regex_list": _of_column(_regexes, ("text",), "regex_list", "match_on"),
    "column_values_to_not_match_regex_list": _of_column(_no_regexes, ("text",), "regex_list"),
    "column_value_lengths_to_equal": _of_column(_length, ("text",), "value"),
    "column_value_lengths_to_be_between": _of_column(_lengths, ("text",), *_LIMITS),
    "column_pair_values_to_be_equal": _of_pair(_equal),
    "column_pair_values_a_to_be_greater_than_b": _of_pair(_greater, "or_equal"),
    "multicolumn_sum_to_equal": _of_several(_sum_within, "sum_total"),
    "multicolumn_values_to_be_equal": _of_several(_equal_within),
    "select_column_values_to_be_unique_within_record": _of_several(_distinct_within),
    "column_values_to_be_unique": _Kind(_unique, frozenset({"column", "mostly"}), by_row=False),
    "compound_columns_to_be_unique": _of_several(_compound, repeats=True),
    "table_row_count_to_be_between": _Kind(_row_count, frozenset(_LIMITS), by_row=False),
    "table_row_count_to_equal": _Kind(_row_count, frozenset({"value"}), by_row=False),
    "column_min_to_be_between": _number("min", ("number", "time")),
    "column_max_to_be_between": _number("max", ("number", "time")),
    "column_sum_to_be_between": _number("sum", ("number",)),
    "column_mean_to_be_between": _number("mean", ("number",)),
    "column_stdev_to_be_between": _number("stddev", ("number",)),
    "column_unique_value_count_to_be_between": _number("count_distinct", _SCALAR),
    "column_proportion_of_non_null_values_to_be_between": _Kind(_filled, _OF_ONE, by_row=False),
    "column_proportion_of_unique_values_to_be_between": _Kind(_differing, _OF_ONE, by_row=False),
}
"""Kind of expectation -> how it is compiled."""

BY_ROW = tuple(name for name, kind in KINDS.items() if kind.by_row)
"""The kinds that look at each row alone."""
