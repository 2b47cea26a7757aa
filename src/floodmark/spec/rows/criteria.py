"""The kinds of expectations that are compiled: expectation -> criterion. Great Expectations' answers, without it.

Source: Great Expectations 1.24, its metrics for Spark: which rows count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.core.errors import DefinitionError
from floodmark.core.types import Type
from floodmark.spec.expressions import check
from floodmark.spec.rows.conditions import (
    Columns,
    Condition,
    NotCompiledError,
    between,
    family_of,
    in_set,
    length,
    lengths,
    literal_of,
    no_regexes,
    not_in_set,
    not_regex,
    quoted,
    regex,
    regexes,
)
from floodmark.spec.rows.criterion import (
    REPEATS,
    ROWS,
    Criterion,
    Function,
    Measure,
    NumberCriterion,
    RowCriterion,
    with_counts,
)
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import Schema

_SUMMED_EXACTLY = 28
"""Digits of decimals whose sum fits 38 digits, however many rows there are."""


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
    criterion = kind.make(expectation, Columns(schema))
    whole = with_counts(schema, [criterion])
    try:
        for measure in criterion.measures.values():
            check(measure.value, whole, f"expectation '{expectation.name}'")
    except DefinitionError as error:
        message = f"its SQL is refused: {error.expected}, got {error.got}"
        raise NotCompiledError(message) from error
    return criterion


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


def check_landed(expectation: Expectation, schema: Schema, where: str) -> None:
    """Refuse an expectation with ``on_fail`` that a landing cannot judge before it commits: one of rows together.

    Args:
        expectation: of a contract, with or without ``on_fail``.
        schema: of the rows.
        where: for the message.

    Raises:
        DefinitionError: DEFINITION-291 and 292 as ``check_on_fail``; DEFINITION-293, it is not of each row alone.
    """
    if expectation.on_fail is None:
        return
    expectation.check(schema, where)
    check_on_fail(expectation, schema, where)
    if expectation.kind not in BY_ROW:
        fix = f"Leave on_fail out, so that the check of each landing judges it; or use one of {', '.join(sorted(BY_ROW))}."
        expected = f'an expectation of each row alone, for on_fail="{expectation.on_fail}" at landing'
        raise DefinitionError(where, expected, expectation.describe(), fix, code="DEFINITION-293")


def judged_landing(expectations: Iterable[Expectation], schema: Schema) -> tuple[RowCriterion, ...]:
    """The criteria with which the rows of a landing are judged before they are committed."""
    criteria = (compiled(one, schema) for one in expectations if one.on_fail is not None)
    return tuple(one for one in criteria if isinstance(one, RowCriterion))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How expectations of one kind are compiled, and the arguments they may have."""

    make: Callable[[Expectation, Columns], Criterion]
    arguments: frozenset[str]
    by_row: bool


def _of_column(condition: Condition, families: Sequence[str], *arguments: str) -> _Kind:
    """A kind of expectations of the values of a column, nulls left out."""

    def make(expectation: Expectation, columns: Columns) -> Criterion:
        column = expectation.values.get("column")
        kind, value = columns.type(column, *families), quoted(str(column))
        met = condition(expectation, value, kind)
        return RowCriterion(
            expectation=expectation,
            counted=f"{value} IS NOT NULL",
            unexpected=f"{value} IS NOT NULL AND NOT coalesce({met}, true)",
            columns=(str(column),),
        )

    return _Kind(make, frozenset({"column", "mostly", *arguments}), by_row=True)


def _of_nulls(met: str) -> _Kind:
    def make(expectation: Expectation, columns: Columns) -> Criterion:
        column = str(expectation.values.get("column"))
        columns.type(column)
        unexpected = f"{quoted(column)} IS {'NULL' if met == 'NOT NULL' else 'NOT NULL'}"
        return RowCriterion(expectation=expectation, counted=None, unexpected=unexpected, columns=(column,))

    return _Kind(make, frozenset({"column", "mostly"}), by_row=True)


def _unique(expectation: Expectation, columns: Columns) -> Criterion:
    column = str(expectation.values.get("column"))
    columns.type(column, *_SCALAR)
    repeats, value = (column,), quoted(column)
    return RowCriterion(
        expectation=expectation,
        counted=f"{value} IS NOT NULL",
        unexpected=f"{value} IS NOT NULL AND {quoted('_'.join([REPEATS, *repeats]))} > 1",
        columns=repeats,
        repeats=repeats,
    )


def _listed(expectation: Expectation, columns: Columns) -> tuple[str, ...]:
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
    condition: Callable[[Expectation, tuple[str, ...], Columns], str], *arguments: str, repeats: bool = False
) -> _Kind:
    """A kind of expectations of several columns; by default, rows without any value are left out."""

    def make(expectation: Expectation, columns: Columns) -> Criterion:
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
    return ways[ignored].join(f"{quoted(name)} IS NOT NULL" for name in names)


def _compound(_: Expectation, names: tuple[str, ...], __: Columns) -> str:
    return f"{quoted('_'.join([REPEATS, *names]))} <= 1"


def _alike(columns: Columns, names: Sequence[str]) -> None:
    """Refuse columns of different families, which are not compared."""
    if len({family_of(columns.type(name)) for name in names}) > 1:
        message = f"columns {', '.join(names)} are of types that are not compared"
        raise NotCompiledError(message)


def _distinct_within(_: Expectation, names: tuple[str, ...], columns: Columns) -> str:
    _alike(columns, names)
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    return f"NOT ({' OR '.join(f'({quoted(a)} <=> {quoted(b)})' for a, b in pairs)})"


def _equal_within(_: Expectation, names: tuple[str, ...], columns: Columns) -> str:
    _alike(columns, names)
    return " AND ".join(f"({quoted(names[0])} <=> {quoted(other)})" for other in names[1:])


def _sum_within(expectation: Expectation, names: tuple[str, ...], columns: Columns) -> str:
    kinds = [columns.type(name, "number") for name in names]
    if any(kind.is_decimal for kind in kinds):
        message = "a sum of decimals is not compiled"
        raise NotCompiledError(message)
    wide = "CAST(coalesce({0}, 0) AS decimal(38,0))"
    parts = [
        (wide if kind.is_integer else "coalesce({0}, 0)").format(quoted(name))
        for name, kind in zip(names, kinds, strict=True)
    ]
    return f"({' + '.join(parts)}) = {literal_of(expectation.values.get('sum_total'), Type('double'))}"


_PAIR_IGNORED = {"both_values_are_missing": " OR ", "either_value_is_missing": " AND "}


def _of_pair(condition: Callable[[Expectation, str, str], str], *arguments: str) -> _Kind:
    """A kind of expectations of two columns; by default, rows without both values are left out."""

    def make(expectation: Expectation, columns: Columns) -> Criterion:
        names = tuple(str(expectation.values.get(name)) for name in ("column_A", "column_B"))
        for name in names:
            columns.type(name, "number", "text", "time", "boolean")
        _alike(columns, names)
        ignored = expectation.values.get("ignore_row_if", "both_values_are_missing")
        counted = _considered(names, ignored, _PAIR_IGNORED, "neither")
        unexpected = f"NOT coalesce({condition(expectation, quoted(names[0]), quoted(names[1]))}, true)"
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


def _row_count(expectation: Expectation, _: Columns) -> Criterion:
    return NumberCriterion(
        expectation=expectation, measures={ROWS: Measure("rows", "true")}, observed=lambda values: values[ROWS]
    )


def _number(function: Function, families: Sequence[str]) -> _Kind:
    """A kind of expectations of one aggregate of a column."""

    def make(expectation: Expectation, columns: Columns) -> Criterion:
        column = str(expectation.values.get("column"))
        kind = columns.type(column, *families)
        if function == "sum" and kind.is_decimal and kind.precision > _SUMMED_EXACTLY:
            message = f"a sum of {kind} may overflow"
            raise NotCompiledError(message)
        if function == "mean" and kind.is_decimal and kind.precision > _SUMMED_EXACTLY:
            message = f"a mean of {kind} may overflow"
            raise NotCompiledError(message)
        _comparable(expectation, Type("bigint") if function == "count_distinct" else kind)
        value = quoted(column)
        if (function == "sum" and not kind.is_decimal) or function == "stddev":
            value = f"CAST({value} AS double)"
        measures = {str(function): Measure(function, value)}
        return NumberCriterion(expectation=expectation, measures=measures, observed=lambda values: values[function])

    return _Kind(make, frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"}), by_row=False)


def _comparable(expectation: Expectation, kind: Type) -> None:
    for name in ("min_value", "max_value"):
        limit = expectation.values.get(name)
        if limit is not None:
            literal_of(limit, kind)


def _share(expectation: Expectation, columns: Columns, part: Measure, whole: str) -> Criterion:
    def observed(values: Mapping[str, Any]) -> float:
        return values["part"] / values["whole"] if values["whole"] else 0

    _comparable(expectation, Type("double"))
    del columns
    return NumberCriterion(
        expectation=expectation, measures={"part": part, "whole": Measure("rows", whole)}, observed=observed
    )


def _filled(expectation: Expectation, columns: Columns) -> Criterion:
    column = str(expectation.values.get("column"))
    columns.type(column)
    return _share(expectation, columns, Measure("rows", f"{quoted(column)} IS NOT NULL"), "true")


def _differing(expectation: Expectation, columns: Columns) -> Criterion:
    column = str(expectation.values.get("column"))
    columns.type(column, *_SCALAR)
    return _share(expectation, columns, Measure("count_distinct", quoted(column)), f"{quoted(column)} IS NOT NULL")


_SCALAR = ("number", "text", "time", "boolean")
_LIMITS = ("min_value", "max_value", "strict_min", "strict_max")
_OF_ONE = frozenset({"column", *_LIMITS})

KINDS: Mapping[str, _Kind] = {
    "column_values_to_not_be_null": _of_nulls("NOT NULL"),
    "column_values_to_be_null": _of_nulls("NULL"),
    "column_values_to_be_between": _of_column(between, ("number", "time"), *_LIMITS),
    "column_values_to_be_in_set": _of_column(in_set, _SCALAR, "value_set"),
    "column_values_to_not_be_in_set": _of_column(not_in_set, _SCALAR, "value_set"),
    "column_values_to_match_regex": _of_column(regex, ("text",), "regex"),
    "column_values_to_not_match_regex": _of_column(not_regex, ("text",), "regex"),
    "column_values_to_match_regex_list": _of_column(regexes, ("text",), "regex_list", "match_on"),
    "column_values_to_not_match_regex_list": _of_column(no_regexes, ("text",), "regex_list"),
    "column_value_lengths_to_equal": _of_column(length, ("text",), "value"),
    "column_value_lengths_to_be_between": _of_column(lengths, ("text",), *_LIMITS),
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
