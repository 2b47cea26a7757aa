"""Inexact numbers, which equal Spark's to 12 digits only: the calls that produce or preserve them, and the refusal of calls that reveal more digits.

Functions such as ``exp`` come from a mathematical library, whose last bits are Java's on Spark and Rust's on Sail. Such a number may be written to
an output, and be used in calls in which a small difference stays small. A remainder, a comparison, ``floor``, a text, a hash or a key would turn the
small difference into another value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from floodmark.engines.embedded.parity.rendering import LIBRARY, NotRendered
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Lambda, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.graph import steps
from floodmark.spec.windowing.aggregates import Builtin

_PERIODIC = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
_STEADY = (LIBRARY - _PERIODIC) | frozenset(
    [
        "+",
        "-",
        "*",
        "/",
        "negative",
        "positive",
        "abs",
        "sqrt",
        "degrees",
        "radians",
        "try_add",
        "try_subtract",
        "try_multiply",
        "try_divide",
        "coalesce",
        "ifnull",
        "nvl",
        "nvl2",
        "if",
        "nanvl",
        "greatest",
        "least",
        "array",
        "struct",
        "named_struct",
        "[]",
        "get",
        "element_at",
        "try_element_at",
    ]
)
"""Calls that change their result as little as their arguments, so that the result equals Spark's to 12 digits, too."""
_BLIND = frozenset(["isnull", "isnotnull", "isnan", "size", "cardinality", "array_size"])
"""Calls whose result does not depend on a number's last digits."""
_COMPARING = frozenset({"count_distinct", "approx_count_distinct", "distinct", "sum_distinct", "mean_distinct"})
"""Aggregates that compare values."""
_ADVICE = "compute it in a Python function, whose digits are the same on both engines"


def inexact(node: Typed, close: Collection[int], columns: Collection[str] = ()) -> str:
    """The call or column because of which a value is inexact; empty if the value is exact.

    Args:
        node: an expression.
        close: ``id`` of the nodes whose comparison with Spark has found equal numbers to 12 digits only.
        columns: inexact columns.

    Raises:
        NotRendered: a part of the expression would reveal more than 12 digits.
    """
    return _inexact(node, close, columns, {})


def _inexact(node: Typed, close: Collection[int], columns: Collection[str], parameters: Mapping[str, str]) -> str:
    match node.node:
        case Literal():
            return ""
        case Column(name=name):
            return (
                parameters.get(name, "")
                if not node.column
                else f"column {node.column}"
                if node.column in columns
                else ""
            )
        case Call(name=name) if any(isinstance(child.node, Lambda) for child in node.children):
            return _of_lambda(name, node, close, columns, parameters)
    sources = [_inexact(child, close, columns, parameters) for child in node.children]
    source = next(filter(None, sources), "")
    match node.node:
        case Cast(type=kind) if source and kind not in {"double", node.children[0].type}:
            raise _shown(f"CAST AS {kind}", source)
        case Case() | Cast() | Field() | Lambda():
            return source
        case Call(name=name) if source:
            if name in _BLIND:
                return ""
            if name not in _STEADY:
                raise _shown(name, source)
            return source
        case Call(name=name):
            return name if name in LIBRARY or id(node) in close else ""


def _of_lambda(
    name: str, node: Typed, close: Collection[int], columns: Collection[str], parameters: Mapping[str, str]
) -> str:
    """``inexact`` for a call with a lambda: ``transform`` is as inexact as its lambda's result; other calls refuse inexact numbers."""
    values, lambdas = node.children[0], node.children[1:]
    source = _inexact(values, close, columns, parameters)
    elements = {part.node.parameters[0]: source for part in lambdas if isinstance(part.node, Lambda)}
    inner_parameters = {**parameters, **elements}
    made = next(filter(None, (_inexact(part, close, columns, inner_parameters) for part in lambdas)), "")
    if (source or made) and name != "transform":
        raise _shown(name, source or made)
    return made


def _shown(name: str, source: str) -> NotRendered:
    return NotRendered(_reason(f"{name} of what {source} gives"))


def _reason(what: str) -> str:
    return f"{what}, which is Spark's to 12 digits only ({_ADVICE}),"


def refusals(step: steps.Step, columns: Collection[str], sources: Mapping[str, str]) -> Iterator[str]:
    """The reasons for refusing a step whose keys, windows or aggregates distinguish rows by inexact numbers.

    Args:
        step: a step of an operator.
        columns: inexact columns of its parents.
        sources: expression of the step -> the call or column because of which its value is inexact; empty if the value is exact.
    """
    if isinstance(step, steps.STATEFUL):
        yield from (_reason(f"a key by the column {key}") for key in step.keys if key in columns)
    if isinstance(step, steps.WindowAggregate):
        deciding = dict.fromkeys(steps.bounds(step), "a window or evictor")
        for _, aggregate in step.aggregates:
            if isinstance(aggregate, Builtin):
                text = aggregate.expression if aggregate.function in _COMPARING else aggregate.by
                deciding |= {text: aggregate.function} if text is not None else {}
        for text, what in deciding.items():
            if sources[text]:
                yield _reason(f"{what} of {text!r}, of what {sources[text]} gives")


def inexact_columns(step: steps.Step, columns: Collection[str], sources: Mapping[str, str]) -> frozenset[str]:
    """The inexact columns of a step's result.

    A Python function computes with inexact numbers as they are. A column of its result counts as inexact if the input column of that name is.

    Args:
        step: a step of an operator.
        columns: as of ``refusals``.
        sources: as of ``refusals``.
    """
    match step:
        case steps.Read():
            return frozenset()
        case steps.Filter() | steps.Expect() | steps.Union():
            return frozenset(columns)
        case steps.Project():
            return frozenset(name for name, text in step.columns if sources[text])
        case steps.WindowAggregate(function=None):
            values = {
                name: a.expression or ""
                for name, a in step.aggregates
                if isinstance(a, Builtin) and a.function != "count"
            }
            return frozenset(name for name, text in values.items() if sources.get(text))
        case _:
            own = {own for port in getattr(step, "ports", ()) for own, column in port.columns if column in columns}
            names = {*columns, *own}
            return frozenset(c for c in step.schema.names if any(c == name or c.endswith(f"_{name}") for name in names))
