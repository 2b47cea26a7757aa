"""The code of a function, as it is compared: another helper, constant or closure is another version; another process is not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

import floodmark as fm
from floodmark.core.code import code_of

MODULE = '''
"""A module of operators."""
import math
import re
from dataclasses import dataclass
from enum import Enum
from zoneinfo import ZoneInfo

LIMIT = 10
NAMES = {"a": 1, "b": 2}
KINDS = frozenset({"x", "y", "z", "w"})
PATTERN = re.compile("a+")
ZONE = ZoneInfo("Europe/Paris")


class Size(Enum):
    SMALL = 1


@dataclass(frozen=True)
class Rule:
    words: frozenset
    least: int = 3

    def fits(self, row):
        return row["v"] > self.least and row["w"] in self.words


RULE = Rule(frozenset({"p", "q", "r"}))


class Base:
    def twice(self, x):
        return 2 * x


class Scale(Base):
    def __call__(self, row):
        yield {"v": self.twice(row["v"])}


def helper(x):
    """What it does."""
    return deeper(x) + LIMIT


def deeper(x):
    return math.floor(x)


def use(row):
    # a comment
    if row["k"] in KINDS and PATTERN.match(row["k"]) and RULE.fits(row) and Size.SMALL:
        yield {"v": helper(row["v"]) + NAMES["a"], "at": row["at"].astimezone(ZONE)}


def again(row):
    yield from again(row) if row["v"] else use(row)


def make(factor):
    def scaled(row):
        yield {"v": row["v"] * factor}

    return scaled


def untouched(row):
    yield row
'''

numbers = count()


def module(tmp_path: Path, text: str = MODULE) -> ModuleType:
    path = tmp_path / f"module_{next(numbers)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("module_of_operators", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def code(tmp_path: Path, text: str, *names: str) -> list[str]:
    """Told before another module takes the name, as the source of a class is found by it."""
    found = module(tmp_path, text)
    return [code_of(getattr(found, name)) for name in names]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 10", "LIMIT = 11"),
        ('"b": 2', '"b": 3'),
        ('"z", "w"', '"z", "u"'),
        ('re.compile("a+")', 're.compile("a*")'),
        ('re.compile("a+")', 're.compile("a+", re.I)'),
        ("Europe/Paris", "Europe/Rome"),
        ("math.floor(x)", "math.ceil(x)"),
        ("least: int = 3", "least: int = 4"),
        ('row["v"] > self.least', 'row["v"] >= self.least'),
        ('"q", "r"', '"q"'),
        ("SMALL = 1", "SMALL = 2"),
    ],
)
@pytest.mark.parametrize("name", ["use", "again"])
def test_what_a_function_uses_is_part_of_it(tmp_path, name, old, new):
    before, after = (code(tmp_path, text, name, "untouched") for text in (MODULE, MODULE.replace(old, new)))
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_comments_docstrings_and_formatting_are_not(tmp_path):
    text = MODULE.replace("# a comment", "# another").replace('"""What it does."""', '"""In other words."""')
    text = text.replace("2 * x", "(2 *\n            x)")
    names = ("use", "again", "make", "Scale")
    assert code(tmp_path, MODULE, *names) == code(tmp_path, text, *names)


def test_the_order_of_a_mapping_is_as_a_loop_over_it_takes_it(tmp_path):
    swapped = MODULE.replace('{"a": 1, "b": 2}', '{"b": 2, "a": 1}')
    assert code(tmp_path, MODULE, "use") != code(tmp_path, swapped, "use")


def test_closures_arguments_and_instances_are(tmp_path):
    found = module(tmp_path)
    assert code_of(found.make(2)) == code_of(found.make(2)) != code_of(found.make(3))
    assert code_of(partial(found.use, 1)) == code_of(partial(found.use, 1)) != code_of(partial(found.use, 2))
    scale = code_of(found.Scale())
    assert (
        scale
        == code_of(module(tmp_path).Scale())
        != code_of(module(tmp_path, MODULE.replace("2 * x", "3 * x")).Scale())
    )
    assert code_of(found.Rule(frozenset("ab")).fits) != code_of(found.untouched)


def test_the_version_of_an_operator_follows_its_helpers(tmp_path):
    class Event(fm.Contract):
        at: fm.EventTime
        v: int

    def version(text: str) -> str:
        function = module(tmp_path, text).helper

        @fm.operator
        def scaled(events: fm.Stream[Event]) -> fm.Stream:
            return events.flat_map(function, Event)

        return scaled.version

    assert version(MODULE) == version(MODULE) != version(MODULE.replace("LIMIT = 10", "LIMIT = 12"))


def test_it_is_the_same_in_every_process(tmp_path):
    (tmp_path / "operators_of_mine.py").write_text(MODULE)
    program = (
        "import hashlib, operators_of_mine as m; from floodmark.core.code import code_of; "
        "print(*(hashlib.sha256(code_of(f).encode()).hexdigest() for f in (m.use, m.again, m.make(4), m.Scale(), m.RULE.fits)))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
