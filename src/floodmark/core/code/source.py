"""Files of Python: their definitions, found by what Python records of them at run time."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from functools import cached_property
from types import CodeType
from typing import Any

from floodmark.core.code.outline import Definition, Token, outline
from floodmark.core.code.scopes import Reference, imported


class Source:
    """A file of Python: its definitions, by what Python records of them at run time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._functions: dict[tuple[str, int], list[Definition]] = {}
        self._classes: dict[str, list[ast.ClassDef]] = {}
        self.imports: dict[str, Reference | None] = {}
        self._outlines: dict[tuple[ast.AST, bool], tuple[Token, ...]] = {}
        self._index()

    def function(self, code: CodeType) -> list[Definition]:
        """The definition a code object was compiled from; several lambdas where they cannot be told apart, none where the file says otherwise."""
        line = code.co_firstlineno
        known = self._lambdas.get(line) if code.co_name == "<lambda>" else self._functions.get((code.co_name, line))
        nodes = [node for node in known or () if _fits(node, code)]
        if len(nodes) > 1 and isinstance(nodes[0], ast.Lambda):
            return [
                node for node in nodes if isinstance(node, ast.Lambda) and _span(code) == _extent(node.body)
            ] or nodes
        return nodes[-1:]

    def of_class(self, qualname: str, lines: Iterable[int]) -> ast.ClassDef | None:
        """The definition of a class; of several of one name that with the lines of its methods."""
        nodes, lines = self._classes.get(qualname, []), list(lines)
        fitting = [n for n in nodes if all(n.lineno <= line <= (n.end_lineno or 0) for line in lines)]
        return next(reversed(fitting or nodes), None)

    def outline(self, node: ast.AST, *, annotations: bool = False) -> tuple[Token, ...]:
        """The tokens of a function, class or module.

        Args:
            node: its definition. Of a function without its name and the values of its defaults; of a class without its name, bases and methods.
            annotations: whether those of a class body count.
        """
        if (node, annotations) not in self._outlines:
            self._outlines[node, annotations] = outline(node, annotations=annotations)
        return self._outlines[node, annotations]

    @cached_property
    def _lambdas(self) -> dict[int, list[Definition]]:
        """Lambdas by line; most files are never asked for theirs."""
        lambdas: dict[int, list[Definition]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Lambda):
                lambdas.setdefault(node.lineno, []).append(node)
        return lambdas

    def _index(self) -> None:
        """Record every definition; of imports those outside of functions."""
        stack: list[tuple[ast.AST, str, bool]] = [(self.tree, "", False)]
        while stack:
            node, qualname, inside = stack.pop()
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                    self._functions.setdefault((node.name, first), []).append(node)
                    qualname, inside = f"{qualname}{node.name}.<locals>.", True
                case ast.ClassDef():
                    self._classes.setdefault(f"{qualname}{node.name}", []).append(node)
                    qualname = f"{qualname}{node.name}."
                case ast.Import() | ast.ImportFrom() if not inside:
                    for bound, reference in imported(node):
                        known = self.imports.setdefault(bound, reference)
                        self.imports[bound] = reference if known == reference else None
            for name in _BLOCKS:
                stack += [(child, qualname, inside) for child in reversed(getattr(node, name, ()))]


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of statements that hold statements."""

_SOURCES: dict[str, Source] = {}


def source_of(file: str, variables: dict[str, Any] | None = None) -> Source | None:
    """A file of Python as it is now; None where there is no such file, or no Python in it.

    Args:
        file: as a code object names it.
        variables: of its module, whose loader may know the text.
    """
    if file in {"<stdin>", "<string>"}:
        return None
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file, variables))
    known = _SOURCES.get(file)
    if known is None or known.text != text:
        if not text.strip():  # Pythons read an empty file in different ways
            return None
        try:
            known = _SOURCES[file] = Source(text)
        except (SyntaxError, ValueError):
            return None
    return known


def _fits(node: Definition, code: CodeType) -> bool:
    """Whether a code object has the parameters of a definition: the file may have been edited since."""
    arguments = node.args
    counts = (len(arguments.posonlyargs) + len(arguments.args), len(arguments.kwonlyargs))
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    compiled = zip(names, code.co_varnames, strict=False)
    return counts == (code.co_argcount, code.co_kwonlyargcount) and all(
        a == b or a.startswith("__") for a, b in compiled
    )


def _span(code: CodeType) -> tuple[int, int, int, int]:
    """Where the instructions of a lambda lie: first line and column, last line and column."""
    places = [
        (line, column, end, last)
        for line, end, column, last in code.co_positions()
        if line is not None and end is not None and column is not None and last is not None and (column, last) != (0, 0)
    ]
    if not places:
        return (0, 0, 0, 0)
    first = min((line, column) for line, column, _, _ in places)
    end = max((line, column) for _, _, line, column in places)
    return (*first, *end)


def _extent(node: ast.expr) -> tuple[int, int, int, int]:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
