"""Files of Python: their definitions, found by what Python records of them at run time."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from types import CodeType
from typing import Any

from floodmark.core.code.outline import Definition, Token, outline
from floodmark.core.code.scopes import Reference, imported


class Source:
    """A file of Python: its definitions, by what Python records of them at run time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.functions: dict[tuple[str, int], list[Definition]] = {}
        self.classes: dict[str, list[ast.ClassDef]] = {}
        self.imports: dict[str, Reference | None] = {}
        self._outlines: dict[tuple[ast.AST, bool], tuple[Token, ...]] = {}
        self._index(self.tree, "", inside=False)

    def function(self, code: CodeType) -> list[Definition]:
        """The definition a code object was compiled from; several lambdas where they cannot be told apart, none where the file says otherwise."""
        nodes = [n for n in self.functions.get((code.co_name, code.co_firstlineno), ()) if _fits(n, code)]
        if len(nodes) > 1 and isinstance(nodes[0], ast.Lambda):
            return [
                node for node in nodes if isinstance(node, ast.Lambda) and _span(code) == _extent(node.body)
            ] or nodes
        return nodes[-1:]

    def of_class(self, qualname: str, lines: Iterable[int]) -> ast.ClassDef | None:
        """The definition of a class; of several of one name that with the lines of its methods."""
        nodes, lines = self.classes.get(qualname, []), list(lines)
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

    def _index(self, node: ast.AST, qualname: str, *, inside: bool) -> None:
        """Record every definition below a node; of imports those outside of functions."""
        stack = [(node, qualname, inside)]
        while stack:
            node, qualname, inside = stack.pop()
            name, within = qualname, inside
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                    self.functions.setdefault((node.name, first), []).append(node)
                    name, within = f"{qualname}{node.name}.<locals>.", True
                case ast.Lambda():
                    self.functions.setdefault(("<lambda>", node.lineno), []).append(node)
                    name, within = f"{qualname}<lambda>.<locals>.", True
                case ast.ClassDef():
                    self.classes.setdefault(f"{qualname}{node.name}", []).append(node)
                    name = f"{qualname}{node.name}."
                case ast.Import() | ast.ImportFrom() if not inside:
                    for bound, reference in imported(node):
                        known = self.imports.setdefault(bound, reference)
                        self.imports[bound] = reference if known == reference else None
            stack += [(child, name, within) for child in reversed(list(ast.iter_child_nodes(node)))]


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
