"""The Spark type of each node of a tree (Spark 4.2, ANSI mode)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.spec.expressions.arity import described, takes
from floodmark.spec.expressions.checks import CHECKS, check_cast
from floodmark.spec.expressions.functions import BARE, fixed_type
from floodmark.spec.expressions.rules import RULES
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Lambda, Literal, Node
from floodmark.spec.expressions.typed import Mismatch, Typed, kinds, together
from floodmark.spec.expressions.widening import element, members


class UnknownColumn(Exception):  # noqa: N818 - made a DefinitionError by ``check``
    """An expression names a column that the schema lacks."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def infer(node: Node, columns: Mapping[str, str]) -> Typed:
    """Type a tree.

    Args:
        node: its root.
        columns: name -> type.

    Raises:
        UnknownColumn, Mismatch: as Spark's analyser would.
    """
    return _infer(node, {name.lower(): (name, kind) for name, kind in columns.items()}, {})


_Columns = Mapping[str, tuple[str, str]]
_Scope = Mapping[str, str]


def _infer(node: Node, columns: _Columns, scope: _Scope) -> Typed:
    match node:
        case Literal(type=kind):
            return Typed(node, kind)
        case Column(name=name):
            return _column(node, name, columns, scope)
        case Cast(value=value, type=kind):
            inner = _infer(value, columns, scope)
            check_cast(inner.type, kind)
            return Typed(node, kind, (inner,))
        case Case(branches=branches, otherwise=otherwise):
            return _case(node, branches, otherwise, columns, scope)
        case Field(value=value, name=name):
            inner = _infer(value, columns, scope)
            return Typed(node, _field(inner.type, name), (inner,))
        case Call(name=name, arguments=arguments):
            return _call(node, name, arguments, columns, scope)
        case Lambda():
            expected = "a function that takes a lambda, such as transform"
            raise Mismatch(expected, "a lambda alone")


def _column(node: Column, name: str, columns: _Columns, scope: _Scope) -> Typed:
    if name.lower() in scope:
        return Typed(node, scope[name.lower()])
    if name.lower() in columns:
        column, kind = columns[name.lower()]
        return Typed(node, kind, column=column)
    if not node.quoted and name.lower() in BARE:
        return Typed(Call(name.lower(), ()), fixed_type(name.lower()))
    raise UnknownColumn(name)


def _field(kind: str, name: str) -> str:
    if not kind:
        return ""
    if kind.startswith("map<"):
        return members(kind)[1][1]
    of = element(kind)
    if of is not None and of.startswith("struct<"):
        inner = _field(of, name)
        return f"array<{inner}>" if inner else ""
    for field, inner in members(kind):
        if field.lower() == name.lower():
            return inner
    raise Mismatch(f"a struct with a field '{name}'", f"a value of type {kind}")


def _case(
    node: Case, branches: tuple[tuple[Node, Node], ...], otherwise: Node | None, columns: _Columns, scope: _Scope
) -> Typed:
    conditions = [_infer(condition, columns, scope) for condition, _ in branches]
    values = [_infer(value, columns, scope) for _, value in branches]
    for condition in conditions:
        if condition.type not in {"boolean", "void", ""}:
            raise Mismatch("a condition after WHEN", f"a value of type {condition.type}")
    below = [part for pair in zip(conditions, values, strict=True) for part in pair]
    if otherwise is not None:
        values.append(_infer(otherwise, columns, scope))
        below.append(values[-1])
    return Typed(node, together(values, "CASE"), tuple(below))


def _call(node: Call, name: str, arguments: tuple[Node, ...], columns: _Columns, scope: _Scope) -> Typed:
    if any(isinstance(argument, Lambda) for argument in arguments):
        children = _with_lambdas(name, arguments, columns, scope)
    else:
        children = tuple(_infer(argument, columns, scope) for argument in arguments)
    if not takes(name, len(children)):
        raise Mismatch(f"{name} of {described(name)}", str(len(children)), f"Write {name} with {described(name)}.")
    check = CHECKS.get(name)
    rule = RULES.get(name)
    try:
        if check is not None:
            check(name, children)
        kind = fixed_type(name) if rule is None else rule(children)
    except IndexError:
        raise Mismatch(f"more arguments of {name}", str(len(children))) from None
    return Typed(node, kind, children)


def _with_lambdas(name: str, arguments: tuple[Node, ...], columns: _Columns, scope: _Scope) -> tuple[Typed, ...]:
    """Typed arguments of a higher-order function; a lambda's parameters have the types of the elements the lambda is applied to."""
    children: list[Typed] = []
    for argument in arguments:
        if not isinstance(argument, Lambda):
            children.append(_infer(argument, columns, scope))
            continue
        kinds = _parameters(name, children, len(argument.parameters))
        inner = {**scope, **{p.lower(): k for p, k in zip(argument.parameters, kinds, strict=True)}}
        body = _infer(argument.body, columns, inner)
        children.append(Typed(argument, body.type, (body,)))
    return tuple(children)


def _parameters(name: str, before: Sequence[Typed], count: int) -> tuple[str, ...]:
    types = kinds(before)
    of = [element(kind) or "" for kind in types]
    match name:
        case "transform" | "filter" if types:
            shapes: tuple[tuple[str, ...], ...] = ((of[0],), (of[0], "int"))
        case "exists" | "forall" if types:
            shapes = ((of[0],),)
        case "array_sort" if types:
            shapes = ((of[0], of[0]),)
        case "aggregate" | "reduce" if len(types) > 1:
            shapes = ((types[1], of[0]),) if len(types) == 2 else ((types[1],),)  # noqa: PLR2004 - array and start
        case "zip_with" if len(types) > 1:
            shapes = ((of[0], of[1]),)
        case "map_filter" | "transform_keys" | "transform_values" if types:
            inner = [kind for _, kind in members(types[0])]
            shapes = ((inner[0], inner[1]) if len(inner) == 2 else ("", ""),)  # noqa: PLR2004 - key and value
        case "map_zip_with":
            shapes = (("", "", ""),)
        case _:
            expected = "a function that takes a lambda, such as transform"
            raise Mismatch(expected, f"{name}(... -> ...)")
    for shape in shapes:
        if len(shape) == count:
            return shape
    raise Mismatch(f"a lambda of {len(shapes[0])} parameters in {name}", f"one of {count}")
