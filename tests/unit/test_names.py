"""A local is named after its content: words that say nothing are left to comprehensions, whose source stands beside them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "floodmark"
WORDS = {"found", "one", "given", "said", "told", "kept", "rest", "more", "place"}
WRITTEN = {"core/code/text.py: place", "lifecycle/replay.py: found"}
"""Fields of documents that people read, where they have that name."""
_SHORT = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def names(node: ast.AST, *, short: bool = False) -> Iterator[tuple[int, str]]:
    """Line and name of each local, argument, field, function and class below a node, but for those of comprehensions and lambdas."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child.lineno, child.name.strip("_")
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and not short:
            yield child.lineno, child.id
        elif isinstance(child, ast.arg) and not short:
            yield child.lineno, child.arg
        yield from names(child, short=short or isinstance(child, _SHORT))


def test_the_names_of_a_function_are_found_and_those_of_a_comprehension_are_not() -> None:
    text = "def _told(given):\n    found = [one for one in given]\n    return sorted(found, key=lambda place: -place)\n"
    assert list(names(ast.parse(text))) == [(1, "told"), (1, "given"), (2, "found")]


@pytest.mark.parametrize("package", sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")))
def test_a_name_says_what_it_names(package: str) -> None:
    paths = sorted((SOURCE / package).rglob("*.py"))
    assert paths
    empty = [
        f"{path}:{line}: {name}"
        for path in paths
        for line, name in names(ast.parse(path.read_text("utf-8")))
        if name in WORDS and f"{path.relative_to(SOURCE).as_posix()}: {name}" not in WRITTEN
    ]
    assert not empty, "name these after their content"


def test_a_program_of_bench_never_shares_a_name_with_a_helper_of_tests_or_of_an_example() -> None:
    """They are imported by their bare names in one process, and the first one would be taken for the other."""
    tests = Path(__file__).resolve().parents[1]
    others = [*(tests / "support").glob("*.py"), *(tests.parent / "examples").glob("*/*.py")]
    assert not {path.name for path in (tests.parent / "bench").glob("*.py")} & {path.name for path in others}
