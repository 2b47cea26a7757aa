"""Write docs/features.md from the list in features.toml and the marks of the tests, which are read and not imported.

python tests/docs/features_page.py > docs/features.md
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # run as a program, this file has no package
from reach import CHOSEN, assigned, parsed, reached

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("features.toml")
SHOWN_ON = ("spark", "embedded", "crash", "browser", "dagster", "airflow")
"""Named beside a behaviour where a test of it has this; without an engine, the kernel alone has shown it."""
EMBEDDED = frozenset({"embedded", "sail"})
"""Fixtures of the embedded engine."""
BUCKETS = frozenset({"s3", "s3_proxy"})
"""Fixtures of a lake on S3."""
MATRIX = {
    "spark": "Spark",
    "embedded": "embedded engine",
    "both modes": "both modes",
    "crash": "killed",
    "dagster": "in Dagster",
    "browser": "by clicks",
    "bucket": "in a bucket",
    "cluster": "on a cluster",
    "kafka": "with Kafka",
}
"""Risk -> its column in the matrix of what was shown where."""
WEIGHTS = {"spark": 4, "crash": 4}
"""Of the risks of a test, when the best one is looked for."""
APART = {"floodmark-airflow": "make test-airflow"}
"""Folder of a package whose tests have an environment of their own -> the command that runs them; no part of ``make test``."""
MOST = 3
"""So many tests are named per behaviour."""
NOT_RUN = frozenset({"skip", "skipif", "xfail", "soak"})
RISKS = ("spark", "crash", "both modes", "browser", "dagster", "cluster", "kafka", "airflow", "bucket")
"""Under each of them a behaviour may have to be shown."""
SKIPS = frozenset({"pytest.skip", "pytest.xfail", "pytest.importorskip"})
RUN_CALLS = (".run_bounded", ".run_unbounded")
BOTH_MODES = frozenset({"prove", "RUNS", "IN_MEMORY", "check_in_memory", "check_embedded", "check_spark"})
"""What runs an operator in both modes by itself."""
HEAD = """\
# Features

What stream and batch processing on one engine should do, and whether floodmark does it. *works*: at least one test of `make test` shows the
behaviour; a test that may skip itself, that is expected to fail or that runs in `make soak` alone does not count. *works, by `make test-airflow`*: Airflow
and floodmark need not share an environment, and these tests have one of their own, with a real Airflow; `make test` does not run them, CI does for one commit in four. A behaviour may name
risks in square brackets; it works when tests show it under each of them: *spark* (on real Spark), *crash* (through a process that is
killed), *both modes* (bounded and unbounded), *browser* (by clicks in Chromium), *dagster*, *cluster*, *kafka*, *airflow*. *alternative*: not possible this way on
Spark and Delta Lake; what takes its place. *not applicable*: nothing a program can show. *not yet*: all else, and what is missing; tests that
stand beside it show a part.

This page is written from the tests' marks: `python tests/docs/features_page.py > docs/features.md`. Which risks a test covers is read from
the test: its folder, its fixtures, and what it calls. *shown on* names the engines that compute in the tests of a behaviour, and whether one of
them kills, clicks or goes through Dagster; *kernel* is none of the two engines, but the code that both run, or a command that picks its engine itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A behaviour.

    Args:
        id: ``W8``.
        section: of the page.
        behaviour: what is to be shown.
        risks: the behaviour is shown when tests show it under each of them.
        otherwise: its status where it is not shown.
    """

    id: str
    section: str
    behaviour: str
    risks: tuple[str, ...]
    otherwise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is marked on one test, or on one of its parameters.

    Args:
        test: ``tests/unit/test_x.py::test_name``.
        ids: the behaviours it shows.
        runs: in every run of the tests, to its end, and is not expected to fail.
        risks: which of the risks of behaviours the test covers.
        lines: where the marks stand.
    """

    test: str
    ids: tuple[str, ...]
    runs: bool
    risks: frozenset[str]
    lines: tuple[int, ...]


def features() -> list[Feature]:
    """All behaviours, in order."""
    listed = tomllib.loads(LIST.read_text("utf-8"))
    reasons = {name: f"alternative: {reason}" for name, reason in listed["alternatives"].items()}
    reasons |= {name: f"not applicable: {reason}" for name, reason in listed["not_applicable"].items()}
    reasons |= {name: f"not yet: {reason}" for name, reason in listed["not_yet"].items()}
    risks = listed["risks"]
    return [
        Feature(
            id=name,
            section=section,
            behaviour=behaviour,
            risks=tuple(risks.get(name, ())),
            otherwise=reasons.get(name, "not yet"),
        )
        for section, behaviours in listed["behaviours"].items()
        for name, behaviour in behaviours.items()
    ]


@cache
def marks(root: Path = ROOT) -> tuple[Mark, ...]:
    """Every mark of a test below ``root``, file by file; the files are read once."""
    return tuple(mark for file in _files(root, "test_*.py") for mark in _Tests(root, file).marks())


def _files(root: Path, pattern: str) -> list[Path]:
    folders = [root / "tests", *(root / package / "tests" for package in APART)]
    return [file for folder in folders for file in sorted(folder.rglob(pattern))]


def lost(root: Path = ROOT) -> list[str]:
    """Marks that stand on no test: ``file:line``."""
    found = []
    for file in _files(root, "*.py"):
        tests, path = _Tests(root, file), file.relative_to(root).as_posix()
        used = {line for mark in marks(root) if mark.test.startswith(f"{path}::") for line in mark.lines}
        lines = {
            node.lineno for node in ast.walk(tests.tree) if isinstance(node, ast.Call) and _name(node) == "feature"
        }
        found += [f"{file.relative_to(root)}:{line}" for line in sorted(lines - used)]
    return found


def shown(found: Sequence[Mark]) -> dict[str, list[str]]:
    """Id -> the tests that show it; those that show it under most risks come first, and of them those that show the fewest others."""
    breadth: dict[str, set[str]] = {}
    for mark in found:
        breadth.setdefault(mark.test, set()).update(mark.ids)
    strength: dict[str, dict[str, set[str]]] = {}
    for mark in found:
        for name in mark.ids if mark.runs else ():
            strength.setdefault(name, {}).setdefault(mark.test, set()).update(mark.risks)
    return {
        name: sorted(tests, key=lambda test, tests=tests: (-_strength(tests[test]), len(breadth[test]), test))  # type: ignore[misc]
        for name, tests in strength.items()
    }


def _strength(risks: Collection[str]) -> int:
    """More for a test on an engine, most for one on Spark or of a process that is killed."""
    return sum(WEIGHTS.get(risk, 1) for risk in risks)


def missing(feature: Feature, found: Sequence[Mark]) -> list[str]:
    """The risks of a behaviour under which no test shows it."""
    covered = {risk for mark in found if mark.runs and feature.id in mark.ids for risk in mark.risks}
    return [risk for risk in feature.risks if risk not in covered]


def works(feature: Feature, found: Sequence[Mark]) -> bool:
    """Whether tests show a behaviour under each of its risks, and no reason says what they leave out."""
    is_shown = any(mark.runs and feature.id in mark.ids for mark in found)
    return feature.otherwise == "not yet" and is_shown and not missing(feature, found)


def commands(feature: Feature, found: Sequence[Mark]) -> list[str]:
    """The commands beside ``make test`` without whose tests a behaviour would not work."""
    apart = {
        command: [mark for mark in found if not mark.test.startswith(f"{name}/")] for name, command in APART.items()
    }
    return [command for command, others in apart.items() if works(feature, found) and not works(feature, others)]


def shown_on(feature: Feature, found: Sequence[Mark]) -> list[str]:
    """The engines that computed in the tests of a behaviour, and what else those tests have."""
    covered = {risk for mark in found if mark.runs and feature.id in mark.ids for risk in mark.risks}
    engine = [] if covered & {"spark", "embedded", "airflow"} else ["kernel"]
    return engine + [name for name in SHOWN_ON if name in covered]


def matrix(found: Sequence[Mark]) -> str:
    """Section by section: how many behaviours there are, how many work, and how many a test of every run has shown under each risk."""
    header = ["about", "behaviours", "work", *MATRIX.values()]
    lines = [
        "",
        "## What was shown where",
        "",
        "Behaviours that a test of each run shows there; a behaviour may stand in several columns. Empty: no test. Of those that do not work, the tables below say whether they are not possible this way, no program, or missing.",
        "",
    ]
    lines += [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for section, listed in groupby(features(), lambda one: one.section):
        behaviours = list(listed)
        risks = {
            one.id: {risk for mark in found if mark.runs and one.id in mark.ids for risk in mark.risks}
            for one in behaviours
        }
        counts = [sum(risk in covered for covered in risks.values()) for risk in MATRIX]
        cells = [section, str(len(behaviours)), str(sum(works(one, found) for one in behaviours))]
        lines.append(f"| {' | '.join([*cells, *(str(count or '') for count in counts)])} |")
    return "\n".join(lines) + "\n"


@cache
def page(root: Path = ROOT) -> str:
    """The whole page."""
    found, parts, section = marks(root), [HEAD], ""
    tests = shown(found)
    lacking = {one.id: missing(one, found) for one in features() if one.id in tests}
    apart = [name for one in features() for name in commands(one, found)]
    beside = "".join(f", {apart.count(name)} of them by `{name}`" for name in dict.fromkeys(apart))
    parts.append(f"\n{sum(works(one, found) for one in features())} of {len(features())} behaviours work{beside}.\n")
    parts.append(matrix(found))
    for one in features():
        if one.section != section:
            section = one.section
            parts.append(f"\n## {section}\n\n| id | behaviour | shown on | test | status |\n|---|---|---|---|---|\n")
        risks = f" [{', '.join(one.risks)}]" if one.risks else ""
        status, links, on = one.otherwise, "", ""
        if one.id in tests and one.otherwise != "not yet":
            status = one.otherwise
        elif lacking.get(one.id):
            status = f"not yet: no test shows it under {' and '.join(lacking[one.id])}"
        elif one.id in tests:
            status = ", by ".join(["works", *(f"`{name}`" for name in commands(one, found))])
        if one.id in tests and not lacking[one.id]:
            named = _named(one, found, tests[one.id])
            links = "<br>".join(f"[{test}](../{test.split('::')[0]})" for test in named)
            on = ", ".join(shown_on(one, found))
        parts.append(f"| {one.id} | {one.behaviour}{risks} | {on} | {links} | {status} |\n")
    return "".join(parts)


def _named(feature: Feature, found: Sequence[Mark], tests: Sequence[str]) -> list[str]:
    """At most ``MOST`` tests of a behaviour: first one per risk, then those that show the fewest others."""
    covers = {(mark.test, risk) for mark in found if feature.id in mark.ids and mark.runs for risk in mark.risks}
    first = [next(test for test in tests if (test, risk) in covers) for risk in feature.risks]
    return list(dict.fromkeys([*first, *tests]))[:MOST]


class _Tests:
    """The tests of one file."""

    def __init__(self, root: Path, file: Path) -> None:
        self.root, self.file = root, file
        self.path, self.tree = file.relative_to(root).as_posix(), parsed(file)

    def marks(self) -> Iterator[Mark]:
        """Of functions, classes and the module, and of single parameters."""
        yield from self._of(self.tree, self.path, ())

    def _of(self, scope: ast.Module | ast.ClassDef, name: str, above: Sequence[ast.expr]) -> Iterator[Mark]:
        above = [*above, *self._resolved(assigned(scope).get("pytestmark"))]
        for node in scope.body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                yield from self._of(node, f"{name}::{node.name}", [*above, *self._decorators(node)])
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
                here, test = [*above, *self._decorators(node)], f"{name}::{node.name}"
                whole, some = self._parameters(here)
                partly = bool(some) and any(map(_stops, some)) and not _stops(whole)
                marked = any(_name(mark) == "feature" for mark in chain(here, *some))
                words = reached(self.root, self.file, [node, *above]) if marked else frozenset[str]()
                asked = frozenset(one.arg for one in node.args.args)
                beside = [mark for parameter in some for mark in parameter if _name(mark) == "engines"]
                yield self._mark(test, here, [*here, *whole], words, asked, beside=beside, partly=partly)
                for parameter in some:
                    yield self._mark(test, parameter, [*here, *parameter], words, asked)

    def _mark(
        self,
        test: str,
        own: Sequence[ast.expr],
        every: Sequence[ast.expr],
        words: frozenset[str],
        asked: frozenset[str],
        *,
        beside: Sequence[ast.expr] = (),
        partly: bool = False,
    ) -> Mark:
        """The mark of a test, or of one of its parameters.

        Args:
            test: its name.
            own: what stands on it.
            every: that, and what it is under.
            words: that it reaches.
            asked: its fixtures.
            beside: what single parameters say of engines: an engine that some are left out on is none of all of them.
            partly: some parameters of the test are left out of every run, so a mark on all of them says of none what it shows.
        """
        calls = [node for node in own if isinstance(node, ast.Call) and _name(node) == "feature"]
        ids = tuple(str(ast.literal_eval(argument)) for call in calls for argument in call.args)
        runs = not partly and not _stops(every) and SKIPS.isdisjoint(words)
        risks = _risks(test, [*every, *beside], words, asked)
        return Mark(test=test, ids=ids, runs=runs, risks=risks, lines=tuple(call.lineno for call in calls))

    def _decorators(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
        return [mark for decorator in node.decorator_list for mark in self._resolved(decorator)]

    def _parameters(self, on: Sequence[ast.expr]) -> tuple[list[ast.expr], list[list[ast.expr]]]:
        """Of the parametrizations among some marks: the marks that all parameters of one have by name, and those of each ``pytest.param``."""
        common, single = list[ast.expr](), list[list[ast.expr]]()
        for mark in on:
            if isinstance(mark, ast.Call) and _name(mark) == "parametrize":
                values = [part for given in mark.args[1:] for part in self._resolved(given)]
                marks = [self._of_parameter(value) for value in values]
                single += [one for one in marks if one]
                names = [set(map(_name, one)) for one in marks]
                shared = set.intersection(*names) - {"feature"} if names else set()
                common += [one for one in (marks[0] if marks else []) if _name(one) in shared]
        return common, single

    def _of_parameter(self, value: ast.expr) -> list[ast.expr]:
        if not (isinstance(value, ast.Call) and _last(value.func) == "param"):
            return []
        return [m for k in value.keywords if k.arg == "marks" for m in self._resolved(k.value)]

    def _resolved(self, node: ast.expr | None) -> list[ast.expr]:
        """An expression, or the members of a list, or what a name of the module stands for."""
        match node:
            case None:
                return []
            case ast.List(elts=members) | ast.Tuple(elts=members):
                return [one for member in members for one in self._resolved(member)]
            case ast.Starred(value=value):
                return self._resolved(value)
            case ast.GeneratorExp(elt=one) | ast.ListComp(elt=one):
                return [one]
            case ast.Name(id=name) if name in self._constants:
                return self._resolved(self._constants[name])
            case _:
                return [node]

    @cached_property
    def _constants(self) -> dict[str, ast.expr]:
        return assigned(self.tree)


def _stops(marks: Sequence[ast.expr]) -> bool:
    """Whether marks leave what they stand on out of every run, or expect it to fail."""
    return not NOT_RUN.isdisjoint(map(_name, marks)) or any(map(_soaks, marks))


def _soaks(mark: ast.expr) -> bool:
    """Whether a mark names engines of ``make soak`` alone."""
    return isinstance(mark, ast.Call) and _name(mark) == "engines" and not mark.args


def _risks(test: str, marks: Sequence[ast.expr], words: frozenset[str], asked: frozenset[str]) -> frozenset[str]:
    """Which risks a test covers, by its folder, its marks, its fixtures and the names it reaches.

    Where a test asks for an engine, that one computes: a session of Spark beside it only writes and reads tables.
    """
    calls = [mark for mark in marks if isinstance(mark, ast.Call) and _name(mark) == "engines"]
    engines = {engine for mark in calls for engine in _texts(mark.args)}
    left_out = {engine for mark in calls for keyword in mark.keywords for engine in _texts([keyword.value])}
    given = bool(calls) or not asked.isdisjoint(CHOSEN)
    chosen = (engines or {"embedded"} if given else set()) - left_out
    covered = {
        "spark": "cluster" in asked
        or "spark" in chosen
        or (not given and "spark" in words)
        or _computes("spark", words),
        "embedded": "embedded" in chosen or not words.isdisjoint(EMBEDDED) or _computes("embedded", words),
        "crash": not words.isdisjoint({"signal.SIGKILL", "crash.VARIABLE"}),
        "both modes": not words.isdisjoint(BOTH_MODES) or {"run_bounded", "run_unbounded"} <= words,
        "browser": "page" in asked,
        "dagster": test.startswith("tests/orchestration/"),
        "cluster": "cluster" in asked,
        "kafka": "kafka" in words or "broker" in asked,
        "airflow": "airflow" in words,
        "bucket": not asked.isdisjoint(BUCKETS),
    }
    assert (*covered,) == (*RISKS[:1], "embedded", *RISKS[1:])
    return frozenset(risk for risk, is_covered in covered.items() if is_covered)


def _computes(engine: str, words: frozenset[str]) -> bool:
    """Whether a run of one engine is called by its module, whatever the test has asked for."""
    return any(word.startswith(f"floodmark.engines.{engine}.") and word.endswith(RUN_CALLS) for word in words)


def _texts(nodes: Sequence[ast.expr]) -> set[str]:
    return {str(part.value) for node in nodes for part in ast.walk(node) if isinstance(part, ast.Constant)}


def _name(node: ast.expr) -> str:
    """``skip`` of ``pytest.mark.skip`` and of ``pytest.mark.skip(...)``; nothing of anything else."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) and _last(function.value) == "mark" else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    sys.stdout.write(page())
