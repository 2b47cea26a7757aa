"""The names that a test uses by itself and through the helpers, classes and fixtures of the tests; read from the files, nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

FIXTURES = frozenset({"usefixtures", "getfixturevalue"})
"""Calls whose texts are names of fixtures."""
CHOSEN = frozenset({"engine", "engine_name"})
"""Fixtures that start what a mark of the test chooses: what else they could start is not used."""
PRODUCT = "floodmark."
"""What is imported from there has its module beside its name."""


def reached(root: Path, file: Path, nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Names, attributes (also as ``module.attribute``) and parameters in some nodes of a file, and in all they lead to below ``tests``.

    A program of the tests that is run by its file (``module.__file__``) is reached as a whole.
    """
    words: set[str] = set()
    waiting: list[tuple[Path, ast.AST]] = [(file, node) for node in nodes]
    seen = set[int]()
    while waiting:
        here, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for name, leads in _names(node):
            words.add(name)
            words.update(
                f"{module}.{own}"
                for module, own in _imported(here).get(name, ())
                if leads and module.startswith(PRODUCT)
            )
            if leads and name not in CHOSEN and (found := _definition(root, here, name)) is not None:
                waiting.append(found)
            if name.endswith(".__file__"):
                waiting += [(there, parsed(there)) for there in _files(root, here, name.split(".")[0])]
    return frozenset(words)


def assigned(scope: ast.Module | ast.ClassDef) -> dict[str, ast.expr]:
    """Name -> value of the assignments of a module or class."""
    found: dict[str, ast.expr] = {}
    for node in scope.body:
        if isinstance(node, ast.Assign):
            found |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
    return found


@cache
def _names(node: ast.AST) -> tuple[tuple[str, bool], ...]:
    """(name, whether a definition may stand behind it)."""
    return tuple(dict.fromkeys(_named(node)))


def _named(node: ast.AST) -> Iterator[tuple[str, bool]]:
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.arg(arg=name):
                yield name, True
            case ast.Attribute(value=value, attr=name):
                yield name, False
                if isinstance(value, ast.Name):
                    yield f"{value.id}.{name}", False
            case ast.Call(func=ast.Attribute(attr=called), args=arguments) if called in FIXTURES:
                yield from ((str(given.value), True) for given in arguments if isinstance(given, ast.Constant))


@cache
def _definition(root: Path, file: Path, name: str) -> tuple[Path, ast.AST] | None:
    """Where a name that is used in a file is defined: there, where it is imported from, or as a fixture for the folder."""
    if (found := _defined(file).get(name)) is not None:
        return file, found
    for module, own in _imported(file).get(name, ()):
        for there in _files(root, file, module):
            if (found := _defined(there).get(own)) is not None:
                return there, found
    for there in (file.parent / "conftest.py", root / "tests" / "conftest.py"):
        if there.is_file() and (found := _defined(there).get(name)) is not None:
            return there, found
    return None


def _files(root: Path, file: Path, module: str) -> list[Path]:
    """Where a module of the tests may be that a file imports by its name."""
    folders = (file.parent, root / "tests" / "support", root / "tests" / "crash")
    return [there for folder in folders if (there := folder / f"{module}.py").is_file()]


@cache
def parsed(file: Path) -> ast.Module:
    """The tree of a file."""
    return ast.parse(file.read_text("utf-8"))


@cache
def _defined(file: Path) -> dict[str, ast.AST]:
    tree = parsed(file)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {**assigned(tree), **{node.name: node for node in tree.body if isinstance(node, kinds)}}


@cache
def _imported(file: Path) -> dict[str, list[tuple[str, str]]]:
    """Name -> (module, its name there)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, []).append((node.module, alias.name))
    return found
