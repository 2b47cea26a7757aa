"""The outline of a definition: tokens that are the same for code that differs in formatting, comments, docstrings and names of locals only.

The tokens come from Python's syntax tree and are the same in Python 3.11, 3.12 and 3.13. A name that the definition takes from outside becomes a
``Reference`` token, which ``reach`` resolves to a value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from floodmark.core.code.scopes import Reference, Scope, ScopeKind, bind, imported

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPPED = frozenset({"ctx", "kind", "type_comment", "type_ignores", "type_params", "simple"})
_NO_READERS = frozenset(
    {
        "wraps",
        "lru_cache",
        "cache",
        "cached_property",
        "property",
        "staticmethod",
        "classmethod",
        "setter",
        "getter",
        "deleter",
    }
    | {"contextmanager", "asynccontextmanager", "abstractmethod", "overload", "override", "final"}
)
"""Decorators that do not read annotations."""


@dataclass(frozen=True, slots=True)
class Computed:
    """An import of a module whose name is computed.

    Args:
        prefix: package that the name certainly begins with; empty if unknown.
    """

    prefix: str


Token = str | Reference | Computed


_SPECIAL = frozenset(
    {ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.JoinedStr, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda}
    | {ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Import, ast.ImportFrom}
    | {ast.AnnAssign, ast.Expr, ast.Pass, ast.Global, ast.Nonlocal}
)
"""Nodes with a case of their own in ``_node``. All other nodes are written field by field."""


def outline(node: ast.AST, *, annotations: bool = False) -> tuple[Token, ...]:
    """The tokens of a function, class or module. Adjacent text tokens are joined to one, a line each.

    Args:
        node: the definition. The name and default values of a function are left out; so are the name, bases and methods of a class.
        annotations: whether annotations in the body of a class count.
    """
    tokens: list[Token] = []
    for is_text, group in groupby(_Outline(annotations=annotations).of(node), key=lambda token: isinstance(token, str)):
        run = list(group)
        tokens += ["\n".join(map(str, run))] if is_text else run
    return tuple(tokens)


def constant(value: object) -> str:
    """A constant as text, with its type."""
    match value:
        case str():
            return f"s{value!a}"
        case bytes():
            return f"b{value.hex()}"
        case int() if not isinstance(value, bool):
            return f"i{value:x}"
        case _:
            return repr(value)


class _Outline:
    """Writes the tokens of one definition.

    Args:
        annotations: whether annotations in the body of a class count.
    """

    def __init__(self, *, annotations: bool) -> None:
        self.annotations, self.tokens, self.count = annotations, list[Token](), 0

    def of(self, node: ast.AST) -> list[Token]:
        match node:
            case ast.Module():
                self._body(node.body, self._scope("module", None))
            case ast.ClassDef():
                self._decorators(node, None)
                self._all(node.keywords, None)
                scope = self._scope("class", None)
                bind(scope, node.body)
                self._body([part for part in node.body if not isinstance(part, _FUNCTIONS)], scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._function(node, None, root=True)
            case _:
                self._node(node, None)
        return self.tokens

    def _scope(self, kind: ScopeKind, parent: Scope | None) -> Scope:
        self.count += 1
        return Scope(kind, parent, self.count)

    # names

    def _variable(self, name: str, scope: Scope | None) -> Token:
        """The token of a name: a variable of the definition, or a ``Reference`` to a name outside."""
        at, here = scope, True
        while at is not None:
            if name in at.module:
                return Reference(name)
            if name in at.bound and (here or at.kind != "class"):
                return at.imports.get(name) or at.text(name)
            here, at = False, at.parent
        return Reference(name)

    def _chain(self, node: ast.expr, scope: Scope | None) -> Reference | None:
        """The reference that ``a.b.c`` or ``getattr(a, "b")`` makes if ``a`` is no variable of the definition; else None."""
        match node:
            case ast.Name():
                token = self._variable(node.id, scope)
                return token if isinstance(token, Reference) else None
            case ast.Attribute():
                base = self._chain(node.value, scope)
                attribute = node.attr
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(attribute))], keywords=[]) if (
                self._variable("getattr", scope) == Reference("getattr")
            ):
                base = self._chain(node.args[0], scope)
            case _:
                return None
        if base is None:
            return None
        return Reference(base.name, (*base.attributes, attribute), base.module, base.level)

    # nodes

    def _node(self, node: ast.AST, scope: Scope | None) -> None:  # noqa: C901, PLR0912 - a case per kind of node
        if type(node) not in _SPECIAL:
            self._generic(node, scope)
            return
        match node:
            case ast.Constant():
                self.tokens.append(constant(node.value))
            case ast.Name() | ast.Attribute() | ast.Call() if (chain := self._chain(node, scope)) is not None:
                self.tokens.append(chain)
            case ast.Name():
                self.tokens.append(self._variable(node.id, scope))
            case ast.Call() if self._imports(node, scope):
                pass
            case ast.JoinedStr():
                self._joined(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.tokens.append(self._variable(node.name, scope))
                self._function(node, scope)
            case ast.Lambda():
                self._function(node, scope)
            case ast.ClassDef():
                self._class(node, scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.AnnAssign():
                self._annotated(node, scope)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Global() | ast.Nonlocal():
                pass
            case _:
                self._generic(node, scope)

    def _generic(self, node: ast.AST, scope: Scope | None) -> None:
        self.tokens.append(f"({type(node).__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if name in _SKIPPED or value is None or value == []:
                continue
            self.tokens.append(f".{name}")
            if isinstance(value, ast.AST):
                self._node(value, scope)
            elif isinstance(value, list):
                self._body(value, scope) if name in {"body", "orelse", "finalbody"} else self._all(value, scope)
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)):
                self.tokens.append(self._variable(value, scope))
            else:
                self.tokens.append(constant(value))
        self.tokens.append(")")

    def _all(self, values: Iterable[Any], scope: Scope | None) -> None:
        self.tokens.append("[")
        for value in values:
            if isinstance(value, ast.AST):
                self._node(value, scope)
            else:
                self.tokens.append("-" if value is None else constant(value))
        self.tokens.append("]")

    def _body(self, body: Iterable[Any], scope: Scope | None) -> None:
        self.tokens.append("[")
        for statement in body:
            self._node(statement, scope)
        self.tokens.append("]")

    def _joined(self, node: ast.JoinedStr, scope: Scope | None) -> None:
        """Write an f-string. Adjacent constants are joined, as Python versions divide the text of an f-string in different ways."""
        self.tokens.append("(JoinedStr")
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
                continue
            self.tokens += [constant(text)] if text else []
            text = ""
            self._node(part, scope)
        self.tokens += [constant(text)] if text else []
        self.tokens.append(")")

    def _function(self, node: Definition, scope: Scope | None, *, root: bool = False) -> None:
        """Write a function. Default expressions of the root are left out: the values of its defaults count instead."""
        self.tokens.append(f"({type(node).__name__}")
        if not isinstance(node, ast.Lambda):
            self._decorators(node, scope)
            if any(_last(d) not in _NO_READERS for d in node.decorator_list):
                self._hints(node, scope)
        inner = self._scope("function", scope)
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        inner.bound |= {a.arg for a in (*parameters, arguments.vararg, arguments.kwarg) if a is not None}
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        bind(inner, body)
        for sign, group in (("/", arguments.posonlyargs), ("", arguments.args), ("*", arguments.kwonlyargs)):
            for argument in group:
                self.tokens.append(f"{sign}{'' if sign == '/' else argument.arg}:{inner.text(argument.arg)}")
        for sign, star in (("*", arguments.vararg), ("**", arguments.kwarg)):
            if star is not None:
                self.tokens.append(f"{sign}:{inner.text(star.arg)}")
        if not root:
            self._all(arguments.defaults, scope)
            self._all(arguments.kw_defaults, scope)
        self._body(body, inner)
        self.tokens.append(")")

    def _hints(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope | None) -> None:
        arguments = node.args
        stars = (arguments.vararg, arguments.kwarg)
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars):
            if argument is not None and argument.annotation is not None:
                self.tokens.append(f":{argument.arg}")
                self._node(argument.annotation, scope)
        if node.returns is not None:
            self.tokens.append("->")
            self._node(node.returns, scope)

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: Scope | None) -> None:
        for decorator in node.decorator_list:
            self.tokens.append("@")
            self._node(decorator, scope)

    def _class(self, node: ast.ClassDef, scope: Scope | None) -> None:
        self.tokens += [self._variable(node.name, scope), "(ClassDef"]
        self._decorators(node, scope)
        self._all(node.bases, scope)
        self._all(node.keywords, scope)
        inner = self._scope("class", scope)
        bind(inner, node.body)
        self._body(node.body, inner)
        self.tokens.append(")")

    def _comprehension(self, node: Any, scope: Scope | None) -> None:
        self.tokens.append(f"({type(node).__name__}")
        inner = self._scope("comprehension", scope)
        for generator in node.generators:
            bind(inner, [generator.target])
        for position, generator in enumerate(node.generators):
            self.tokens.append("async for" if generator.is_async else "for")
            self._node(generator.iter, inner if position else scope)
            self._node(generator.target, inner)
            self._all(generator.ifs, inner)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._node(part, inner)
        self.tokens.append(")")

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope | None) -> None:
        """Write an import only if other statements bind its variable too; otherwise the uses of the variable count. ``import *`` always counts."""
        for name, reference in imported(node):
            if reference.attributes == ("*",):
                self.tokens.append(Reference("", (), reference.module, reference.level))
            elif scope is not None and scope.kind != "module" and name not in scope.imports:
                self.tokens += ["import", self._variable(name, scope), reference]

    def _annotated(self, node: ast.AnnAssign, scope: Scope | None) -> None:
        """Write ``x: int = 1`` as ``x = 1``, except in the body of a class whose annotations count."""
        counts = scope is not None and scope.kind == "class" and (self.annotations or scope.parent is not None)
        if counts:
            self.tokens.append("(AnnAssign")
            self._node(node.annotation, scope)
        elif node.value is None:
            return
        else:
            self.tokens.append("(Assign")
        self.tokens.append(".targets")
        self._all([node.target], scope)
        if node.value is not None:
            self.tokens.append(".value")
            self._node(node.value, scope)
        self.tokens.append(")")

    def _imports(self, node: ast.Call, scope: Scope | None) -> bool:
        """Write ``import_module("a.b")`` as a reference to the module, with a computed name as ``Computed``. False for any other call."""
        function = self._chain(node.func, scope)
        if function is None or (function.attributes or (function.name,))[-1] not in {"import_module", "__import__"}:
            return False
        self.tokens.append(function)
        match node.args:
            case [ast.Constant(value=str(name)), *_]:
                level = len(name) - len(name.lstrip("."))
                self.tokens.append(Reference("", (), name.lstrip("."), level))
            case [ast.JoinedStr(values=[ast.Constant(value=str(prefix)), *_]), *_]:
                self.tokens.append(Computed(prefix.rpartition(".")[0]))
            case [ast.BinOp(left=ast.Constant(value=str(prefix))), *_]:
                self.tokens.append(Computed(prefix.rpartition(".")[0]))
            case _:
                self.tokens.append(Computed(""))
        self._all(node.args, scope)
        self._all(node.keywords, scope)
        return True


def _last(decorator: ast.expr) -> str:
    """The last name of a decorator: ``wraps`` of ``@functools.wraps(f)``."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
