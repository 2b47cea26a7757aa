"""Python files, and their definitions looked up by the names and lines that Python records at run time."""

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
    """A Python file, and its definitions looked up by the names and lines that Python records at run time.

    Attributes:
        imports: name bound by an import outside functions -> what the name refers to; None if two imports disagree.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._functions: dict[tuple[str, int], list[Definition]] = {}
        self._classes: dict[str, list[ast.ClassDef]] = {}
        self.imports: dict[str, Reference | None] = {}
        self._outlines: dict[tuple[ast.AST, bool], tuple[Token, ...]] = {}
        self._index()

    def function(self, code: CodeType) -> list[Definition]:
        """The definition that a code object was compiled from: several lambdas if their positions do not distinguish them, none if the file has changed since."""
        line = code.co_firstlineno
        known = self._lambdas.get(line) if code.co_name == "<lambda>" else self._functions.get((code.co_name, line))
        nodes = [node for node in known or () if _fits(node, code)]
        if len(nodes) > 1 and isinstance(nodes[0], ast.Lambda):
            return [
                node for node in nodes if isinstance(node, ast.Lambda) and _span(code) == _extent(node.body)
            ] or nodes
        return nodes[-1:]

    def of_class(self, qualname: str, lines: Iterable[int]) -> ast.ClassDef | None:
        """The definition of a class; None if the file has none. Of several with one name, the last that contains the lines of the class's methods."""
        nodes, lines = self._classes.get(qualname, []), list(lines)
        fitting = [n for n in nodes if all(n.lineno <= line <= (n.end_lineno or 0) for line in lines)]
        return next(reversed(fitting or nodes), None)

    def outline(self, node: ast.AST, *, annotations: bool = False) -> tuple[Token, ...]:
        """The tokens of a function, class or module.

        Args:
            node: the definition. The name and default values of a function are left out; so are the name, bases and methods of a class.
            annotations: whether annotations in the body of a class count.
        """
        if (node, annotations) not in self._outlines:
            self._outlines[node, annotations] = outline(node, annotations=annotations)
        return self._outlines[node, annotations]

    @cached_property
    def _lambdas(self) -> dict[int, list[Definition]]:
        """Line -> its lambdas. Computed on first use, as most files need none."""
        lambdas: dict[int, list[Definition]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Lambda):
                lambdas.setdefault(node.lineno, []).append(node)
        return lambdas

    def _index(self) -> None:
        """Record every definition, and every import outside functions."""
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
    """The current content of a Python file; None if the file does not exist, is empty or is not valid Python.

    Args:
        file: the name in a code object.
        variables: of the file's module, whose loader may supply the text.
    """
    if file in {"<stdin>", "<string>"}:
        return None
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file, variables))
    known = _SOURCES.get(file)
    if known is None or known.text != text:
        if not text.strip():  # Python versions read an empty file in different ways
            return None
        try:
            known = _SOURCES[file] = Source(text)
        except (SyntaxError, ValueError):
            return None
    return known


def _fits(node: Definition, code: CodeType) -> bool:
    """True if a code object has the parameters of a definition. False if the file was edited after the code was compiled."""
    arguments = node.args
    counts = (len(arguments.posonlyargs) + len(arguments.args), len(arguments.kwonlyargs))
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    compiled = zip(names, code.co_varnames, strict=False)
    return counts == (code.co_argcount, code.co_kwonlyargcount) and all(
        a == b or a.startswith("__") for a, b in compiled
    )


def _span(code: CodeType) -> tuple[int, int, int, int]:
    """(first line, first column, last line, last column) of the instructions of a lambda."""
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
