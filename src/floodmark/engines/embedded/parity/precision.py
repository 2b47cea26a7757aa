"""Numbers that are Spark's to 12 digits only: which calls make them, which keep them, and the refusal of all that would show the digits behind those.

Functions such as ``exp`` come out of a mathematical library, whose last bits are Java's on Spark and Rust's on Sail. Such a number may be written to
an output, and be computed with where a small difference stays small. A remainder, a comparison, ``floor``, a text, a hash or a key makes another value of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from floodmark.engines.embedded.parity.rendering import LIBRARY, NotRendered
from floodmark.spec import steps
from floodmark.spec.aggregates import Builtin
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Lambda, Literal
from floodmark.spec.expressions.typed import Typed

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
"""Calls whose result changes as little as their arguments do, so that it is Spark's to 12 digits, too."""
_BLIND = frozenset(["isnull", "isnotnull", "isnan", "size", "cardinality", "array_size"])
"""Calls of which a number's last digits decide nothing."""
_COMPARING = frozenset({"count_distinct", "approx_count_distinct", "distinct"})
"""Aggregates that ask which values are equal."""
_ADVICE = "compute it in a Python function, whose digits are the same on both engines"


def inexact(node: Typed, close: Collection[int], columns: Collection[str] = ()) -> str:
    """The call or column by which a value is Spark's to 12 digits only; empty where it is Spark's.

    Args:
        node: an expression.
        close: ``id`` of the nodes that were compared and found alike to 12 digits.
        columns: those whose numbers are alike to 12 digits.

    Raises:
        NotRendered: a part of the expression would show the digits behind those.
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
    """A call with a lambda: ``transform`` keeps what its lambda gives; no other one may compute with such numbers."""
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
    """Why a step is refused beside its expressions: it tells rows apart by numbers that are Spark's to 12 digits only.

    Args:
        step: a step of an operator.
        columns: of its parents, whose numbers are alike to 12 digits.
        sources: the step's expression -> the call or column by which its value is alike to 12 digits; empty where it is Spark's.
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
    """The columns of a step's result whose numbers are Spark's to 12 digits only.

    A Python function computes with such numbers as they are. A column of its result is taken for the one of its input whose name it has.

    Args:
        step: a step of an operator.
        columns: as of ``refusals``.
        sources: as of ``refusals``.
    """
    match step:
        case steps.Read():
            return frozenset()
        case steps.Filter() | steps.Union():
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
