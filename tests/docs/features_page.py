"""Write docs/features.md from the list in features.toml and the marks of the tests, which are read and not imported.

python tests/docs/features_page.py > docs/features.md
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("features.toml")
MOST = 3
"""So many tests are named per behaviour."""
NOT_RUN = frozenset({"skip", "skipif", "xfail"})
HEAD = """\
# Features

What stream and batch processing on one engine should do, and whether floodmark does it. *works*: at least one test shows it, and that
test is neither skipped nor expected to fail. *alternative*: not possible this way on Spark and Delta Lake; what takes its place, or is to.
*not applicable*: nothing a program can show. *not yet*: all else.

This page is written from the tests' marks: `python tests/docs/features_page.py > docs/features.md`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A behaviour, and why it is another way where no test shows it."""

    id: str
    section: str
    behaviour: str
    otherwise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is marked on one test, or on one of its parameters.

    Args:
        test: ``tests/unit/test_x.py::test_name``.
        ids: the behaviours it shows.
        runs: it is neither skipped nor expected to fail.
        lines: where the marks stand.
    """

    test: str
    ids: tuple[str, ...]
    runs: bool
    lines: tuple[int, ...]


def features() -> list[Feature]:
    """All behaviours, in order."""
    listed = tomllib.loads(LIST.read_text("utf-8"))
    reasons = {name: f"alternative: {reason}" for name, reason in listed["alternatives"].items()}
    reasons |= {name: f"not applicable: {reason}" for name, reason in listed["not_applicable"].items()}
    return [
        Feature(id=name, section=section, behaviour=behaviour, otherwise=reasons.get(name, "not yet"))
        for section, behaviours in listed["behaviours"].items()
        for name, behaviour in behaviours.items()
    ]


def marks(root: Path = ROOT) -> list[Mark]:
    """Every mark of a test below ``root``, file by file."""
    return [mark for file in sorted((root / "tests").rglob("test_*.py")) for mark in _Tests(root, file).marks()]


def lost(root: Path = ROOT) -> list[str]:
    """Marks that stand on no test: ``file:line``."""
    found = []
    for file in sorted((root / "tests").rglob("*.py")):
        tests = _Tests(root, file)
        used = {line for mark in tests.marks() for line in mark.lines} if file.name.startswith("test_") else set()
        lines = {
            node.lineno for node in ast.walk(tests.tree) if isinstance(node, ast.Call) and _name(node) == "feature"
        }
        found += [f"{file.relative_to(root)}:{line}" for line in sorted(lines - used)]
    return found


def shown(found: Sequence[Mark]) -> dict[str, list[str]]:
    """Id -> the tests that show it; those that show the fewest others come first."""
    breadth: dict[str, set[str]] = {}
    for mark in found:
        breadth.setdefault(mark.test, set()).update(mark.ids)
    tests: dict[str, set[str]] = {}
    for mark in found:
        for name in mark.ids if mark.runs else ():
            tests.setdefault(name, set()).add(mark.test)
    return {name: sorted(some, key=lambda test: (len(breadth[test]), test)) for name, some in tests.items()}


def page() -> str:
    """The whole page."""
    tests, parts, section = shown(marks()), [HEAD], ""
    works = [one for one in features() if one.id in tests]
    parts.append(f"\n{len(works)} of {len(features())} behaviours work.\n")
    for one in features():
        if one.section != section:
            section = one.section
            parts.append(f"\n## {section}\n\n| id | behaviour | test | status |\n|---|---|---|---|\n")
        links = "<br>".join(f"[{test}](../{test.split('::')[0]})" for test in tests.get(one.id, [])[:MOST])
        parts.append(f"| {one.id} | {one.behaviour} | {links} | {'works' if links else one.otherwise} |\n")
    return "".join(parts)


class _Tests:
    """The tests of one file."""

    def __init__(self, root: Path, file: Path) -> None:
        self.path, self.tree = file.relative_to(root).as_posix(), ast.parse(file.read_text("utf-8"))

    def marks(self) -> Iterator[Mark]:
        """Of functions, classes and the module, and of single parameters."""
        yield from self._of(self.tree, self.path, ())

    def _of(self, scope: ast.Module | ast.ClassDef, name: str, above: Sequence[ast.expr]) -> Iterator[Mark]:
        above = [*above, *self._resolved(_assigned(scope).get("pytestmark"))]
        for node in scope.body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                yield from self._of(node, f"{name}::{node.name}", [*above, *self._decorators(node)])
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
                here, test, runs = [*above, *self._decorators(node)], f"{name}::{node.name}", not _gives_up(node)
                yield self._mark(test, here, here, runs=runs)
                for parameter in self._parameters(here):
                    yield self._mark(test, parameter, [*here, *parameter], runs=runs)

    def _mark(self, test: str, own: Sequence[ast.expr], every: Sequence[ast.expr], *, runs: bool) -> Mark:
        calls = [node for node in own if isinstance(node, ast.Call) and _name(node) == "feature"]
        ids = tuple(str(ast.literal_eval(argument)) for call in calls for argument in call.args)
        runs = runs and not NOT_RUN.intersection(map(_name, every))
        return Mark(test=test, ids=ids, runs=runs, lines=tuple(call.lineno for call in calls))

    def _decorators(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
        return [mark for decorator in node.decorator_list for mark in self._resolved(decorator)]

    def _parameters(self, on: Sequence[ast.expr]) -> Iterator[list[ast.expr]]:
        """The marks of each ``pytest.param(..., marks=...)`` of the parametrizations among some marks."""
        for mark in on:
            if isinstance(mark, ast.Call) and _name(mark) == "parametrize":
                for value in [part for given in mark.args[1:] for part in self._resolved(given)]:
                    if isinstance(value, ast.Call) and _last(value.func) == "param":
                        yield [m for k in value.keywords if k.arg == "marks" for m in self._resolved(k.value)]

    def _resolved(self, node: ast.expr | None) -> list[ast.expr]:
        """An expression, or the members of a list, or what a name of the module stands for."""
        match node:
            case None:
                return []
            case ast.List(elts=members) | ast.Tuple(elts=members):
                return [one for member in members for one in self._resolved(member)]
            case ast.Starred(value=value):
                return self._resolved(value)
            case ast.Name(id=name) if name in self._constants:
                return self._resolved(self._constants[name])
            case _:
                return [node]

    @cached_property
    def _constants(self) -> dict[str, ast.expr]:
        return _assigned(self.tree)


def _assigned(scope: ast.Module | ast.ClassDef) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in scope.body:
        if isinstance(node, ast.Assign):
            found |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
    return found


def _name(node: ast.expr) -> str:
    """``skip`` of ``pytest.mark.skip`` and of ``pytest.mark.skip(...)``; nothing of anything else."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) and _last(function.value) == "mark" else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _gives_up(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a test may skip itself, or expect to fail, on the way."""
    called = [ast.unparse(node.func) for node in ast.walk(test) if isinstance(node, ast.Call)]
    return not {"pytest.skip", "pytest.xfail", "pytest.importorskip"}.isdisjoint(called)


if __name__ == "__main__":
    sys.stdout.write(page())
