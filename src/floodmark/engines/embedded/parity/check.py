"""Check of expressions: refuses those that Sail computes otherwise than Spark, and renders the others as SQL for Sail."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from floodmark.core.errors import CapabilityError
from floodmark.engines.embedded.parity import arithmetic, precision
from floodmark.engines.embedded.parity.aggregates import KEY, agrees, sail_aggregate
from floodmark.engines.embedded.parity.implicit import explicit
from floodmark.engines.embedded.parity.rendering import NotRendered, rendered
from floodmark.engines.embedded.parity.signatures import whole
from floodmark.engines.embedded.parity.table import table
from floodmark.spec.expressions import Expression, check, expression
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.criteria import compiled
from floodmark.spec.rows.criterion import Criterion, with_counts
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import Schema
from floodmark.spec.windowing.aggregates import Builtin

_NOT_JUDGED = ("column_median_to_be_between", "column_quantile_values_to_be_between")
"""Kinds of expectations that need DataFrame.approxQuantile, which Sail 0.7 lacks. All other kinds were compared with Spark."""
_OWN = ("rows", "stddev")
"""Functions of measures that are no aggregates of windows: counts, and deviations, which both engines compute to 12 digits."""
_MOST = 5
"""Most refusals that one error lists."""


def sail_sql(text: str, schema: Schema, where: str = "an expression") -> str:
    """SQL with which Sail gives Spark's answer for an expression of the user.

    Args:
        text: Spark SQL.
        schema: columns of the expression.
        where: for the message.

    Raises:
        DefinitionError: as ``spec.expressions.expression``.
        CapabilityError: CAPABILITY-031, Sail would compute the expression otherwise.
    """
    made = _made(expression(text, schema, where))
    if isinstance(made, _Refusal):
        raise _refused(where, str(made), "floodmark run NAME --engine spark")
    return made.sql


def check_operator(operator: Operator) -> None:
    """Refuse an operator with an expression that Sail computes otherwise than Spark.

    Raises:
        CapabilityError: CAPABILITY-031; names each function, its arguments and the line of the expression.
    """
    reasons = list(dict.fromkeys(refusals(operator)))
    if reasons:
        remainder = f"; and {len(reasons) - _MOST} more" if len(reasons) > _MOST else ""
        got = "; ".join(reasons[:_MOST]) + remainder
        raise _refused(f"operator '{operator.name}'", got, f"floodmark run {operator.name} --engine spark")


def check_expectations(expectations: Iterable[Expectation]) -> None:
    """Refuse expectations that Sail cannot check.

    Raises:
        CapabilityError: CAPABILITY-037; names the first such expectation.
    """
    for expectation in expectations:
        if expectation.kind in _NOT_JUDGED:
            fix = (
                "Set FLOODMARK_ENGINE=spark, or expect something else of the column, such as column_mean_to_be_between."
            )
            expected = "one that the embedded engine judges"
            raise CapabilityError(
                f"expectation '{expectation.name}'", expected, expectation.kind, fix, code="CAPABILITY-037"
            )


def refusals(operator: Operator) -> Iterator[str]:
    """The reasons for refusing expressions of an operator, each with the line in the user's file."""
    inexact: dict[steps.Step, frozenset[str]] = {}
    for step in dict.fromkeys(step for _, result in operator.results for step in steps.walk(result)):
        columns = frozenset[str]().union(*(inexact[parent] for parent in step.parents))
        sources: dict[str, str] = {}
        for text in steps.expressions(step):
            made = _made(expression(text, step.parents[0].schema, f"operator '{operator.name}'"), columns)
            sources[text] = "" if isinstance(made, _Refusal) else made.inexact
            if isinstance(made, _Refusal):
                yield f"{location_of(operator.location, text)}: {made}"
        yield from (f"{operator.location}: {reason}" for reason in precision.refusals(step, columns, sources))
        inexact[step] = precision.inexact_columns(step, columns, sources)
    for name, expectations in operator.watched.items():
        schema = operator.output(name).schema
        for expectation in expectations:
            if reason := judged_otherwise(compiled(expectation, schema), schema):
                yield f"expectation '{expectation.name}': {reason}"


def judged_otherwise(criterion: Criterion, schema: Schema) -> str | None:
    """Why Sail would judge rows otherwise than Spark; None if it judges as Spark does.

    Args:
        criterion: compiled for the schema.
        schema: of the rows.
    """
    whole = with_counts(schema, [criterion])
    for key in criterion.repeats:
        if not agrees(KEY, schema[key].type):
            return f"values of {schema[key].type} are grouped otherwise"
    for measure in criterion.measures.values():
        made = _made(expression(measure.value, whole, f"expectation '{criterion.expectation.name}'"))
        if isinstance(made, _Refusal):
            return made
        if measure.function not in _OWN:
            kind = check(measure.value, whole, "an expectation")
            if sail_aggregate(Builtin(measure.function, measure.value), "v", kind, "''") is None:
                return f"{measure.function} of {kind} differs"
    return None


def location_of(location: str, text: str) -> str:
    """``file:line`` of an expression in the user's file; that of the operator if the file has no such constant.

    Args:
        location: ``file:line`` of the operator's function.
        text: of the expression.
    """
    file, _, line = location.rpartition(":")
    try:
        tree = ast.parse(Path(file).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):  # defined in a notebook, or changed since
        return location
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _begins(n) <= int(line) <= n.lineno]
    body = functions[-1] if functions else tree
    lines = [n.lineno for n in ast.walk(body) if isinstance(n, ast.Constant) and n.value == text]
    return f"{file}:{min(lines)}" if lines else location


def _begins(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


class _Refusal(str):
    """Why an expression is refused."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Sql:
    """An expression for Sail.

    Args:
        sql: for Sail.
        inexact: the call or column because of which the value equals Spark's to 12 digits only; empty if the value equals Spark's.
    """

    sql: str
    inexact: str


_FORMS = {
    r"(=|<>|!=|<=|>=|<|>|between)\(interval": "Compare the times themselves: a > b + INTERVAL '2' HOUR in place of a - b > INTERVAL '2' HOUR.",
    r"\bround\((double|float)": "FLOOR(x * 100 + 0.5) / 100 is x to two digits, a half upwards.",
    r"operations within each other|a sum of \d+ whole numbers": "Make the terms of a long sum bigint, CAST(x AS bigint), or take it apart with several with_columns(...), in SQL by a subquery: SELECT *, x + c FROM (SELECT *, a + b AS x FROM t).",
    r"\barray_contains\(": "exists(tags, x -> x = 'a') says whether an array has a value.",
    r"\bnvl2\(": "NVL2(x, a, b) is CASE WHEN x IS NOT NULL THEN a ELSE b END.",
    r"\bto_timestamp\(string": "CAST(x AS timestamp) reads a text as a time.",
}
"""Pattern of a refusal -> the form in which the engine computes it."""


@lru_cache(maxsize=4096)
def _made(read: Expression, columns: frozenset[str] = frozenset()) -> _Sql | _Refusal:
    close: set[int] = set()
    tree = explicit(read.tree)
    for node, (exact, plain) in whole(tree):
        verdict = table().verdict(exact, plain)
        if verdict == "close":
            close.add(id(node))
        if verdict in {None, "refused"}:
            other = _Refusal(f"{exact} in {read.text!r}, {_why(exact, plain, compared=verdict is not None)}")
            refusal = (
                _asked(tree, read.text, close, columns) if verdict is None else other
            )  # what Sail is never asked was not compared
            return refusal if isinstance(refusal, _Refusal) else other
    return _asked(tree, read.text, close, columns)


def _asked(tree: Typed, text: str, close: Collection[int], columns: Collection[str]) -> _Sql | _Refusal:
    """The SQL of an expression, or the reason why it cannot be rendered."""
    if (deep := arithmetic.nested(tree)) > arithmetic.DEEPEST:
        return _Refusal(f"{deep} operations within each other in {text[:80]!r}")
    try:
        source = precision.inexact(tree, close, columns)
        return _Sql(rendered(tree), source)
    except NotRendered as reason:
        return _Refusal(f"{reason} in {text!r}")


def _why(exact: str, plain: str, *, compared: bool) -> str:
    if not compared:
        return "which was not compared with Spark"
    example = table().example(exact) or table().example(plain)
    if example is None:
        return "for which Sail has an error where Spark has a value"
    return "which differs: of {} Spark says {}, Sail {}".format(*example)


def _refused(where: str, got: str, command: str) -> CapabilityError:
    fix = f"Run it on Spark: {command}. docs/parity.md lists what the embedded engine computes."
    form = next((form for pattern, form in _FORMS.items() if re.search(pattern, got)), "")
    if form:
        fix = f"{form} Or {fix[0].lower()}{fix[1:]}"
    expected = "expressions the embedded engine computes as Spark does"
    return CapabilityError(where, expected, got, fix, code="CAPABILITY-031")
