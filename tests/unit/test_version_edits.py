"""Edits of a user's package, and whether the version of a function sees them.

``PYTHONPATH=src:tests/support python tests/unit/test_version_edits.py`` prints the table, with ``--write`` also the file of digests.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from packages import imported, named

from floodmark.core.code import code_of

GOLDEN = Path(__file__).with_name("version_digests.json")

PACKAGE = {
    "shop/__init__.py": '"""A shop."""\n',
    "shop/prices.py": '''
"""Prices."""
from decimal import Decimal

RATE = 3
SCALE = Decimal("0.10")


def cents(row):
    """In cents."""
    return row["v"] * RATE


def rounded(row):
    return deeper(row) + 1


def deeper(row):
    return row["v"] - 7


def unused(row):
    return row
''',
    "shop/rules/__init__.py": "from shop.rules.vat import vat\n\nLEVEL = 5\n",
    "shop/rules/vat.py": "PERCENT = 19\n\n\ndef vat(value):\n    return value * PERCENT / 100\n",
    "shop/plugins/__init__.py": "",
    "shop/plugins/first.py": "def apply(row):\n    return row['v'] + 100\n",
    "shop/dynamic.py": """
import importlib
import sys
from shop import prices

WEIGHT = 4


def chosen(row):
    return getattr(prices, row["name"])(row)


def by_globals(row):
    return globals()["hidden_" + row["name"]](row)


def hidden_a(row):
    return row["v"] * 1000


def loaded(row):
    return importlib.import_module(f"shop.plugins.{row['name']}").apply(row)


def literal(row):
    return getattr(prices, "cents")(row)


def named(row):
    return importlib.import_module("shop.plugins.first").apply(row)


def late(row):
    from shop.rules.vat import vat

    return vat(row["v"])


def late_module(row):
    import shop.rules.vat as tax

    return tax.vat(row["v"])


def rows():
    yield from ()


STREAM = rows()


def opaque(row):
    return STREAM, row


def untouched_by_weight(row):
    return row


def evaluated(row):
    return eval("WEIGHT * row['v']")
""",
    "shop/decorators.py": """
import functools

LIMIT = 1


def limited(function):
    @functools.wraps(function)
    def wrapper(row):
        return function(row) if row["v"] > LIMIT else []

    return wrapper


def times(factor):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(row):
            return [factor * value for value in function(row)]

        return wrapper

    return decorate


def tagged(function):
    function.tag = "a"
    return function


def registering(function):
    return function
""",
    "shop/data.py": """
import json
from pathlib import Path

TABLE = json.loads(Path(__file__).with_name("table.json").read_text())
HERE = Path(__file__).parent
FOLDER = str(HERE)
""",
    "shop/table.json": '{"a": 1, "b": 2}',
    "shop/kinds.py": '''
import enum
import re
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property, partialmethod, total_ordering
from typing import ClassVar, NamedTuple

LIMIT = 1
START = datetime(2024, 1, 1, tzinfo=timezone.utc)
STEP = timedelta(minutes=5)
WORDS = frozenset({"p", "q", "r"})
PATTERN = re.compile("a+b")
PAIR = namedtuple("PAIR", "x y")(1, 2)


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Point(NamedTuple):
    x: int
    y: int = 4


@dataclass(frozen=True)
class Rule:
    """A rule."""

    least: int = 3
    words: frozenset = WORDS
    extra: list = field(default_factory=lambda: [1])

    def fits(self, row):
        return row["v"] > self.least and row["w"] in self.words


RULE = Rule()


class Base:
    factor = 2
    registered: ClassVar[list] = []

    def __init_subclass__(cls, scale=1, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.scale = scale * 10

    def twice(self, x):
        return self.factor * x

    def shadowed(self, x):
        return x + 1


class Descriptor:
    def __init__(self, value):
        self.value = value

    def __get__(self, instance, owner=None):
        return self.value + 1


class Scale(Base, scale=3):
    bound = LIMIT * 10
    reading = Descriptor(6)

    def __call__(self, row):
        return self.twice(row["v"]) + self.shadowed(self.bound) + self.limit + self.low(row) + self.made(row)

    @property
    def limit(self):
        return LIMIT

    @cached_property
    def lazy(self):
        return LIMIT + 40

    @staticmethod
    def low(row):
        return row["v"] - 11

    @classmethod
    def made(cls, row):
        return cls.bound + 12

    def general(self, row, by):
        return row["v"] * by

    fivefold = partialmethod(general, by=5)

    def shadowed(self, x):
        return super().shadowed(x) * 8


def sized(row):
    return row["v"] > Size.SMALL.value


def pointed(row):
    return Point(row["v"]).y


def ruled(row):
    return RULE.fits(row)


def timed(row):
    return row["at"] > START + STEP


def matched(row):
    return PATTERN.match(row["w"]), PAIR.x
''',
    "shop/ops.py": '''
from __future__ import annotations

import math
import operator
from functools import cache, lru_cache, partial, singledispatch
from contextlib import contextmanager

import shop.prices
import shop.rules as rules
from shop import data, kinds, prices
from shop.decorators import limited, registering, tagged, times
from shop.prices import cents as money
from shop.prices import SCALE

FEE = 2
FACTOR = FEE * 10
HANDLERS = {"a": lambda row: row["v"] + 1, "b": lambda row: row["v"] + 2}
MANY = [money, {"x": (prices.rounded,)}]
fetch = prices.cents
pick = operator.attrgetter("name")


def via_module(row):
    # a comment
    total = prices.cents(row)
    yield {"v": total}


def via_package(row):
    return shop.prices.cents(row)


def via_alias(row):
    return rules.vat(row["v"]) + rules.LEVEL


def via_name(row):
    return money(row)


def via_variable(row):
    return fetch(row)


def via_local(row):
    get = prices.rounded
    return get(row)


def via_list(row):
    return [f(row) for f in MANY[:1]]


def with_default(row, limit=FACTOR, *, floor=FEE):
    return row["v"] > limit > floor


@limited
def decorated(row):
    return [row["v"] * 5]


@limited
@times(4)
def stacked(row):
    return [row["v"] * 6]


@tagged
def marked(row):
    return row


@registering
def registered(row):
    return row


@lru_cache(maxsize=10)
def cached(row):
    return FEE


@cache
def cached_too(row):
    return prices.rounded(row)


def closing(factor):
    def scaled(row):
        return row["v"] * factor

    return scaled


scaled_by_two = closing(2)
part = partial(money, 7)
part_by_name = partial(with_default, limit=8)


@singledispatch
def dispatched(value):
    return 1


@dispatched.register
def _(value: int):
    return value + 2


@contextmanager
def managed(row):
    yield row["v"] + 3


def uses_manager(row):
    with managed(row) as value:
        return value


def handled(row):
    return HANDLERS[row["k"]](row)


def shaped(row):
    match row:
        case {"v": int(value), **others} if value > 1:
            return value, others
        case [first, *rest]:
            return first, rest
    return None


def looping(row):
    totals = {key: value for key, value in row.items() if key != "v"}
    return [n + m for n in range(3) for m in range(n)], totals, f"{row['v']:>{FEE}} and {totals!r}"


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


def looked_up(row):
    return data.TABLE[row["k"]]


def placed(row):
    return data.HERE / row["k"], data.FOLDER


def computed(row):
    return math.floor(row["v"]) * SCALE


def picked(row):
    return pick(row)


def typed(row: dict[str, int], other: int = 1) -> dict[str, int]:
    """A docstring."""
    value: int = row["v"]
    return {"v": value + other}


def excepting(row):
    try:
        return 1 / row["v"]
    except ZeroDivisionError as error:
        return str(error)


def counting(row):
    count = 0

    def more():
        nonlocal count
        count += 1
        return count

    return more() + row["v"]


class Local:
    pass


def makes_class(row):
    class Inner:
        level = FEE

        def get(self):
            return self.level

    return Inner().get()
''',
}

FUNCTIONS = [
    *(
        f"shop.ops.{name}"
        for name in [
            "via_module",
            "via_package",
            "via_alias",
            "via_name",
            "via_variable",
            "via_local",
            "via_list",
            "with_default",
            "decorated",
            "stacked",
            "marked",
            "registered",
            "cached",
            "cached_too",
            "scaled_by_two",
            "part",
            "part_by_name",
            "dispatched",
            "uses_manager",
            "handled",
            "shaped",
            "looping",
            "even",
            "looked_up",
            "placed",
            "computed",
            "picked",
            "typed",
            "excepting",
            "counting",
            "makes_class",
        ]
    ),
    *(f"shop.kinds.{name}" for name in ["sized", "pointed", "ruled", "timed", "matched", "Scale", "RULE.fits"]),
    *(
        f"shop.dynamic.{name}"
        for name in ["chosen", "by_globals", "loaded", "literal", "named", "late", "late_module", "opaque", "evaluated"]
    ),
]
"""Of the package, what the table of digests has."""

OPS, PRICES, KINDS, DYNAMIC, DECORATORS = (
    "shop/ops.py",
    "shop/prices.py",
    "shop/kinds.py",
    "shop/dynamic.py",
    "shop/decorators.py",
)

EDITS = [  # what is edited, in which function, file, before, after, expected
    # helpers, however they are reached
    ("helper called as module.f()", "ops.via_module", PRICES, 'row["v"] * RATE', 'row["v"] * 1000', "seen"),
    ("constant of a helper called as module.f()", "ops.via_module", PRICES, "RATE = 3", "RATE = 4", "seen"),
    ("helper called as package.module.f()", "ops.via_package", PRICES, 'row["v"] * RATE', 'row["v"] + RATE', "seen"),
    ("helper through import ... as", "ops.via_alias", "shop/rules/vat.py", "PERCENT = 19", "PERCENT = 7", "seen"),
    ("constant of a package through an alias", "ops.via_alias", "shop/rules/__init__.py", "LEVEL = 5", "LEVEL = 6", "seen"),
    ("helper through from ... import ... as", "ops.via_name", PRICES, 'row["v"] * RATE', 'row["v"]', "seen"),
    ("helper through g = m.f", "ops.via_variable", PRICES, 'row["v"] * RATE', 'row["v"]', "seen"),
    ("helper through a local variable", "ops.via_local", PRICES, "deeper(row) + 1", "deeper(row) + 2", "seen"),
    ("helper of a helper", "ops.via_local", PRICES, 'row["v"] - 7', 'row["v"] - 8', "seen"),
    ("helper in a list", "ops.via_list", PRICES, 'row["v"] - 7', 'row["v"] - 8', "seen"),
    ("helper that nobody calls", "ops.via_module", PRICES, "    return row\n", "    return [row]\n", "same"),
    ("getattr with a literal", "dynamic.literal", PRICES, 'row["v"] * RATE', 'row["v"]', "seen"),
    ("getattr with a literal, another helper", "dynamic.literal", PRICES, "deeper(row) + 1", "deeper(row) + 2", "same"),
    ("getattr with a computed name", "dynamic.chosen", PRICES, "deeper(row) + 1", "deeper(row) + 2", "seen"),
    ("getattr with a computed name, a comment", "dynamic.chosen", PRICES, '"""In cents."""', '"""Cents."""  # whole', "same"),
    ("globals()[...]", "dynamic.by_globals", DYNAMIC, 'row["v"] * 1000', 'row["v"] * 1001', "seen"),
    ("eval of a text", "dynamic.evaluated", DYNAMIC, "WEIGHT = 4", "WEIGHT = 5", "seen"),
    ("import by a computed name", "dynamic.loaded", "shop/plugins/first.py", "+ 100", "+ 101", "seen"),
    ("import by a computed name, another package", "dynamic.loaded", "shop/rules/vat.py", "PERCENT = 19", "PERCENT = 7", "same"),
    ("import by a literal name", "dynamic.named", "shop/plugins/first.py", "+ 100", "+ 101", "seen"),
    ("function imported inside the function", "dynamic.late", "shop/rules/vat.py", "PERCENT = 19", "PERCENT = 7", "seen"),
    ("module imported inside the function", "dynamic.late_module", "shop/rules/vat.py", "/ 100", "/ 1000", "seen"),
    ("object that does not say what it holds", "dynamic.opaque", DYNAMIC, "yield from ()", "yield 1", "seen"),
    ("the same module, a function without it", "dynamic.untouched_by_weight", DYNAMIC, "yield from ()", "yield 1", "same"),
    # defaults, decorators, closures
    ("default from a constant", "ops.with_default", OPS, "FACTOR = FEE * 10", "FACTOR = FEE * 11", "seen"),
    ("default by keyword", "ops.with_default", OPS, "floor=FEE", "floor=FEE + 1", "seen"),
    ("default written otherwise", "ops.with_default", OPS, "FACTOR = FEE * 10", "FACTOR = 20", "same"),
    ("body of a decorator", "ops.decorated", DECORATORS, "> LIMIT else", "< LIMIT else", "seen"),
    ("constant of a decorator", "ops.decorated", DECORATORS, "LIMIT = 1", "LIMIT = 2", "seen"),
    ("decorated function itself", "ops.decorated", OPS, 'row["v"] * 5', 'row["v"] * 50', "seen"),
    ("decorator under another", "ops.stacked", DECORATORS, "[factor * value", "[factor + value", "seen"),
    ("argument of a decorator", "ops.stacked", OPS, "@times(4)", "@times(5)", "seen"),
    ("decorators in another order", "ops.stacked", OPS, "@limited\n@times(4)", "@times(4)\n@limited", "seen"),
    ("attribute set by a decorator", "ops.marked", DECORATORS, 'tag = "a"', 'tag = "b"', "seen"),
    ("decorator that hands the function back", "ops.registered", DECORATORS, "    return function\n", "    return function or 1\n", "seen"),
    ("constant behind lru_cache", "ops.cached", OPS, "FEE = 2", "FEE = 3", "seen"),
    ("helper behind cache", "ops.cached_too", PRICES, 'row["v"] - 7', 'row["v"] - 8', "seen"),
    ("closure", "ops.scaled_by_two", OPS, "closing(2)", "closing(3)", "seen"),
    ("function of a partial", "ops.part", PRICES, 'row["v"] * RATE', 'row["v"]', "seen"),
    ("argument of a partial", "ops.part", OPS, "partial(money, 7)", "partial(money, 8)", "seen"),
    ("keyword of a partial", "ops.part_by_name", OPS, "limit=8", "limit=9", "seen"),
    ("function registered with singledispatch", "ops.dispatched", OPS, "value + 2", "value + 3", "seen"),
    ("type registered with singledispatch", "ops.dispatched", OPS, "def _(value: int)", "def _(value: float)", "seen"),
    ("function behind a decorator of a library", "ops.uses_manager", OPS, 'row["v"] + 3', 'row["v"] + 4', "seen"),
    ("lambda in a mapping", "ops.handled", OPS, 'row["v"] + 2}', 'row["v"] + 3}', "seen"),
    ("order of a mapping", "ops.handled", OPS, '"a": lambda row: row["v"] + 1, "b": lambda row: row["v"] + 2', '"b": lambda row: row["v"] + 2, "a": lambda row: row["v"] + 1', "seen"),
    ("one of two functions that call each other", "ops.even", OPS, "n != 0 and", "n > 0 and", "seen"),
    # syntax
    ("pattern of a match", "ops.shaped", OPS, "if value > 1", "if value > 2", "seen"),
    ("names in a match", "ops.shaped", OPS, "[first, *rest]:\n            return first, rest", "[a, *b]:\n            return a, b", "same"),
    ("comprehension", "ops.looping", OPS, 'key != "v"', 'key == "v"', "seen"),
    ("names in a comprehension", "ops.looping", OPS, "{key: value for key, value in row.items() if key !=", "{k: v for k, v in row.items() if k !=", "same"),
    ("format of an f-string", "ops.looping", OPS, ":>{FEE}}", ":<{FEE}}", "seen"),
    ("local variable", "ops.via_module", OPS, 'total = prices.cents(row)\n    yield {"v": total}', 'it = prices.cents(row)\n    yield {"v": it}', "same"),
    ("inner function and nonlocal", "ops.counting", OPS, "more", "another", "same"),
    ("inner function does otherwise", "ops.counting", OPS, "count += 1", "count += 2", "seen"),
    ("parameter that can be passed by name", "ops.typed", OPS, "other", "another", "seen"),
    ("annotations", "ops.typed", OPS, "row: dict[str, int], other: int = 1) -> dict[str, int]:", "row, other=1):", "same"),
    ("annotation of a variable", "ops.typed", OPS, "value: int = row", "value = row", "same"),
    ("docstring", "ops.typed", OPS, '"""A docstring."""', '"""In other words."""', "same"),
    ("comment", "ops.via_module", OPS, "# a comment", "# another", "same"),
    ("formatting", "ops.via_module", OPS, "total = prices.cents(row)", "total = (\n        prices.cents(\n            row,\n        )\n    )", "same"),
    ("quotes", "ops.excepting", OPS, '1 / row["v"]', "1 / row['v']", "same"),
    ("name of an exception", "ops.excepting", OPS, "as error:\n        return str(error)", "as e:\n        return str(e)", "same"),
    ("exception", "ops.excepting", OPS, "except ZeroDivisionError", "except ArithmeticError", "seen"),
    ("class inside the function", "ops.makes_class", OPS, "level = FEE", "level = FEE + 1", "seen"),
    ("function of a library", "ops.computed", OPS, "math.floor", "math.ceil", "seen"),
    ("attribute named by attrgetter", "ops.picked", OPS, 'attrgetter("name")', 'attrgetter("code")', "seen"),
    ("lines above", "ops.via_module", OPS, "FEE = 2\n", "\n\nOTHER = 1\n\nFEE = 2\n", "same"),
    # constants
    ("decimal", "ops.computed", PRICES, '"0.10"', '"0.1"', "seen"),
    ("data file read at import", "ops.looked_up", "shop/table.json", '"b": 2', '"b": 3', "seen"),
    ("data file written otherwise", "ops.looked_up", "shop/table.json", '{"a": 1, "b": 2}', '{"a":1,\n"b":2}', "same"),
    ("path", "ops.placed", "shop/data.py", "Path(__file__).parent\n", "Path(__file__).parent / 'x'\n", "seen"),
    ("regular expression", "kinds.matched", KINDS, '"a+b"', '"a*b"', "seen"),
    ("flags of a regular expression", "kinds.matched", KINDS, 're.compile("a+b")', 're.compile("a+b", re.I)', "seen"),
    ("named tuple", "kinds.matched", KINDS, "(1, 2)", "(1, 3)", "seen"),
    ("point in time", "kinds.timed", KINDS, "datetime(2024, 1, 1", "datetime(2024, 1, 2", "seen"),
    ("span", "kinds.timed", KINDS, "minutes=5", "seconds=301", "seen"),
    ("span in other words", "kinds.timed", KINDS, "minutes=5", "seconds=300", "same"),
    ("member of an enumeration", "kinds.sized", KINDS, "SMALL = 1", "SMALL = 0", "seen"),
    ("order of an enumeration", "kinds.sized", KINDS, "SMALL = 1\n    LARGE = 2", "LARGE = 2\n    SMALL = 1", "seen"),
    ("set in another order", "kinds.ruled", KINDS, '{"p", "q", "r"}', '{"r", "q", "p"}', "same"),
    ("element of a set", "kinds.ruled", KINDS, '{"p", "q", "r"}', '{"p", "q"}', "seen"),
    # classes
    ("default of a field", "kinds.ruled", KINDS, "least: int = 3", "least: int = 4", "seen"),
    ("type of a field", "kinds.ruled", KINDS, "least: int = 3", "least: float = 3", "seen"),
    ("factory of a field", "kinds.ruled", KINDS, "lambda: [1]", "lambda: [2]", "seen"),
    ("method of an instance", "kinds.ruled", KINDS, 'row["v"] > self.least', 'row["v"] >= self.least', "seen"),
    ("instance", "kinds.ruled", KINDS, "RULE = Rule()", "RULE = Rule(least=9)", "seen"),
    ("default of a named tuple", "kinds.pointed", KINDS, "y: int = 4", "y: int = 5", "seen"),
    ("attribute computed from a constant", "kinds.Scale", KINDS, "bound = LIMIT * 10", "bound = LIMIT * 20", "seen"),
    ("constant read in a property", "kinds.Scale", KINDS, "LIMIT = 1", "LIMIT = 2", "seen"),
    ("property", "kinds.Scale", KINDS, "return LIMIT\n", "return LIMIT - 1\n", "seen"),
    ("cached_property", "kinds.Scale", KINDS, "LIMIT + 40", "LIMIT + 41", "seen"),
    ("static method", "kinds.Scale", KINDS, "- 11", "- 10", "seen"),
    ("class method", "kinds.Scale", KINDS, "+ 12", "+ 13", "seen"),
    ("partialmethod", "kinds.Scale", KINDS, "by=5", "by=6", "seen"),
    ("descriptor", "kinds.Scale", KINDS, "self.value + 1", "self.value + 2", "seen"),
    ("value of a descriptor", "kinds.Scale", KINDS, "Descriptor(6)", "Descriptor(7)", "seen"),
    ("base class", "kinds.Scale", KINDS, "self.factor * x", "self.factor + x", "seen"),
    ("attribute of a base class", "kinds.Scale", KINDS, "factor = 2", "factor = 3", "seen"),
    ("method under super()", "kinds.Scale", KINDS, "return x + 1", "return x + 2", "seen"),
    ("__init_subclass__", "kinds.Scale", KINDS, "scale * 10", "scale * 11", "seen"),
    ("keyword of a class", "kinds.Scale", KINDS, "scale=3", "scale=4", "seen"),
    ("docstring of a class", "kinds.ruled", KINDS, '"""A rule."""', '"""Rules."""', "same"),
]  # fmt: skip


def digest(files: Mapping[str, str], folder: Path, name: str) -> str:
    with imported(files, folder):
        return code_of(named(name))


def verdict(folder: Path, function: str, path: str, before: str, after: str) -> str:
    assert before in PACKAGE[path], f"{path} has no {before!r}"
    edited = PACKAGE | {path: PACKAGE[path].replace(before, after)}
    digests = [digest(files, folder, f"shop.{function}") for files in (PACKAGE, edited)]
    return "same" if digests[0] == digests[1] else "seen"


@pytest.mark.parametrize(
    ("what", "function", "path", "before", "after", "expected"), EDITS, ids=[edit[0] for edit in EDITS]
)
def test_an_edit_is_seen_where_it_may_change_an_answer(tmp_path, what, function, path, before, after, expected):
    assert verdict(tmp_path, function, path, before, after) == expected


def test_there_are_enough_edits():
    assert len(EDITS) >= 60
    assert len({edit[0] for edit in EDITS}) == len(EDITS)


def test_code_that_lies_elsewhere_is_the_same(tmp_path):
    renamed = {path.replace("shop", "store"): text.replace("shop", "store") for path, text in PACKAGE.items()}
    for name in [name for name in FUNCTIONS if not name.startswith("shop.dynamic")]:
        assert digest(PACKAGE, tmp_path, name) == digest(renamed, tmp_path, name.replace("shop", "store")), name


def test_a_helper_that_moves_to_another_module_is_the_same(tmp_path):
    moved = PACKAGE | {
        "shop/costs.py": PACKAGE[PRICES],
        OPS: PACKAGE[OPS].replace("import data, kinds, prices", "import data, kinds, costs as prices"),
    }
    assert digest(PACKAGE, tmp_path, "shop.ops.via_module") == digest(moved, tmp_path, "shop.ops.via_module")


def test_a_helper_is_the_same_however_it_is_imported(tmp_path):
    by_name = PACKAGE | {OPS: PACKAGE[OPS].replace("prices.cents(row)\n    yield", "money(row)\n    yield")}
    inside = PACKAGE | {OPS: PACKAGE[OPS].replace("    # a comment\n", "    from shop import prices\n")}
    first = digest(PACKAGE, tmp_path, "shop.ops.via_module")
    assert first == digest(by_name, tmp_path, "shop.ops.via_module") == digest(inside, tmp_path, "shop.ops.via_module")


def test_a_name_of_a_helper_does_not_count(tmp_path):
    renamed = PACKAGE | {PRICES: PACKAGE[PRICES].replace("deeper", "lower")}
    assert digest(PACKAGE, tmp_path, "shop.ops.via_local") == digest(renamed, tmp_path, "shop.ops.via_local")


def digests(folder: Path) -> dict[str, str]:
    return {name: digest(PACKAGE, folder, name) for name in FUNCTIONS}


def test_digests_are_those_of_every_python(tmp_path):
    """The file was written by Python 3.11.7 with ``--write``, see above; 3.12.1 and 3.13.0 gave the same bytes.

    Where fingerprints are made in another way on purpose, count up ``METHOD`` in ``core/fingerprint.py`` and write the file anew.
    """
    assert digests(tmp_path) == json.loads(GOLDEN.read_text())


def test_digests_are_the_same_wherever_the_package_lies_and_whatever_else_was_asked(tmp_path):
    first, again = digests(tmp_path / "here"), dict(reversed(digests(tmp_path / "there").items()))
    assert first == again


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        if "--write" in sys.argv:
            GOLDEN.write_text(json.dumps(digests(here), indent=1) + "\n")
        table = [
            (what, function, verdict(here, function, *edit), expected) for what, function, *edit, expected in EDITS
        ]
        for what, function, got, expected in table:
            sys.stdout.write(f"{'ok   ' if got == expected else 'WRONG'} {got:5} {function:26} {what}\n")
        wrong = sum(got != expected for _, _, got, expected in table)
        text = hashlib.sha256(json.dumps(digests(here)).encode()).hexdigest()[:16]
        sys.stdout.write(f"{len(EDITS)} edits, {wrong} wrong; digests {text}; Python {sys.version.split()[0]}\n")
