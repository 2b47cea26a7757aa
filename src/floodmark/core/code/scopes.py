"""Scopes: distinguishes the variables that a definition binds from the names that it takes from outside."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

_NAMES_COUNT = frozenset({"locals", "vars", "eval", "exec", "dir"})
"""Builtins that read variables by name: in a scope that uses one of them, the names of variables count."""

ScopeKind = Literal["function", "comprehension", "class", "module"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A use of a name outside a definition, ``name.a.b``, or of a module that the definition imports itself.

    Args:
        name: the variable; empty for an import.
        attributes: attributes read from the variable or module, in order.
        module: the module that the definition imports.
        level: dots before the module's name.
    """

    name: str
    attributes: tuple[str, ...] = ()
    module: str = ""
    level: int = 0

    def __str__(self) -> str:
        return ".".join(("." * self.level + self.module or self.name, *self.attributes))


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Reference]]:
    """(variable, reference) for each name that an import binds."""
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, Reference("", (alias.name,), node.module or "", node.level)
        return
    for alias in node.names:
        if alias.asname:
            yield alias.asname, Reference("", (), alias.name)
        else:
            yield alias.name.split(".")[0], Reference("", (), alias.name.split(".")[0])


@dataclass(slots=True)
class Scope:
    """The variables of a function, comprehension or class."""

    kind: ScopeKind
    parent: Scope | None
    number: int
    bound: set[str] = field(default_factory=set)
    imports: dict[str, Reference] = field(default_factory=dict)
    module: set[str] = field(default_factory=set)
    """Names declared ``global``."""
    outer: set[str] = field(default_factory=set)
    """Names declared ``nonlocal``."""
    plain: bool = False
    """True if the names of variables count, because the code reads variables by name."""
    names: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """The token of a variable of this scope: its number in order of appearance, or its name where names count."""
        if self.kind == "class" or self.plain:
            return f"={name}"
        return self.names.setdefault(name, f"%{self.number}.{len(self.names)}")


_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
_BINDING = frozenset(
    {ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef}
    | {ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Import, ast.ImportFrom}
    | {ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.Global, ast.Nonlocal}
)
"""Nodes that bind variables or begin a scope of their own. ``bind`` descends into all other nodes."""


def bind(scope: Scope, nodes: Iterable[ast.AST]) -> None:  # noqa: C901, PLR0912 - a case per kind of node
    """Add to ``scope`` the variables that statements bind, without the variables of inner scopes."""
    seen: dict[str, int] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if type(node) not in _BINDING:
            if not isinstance(node, _LEAVES):
                stack += ast.iter_child_nodes(node)
            continue
        names: list[str] = []
        below: Iterable[ast.AST | None] = ast.iter_child_nodes(node)
        match node:
            case ast.Name():
                names = [node.id] if not isinstance(node.ctx, ast.Load) else []
                scope.plain |= node.id in _NAMES_COUNT
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names, below = [node.name], [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
                scope.plain |= _reads_names(node)
            case ast.Lambda():
                below = [*node.args.defaults, *node.args.kw_defaults]
                scope.plain |= _reads_names(node)
            case ast.ClassDef():
                names, below = [node.name], [*node.decorator_list, *node.bases, *node.keywords]
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                below = [c for g in node.generators for c in (g.iter, *g.ifs)]
                below += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            case ast.Import() | ast.ImportFrom():
                for name, reference in imported(node):
                    names.append(name)
                    scope.imports[name] = reference
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
                names = [node.name] if node.name else []
            case ast.MatchMapping():
                names = [node.rest] if node.rest else []
            case ast.Global():
                scope.module |= set(node.names)
            case ast.Nonlocal():
                scope.outer |= set(node.names)
        for name in names:
            seen[name] = seen.get(name, 0) + 1
        stack += [one for one in below if one is not None]
    scope.bound |= seen.keys() - scope.outer - scope.module
    for name in [n for n in scope.imports if seen[n] > 1 or n not in scope.bound]:
        del scope.imports[name]


def _reads_names(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Name) and n.id in _NAMES_COUNT for n in ast.walk(node))
