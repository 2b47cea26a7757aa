"""The version of an operator follows whatever code of the user's decides its answer, and what plans and bounded runs make of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from packages import imported, named

from floodmark.compiler.explain import explain
from floodmark.core.code import Followed, Reach, code_of
from floodmark.core.errors import DefinitionError, StateError
from floodmark.core.fingerprint import METHOD, compare, hex_of, method_of
from floodmark.core.time import Interval
from floodmark.lake.stream.checkpoint import checkpoint_at
from floodmark.lake.stream.identity import IDENTITY, Identity
from floodmark.lifecycle.coverage import CoverageCheck, Entry, segments
from floodmark.lifecycle.plan import Deployed, plan

HELPERS = """
RATE = 2


def cents(row):
    return row["v"] * RATE


def added(left, right):
    return {**left, "v": left["v"] + right["v"]}


def smallest(value):
    return value
"""

FLOWS = '''
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache, partial
import floodmark as fm
import helpers


class R(fm.Contract):
    at: fm.EventTime
    k: str
    v: int


class V(fm.Contract):
    v: int


def priced(row):
    yield {"at": row["at"], "k": row["k"], "v": below(row)}


@fm.operator
def by_module(r: fm.Stream[R]) -> fm.Stream:
    return r.flat_map(priced, schema=R).key_by("k").window(fm.Tumbling("1 hour")).aggregate(n=fm.sum("v"))


def below(row):
    """Defined below the operator that uses it."""
    return helpers.cents(row)


@lru_cache
def cached(row):
    return [{"v": helpers.RATE}]


@fm.operator
def by_cache(r: fm.Stream[R]) -> fm.Stream:
    return r.flat_map(cached, schema=V)


def two(rate, row):
    yield {"v": row["v"] * rate}


@fm.operator
def by_partial(r: fm.Stream[R]) -> fm.Stream:
    return r.flat_map(partial(two, helpers.RATE), schema=V)


@fm.operator
def by_reduce(r: fm.Stream[R]) -> fm.Stream:
    return r.key_by("k").window(fm.Tumbling("1 hour")).reduce(partial(helpers.added))


def panes(pane, rows):
    yield {"v": sum(helpers.cents(row) for row in rows)}


@fm.operator
def by_panes(r: fm.Stream[R]) -> fm.Stream:
    return r.key_by("k").window(fm.Tumbling("1 hour")).process(panes, schema=V)


class Total(fm.Aggregate):
    type = "bigint"

    def __init__(self, expression, step=timedelta(minutes=1)):
        super().__init__(expression)
        self.step = step

    def create(self):
        return 0

    def add(self, accumulator, value):
        return accumulator + helpers.smallest(value)

    def merge(self, left, right):
        return left + right

    def result(self, accumulator):
        return accumulator


@fm.operator
def by_aggregate(r: fm.Stream[R]) -> fm.Stream:
    return r.key_by("k").window(fm.Tumbling("1 hour")).aggregate(n=Total("v"))


class Shift(fm.WindowAssigner):
    def __init__(self):
        self.days = {helpers.RATE, 5}

    def assign(self, time, row):
        return [(time, time + helpers.RATE)]


@fm.operator
def by_assigner(r: fm.Stream[R]) -> fm.Stream:
    return r.key_by("k").window(Shift()).aggregate(n=fm.count())


class Often(fm.Trigger):
    share = Decimal("0.5")

    def __init__(self):
        self.every = timedelta(minutes=helpers.RATE)

    @property
    def limit(self):
        return helpers.RATE

    def on_element(self, time, row, context):
        return fm.Decision.FIRE if time > self.limit else fm.Decision.CONTINUE


@fm.operator
def by_trigger(r: fm.Stream[R]) -> fm.Stream:
    return r.key_by("k").window(fm.Tumbling("1 hour"), trigger=Often()).aggregate(n=fm.count())


class Rising(fm.ProcessFunction):
    last = fm.ValueState(int)
    least = fm.ReducingState(int, lambda a, b: min(helpers.smallest(a), b))

    def __init__(self, pick):
        self.pick = pick

    def on_element(self, row, ctx):
        yield {"v": self.pick(row) + helpers.RATE}


@fm.operator
def by_process(r: fm.Stream[R]) -> fm.Stream:
    return r.key_by("k").process(Rising(helpers.cents), schema=V)
'''

FILES = {"flows.py": FLOWS, "helpers.py": HELPERS}
OPERATORS = [
    "by_module",
    "by_cache",
    "by_partial",
    "by_reduce",
    "by_panes",
    "by_aggregate",
    "by_assigner",
    "by_trigger",
    "by_process",
]
RATE, ROWS, SMALLEST = ("RATE = 2", "RATE = 3"), ('left["v"] +', 'left["v"] -'), ("return value", "return value + 1")
SEES = {"by_reduce": ROWS, "by_aggregate": SMALLEST}


def operator(tmp_path, name, old="", new=""):
    files = FILES | {"helpers.py": HELPERS.replace(old, new) if old else HELPERS}
    with imported(files, tmp_path):
        found = named(f"flows.{name}")
        assert found.version
        assert found.followed.parts
        return found


def deployed(operator):
    tables = {output.table: tuple(output.schema.types.items()) for output in operator.outputs}
    return Deployed(
        version=operator.version,
        fingerprint=operator.fingerprint,
        graph=operator.canonical(),
        tables=tables,
        code=operator.followed.digests,
        packages=operator.followed.packages,
    )


@pytest.mark.feature("Z23")
@pytest.mark.parametrize("name", OPERATORS)
def test_a_helper_called_as_module_f_is_part_of_the_version_whatever_calls_it(tmp_path, name):
    before, same = operator(tmp_path, name), operator(tmp_path, name)
    after = operator(tmp_path, name, *SEES.get(name, RATE))
    assert before.version == same.version != after.version
    assert not plan(deployed(before), same).changes
    changed = plan(deployed(before), after)
    assert changed.verdict in {"stateless change", "forward-only", "rebuild"}
    assert changed.code or name == "by_partial"  # which holds a value, and nothing that reads it


@pytest.mark.feature("Z23")
def test_what_a_bounded_run_has_computed_is_not_covered_once_a_helper_has_changed(tmp_path):
    before, after = operator(tmp_path, "by_module"), operator(tmp_path, "by_module", *RATE)
    day = Interval(start=0, end=86_400_000)
    entry = Entry(
        interval=day,
        version=before.version,
        fingerprint=before.fingerprint,
        late_rows="as_landed",
        inputs={},
        at="2024-01-01",
    )

    def stale(fingerprint, version):
        now = CoverageCheck(
            version=version,
            fingerprint=fingerprint,
            late_rows="as_landed",
            stale=lambda entry, piece: None,
            pieces=lambda whole: [whole],
        )
        (found,) = segments(day, [entry], now)
        return found.stale

    assert stale(before.fingerprint, before.version) == ""
    assert stale(after.fingerprint, after.version).startswith("the code changed: it was computed by by_module@")
    later = f"m{METHOD + 1}:{hex_of(before.fingerprint)}"
    assert stale(later, before.version).startswith("another release of floodmark computed it")


def test_a_plan_says_what_of_the_code_has_changed(tmp_path):
    before, after = operator(tmp_path, "by_module"), operator(tmp_path, "by_module", *RATE)
    assert plan(deployed(before), after).code == (("constant helpers.RATE", "changed"),)


# ---- methods of fingerprints


def test_a_fingerprint_names_the_method_that_made_it(tmp_path):
    found = operator(tmp_path, "by_module")
    assert found.fingerprint.startswith(f"m{METHOD}:")
    assert found.version == f"by_module@{hex_of(found.fingerprint)[:8]}"
    assert method_of("3f9a2c1b") == 1
    assert (compare("m2:a", "m2:a"), compare("m2:a", "m2:b"), compare("a", "m2:a")) == ("same", "other", "unknown")


def older(operator):
    """As an older floodmark would have deployed it: another digest of the graph, and of the code in it."""

    def rewritten(value):
        if isinstance(value, dict):
            coded = {n: "def f(row): ..." if n == "code" else rewritten(v) for n, v in value.items()}
            return coded | ({"function": "max"} if isinstance(value.get("function"), str) else {})
        return [rewritten(one) for one in value] if isinstance(value, list) else value

    whole = deployed(operator)
    return replace(whole, fingerprint="ab" * 32, graph=rewritten(whole.graph), code={})


@pytest.mark.parametrize("name", OPERATORS)
def test_code_that_another_method_has_digested_is_not_said_to_have_changed(tmp_path, name):
    found = operator(tmp_path, name)
    (change,) = plan(older(found), found).changes
    assert (change.where, change.verdict) == ("code", "not comparable")
    assert change.before == "fingerprints of method 1"


def test_what_else_has_changed_is_told_also_across_methods(tmp_path):
    found = operator(tmp_path, "by_module")
    graph = deployed(found).graph | {"inputs": [["r", "another", *deployed(found).graph["inputs"][0][2:]]]}
    changed = plan(replace(older(found), graph=graph), found)
    assert {change.where for change in changed.changes} == {"input 'r'", "code"}
    assert changed.verdict == "rebuild"


PLAIN = """
import floodmark as fm


class R(fm.Contract):
    at: fm.EventTime
    v: int


@fm.operator
def plain(r: fm.Stream[R]) -> fm.Stream:
    return r.filter("v > 1").window(fm.Tumbling("1 hour")).aggregate(n=fm.sum("v"))


@fm.operator(revision=1)
def revised(r: fm.Stream[R]) -> fm.Stream:
    return r.filter("v > 1").window(fm.Tumbling("1 hour")).aggregate(n=fm.sum("v"))
"""


def test_an_operator_without_functions_is_comparable_across_methods(tmp_path):
    with imported({"plain.py": PLAIN}, tmp_path):
        found = named("plain.plain")
        assert not plan(older(found), found).changes


def test_a_checkpoint_by_another_method_is_taken_over_where_no_function_can_have_changed(tmp_path):
    with imported({"plain.py": PLAIN}, tmp_path):
        found = named("plain.plain")
    identity = identity_of(tmp_path, found, older(found))
    identity.claim(found)
    assert identity.deployed().fingerprint == found.fingerprint


def test_a_checkpoint_by_another_method_asks_where_a_function_may_have_changed(tmp_path):
    found = operator(tmp_path, "by_module")
    identity = identity_of(tmp_path, found, older(found))
    with pytest.raises(StateError, match=r"STATE-003 .*, whose code cannot be compared\. See what has changed"):
        identity.claim(found)


def identity_of(tmp_path, operator, deployed):
    identity, file = Identity(checkpoint_at(str(tmp_path / "checkpoint"))), tmp_path / "checkpoint" / IDENTITY
    identity.deploy(operator)
    content = json.loads(file.read_text()) | {"fingerprint": deployed.fingerprint, "graph": deployed.graph}
    file.write_text(json.dumps(content))
    return identity


# ---- what a version cannot see


def test_a_revision_makes_another_version(tmp_path):
    with imported({"plain.py": PLAIN}, tmp_path):
        plain, revised = named("plain.plain"), named("plain.revised")
        assert "revision" not in plain.canonical()
        assert revised.canonical()["revision"] == 1
        again = replace(plain, revision=1)
        (change,) = plan(deployed(plain), again).changes
        assert (change.before, change.after, change.verdict) == ("revision 0", "revision 1", "forward-only")


@pytest.mark.parametrize("revision", [-1, "2", True])
def test_a_revision_is_a_number_from_0_on(tmp_path, revision):
    text = PLAIN.replace("revision=1", f"revision={revision!r}")
    with imported({"plain.py": text}, tmp_path), pytest.raises(DefinitionError) as error:
        named("plain.plain")
    assert str(error.value) == (
        f"DEFINITION-152 operator 'revised': expected a revision, 0 or more, got {revision!r}. "
        "Count up by one when its answers change for a reason that is not in its code: revision=1."
    )


NUMBERS = """
import floodmark as fm
import numpy as np
import duckdb


class R(fm.Contract):
    at: fm.EventTime
    v: float


def rooted(row):
    yield {"at": row["at"], "v": float(np.sqrt(row["v"]))}


@fm.operator
def roots(r: fm.Stream[R]) -> fm.Stream:
    return r.flat_map(rooted, schema=R)
"""


def test_packages_are_told_with_their_release_which_is_no_part_of_the_version(tmp_path):
    with imported({"roots.py": NUMBERS}, tmp_path):
        found = named("roots.roots")
        assert list(found.followed.packages) == ["numpy"]
        before = replace(deployed(found), packages={"numpy": "1.0", "pandas": "1.0"})
        told = plan(before, found)
        assert not told.changes
        assert told.packages == (("numpy", "1.0", found.followed.packages["numpy"]),)


def test_a_package_that_defines_operators_is_the_users_also_where_it_is_installed(tmp_path):
    digests = []
    for folder, helpers in (("src", HELPERS), ("site-packages", HELPERS), ("site-packages", HELPERS.replace(*RATE))):
        files = {
            "shipped/__init__.py": "",
            "shipped/helpers.py": helpers,
            "shipped/flows.py": FLOWS.replace("import helpers", "from shipped import helpers"),
        }
        with imported(files, tmp_path / folder):
            digests.append(named("shipped.flows.by_module").version)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("value", ["timedelta(minutes=1)", "{1, 2}", "Decimal('1.5')", "(1, {'a': [None]})"])
def test_settings_of_any_kind_are_part_of_the_version(tmp_path, value):
    text = FLOWS.replace("step=timedelta(minutes=1)", f"step={value}")
    versions = []
    for other in (text, text, text.replace(f"step={value}", "step=Decimal('7')")):
        with imported(FILES | {"flows.py": other}, tmp_path):
            versions.append(named("flows.by_aggregate").version)
    assert versions[0] == versions[1] != versions[2]


# ---- explain


def test_explain_says_what_was_followed_and_what_was_not(tmp_path):
    text = HELPERS.replace('row["v"] * RATE', 'globals()["RATE"] * row["v"]')
    with imported(FILES | {"helpers.py": text}, tmp_path):
        lines, document = explain(named("flows.by_module"))
        told = lines[lines.index("code:") :].splitlines()
        assert told[1:4] == [
            "  function flows.priced (flows.py:19)",
            "  function flows.below (flows.py:28)",
            "  function helpers.cents (helpers.py:5)",
        ]
        assert "  not followed: globals() in helpers; it counts with all of module helpers" in told
        assert {"kind": "function", "name": "helpers.cents"}.items() <= document["code"][2].items()


def test_a_function_typed_at_a_prompt_has_no_version():
    program = (
        "import sys, types; exec('def f(row): return row'); from floodmark.core.code import code_of\n"
        "try: code_of(f)\n"
        "except Exception as error: print(error.code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "DEFINITION-003"


MADE = """
namespace = {}
exec("def made(row):\\n    return row + 1", globals(), namespace)
made = namespace["made"]
OTHER = 1


def use(row):
    return made(row)
"""


def test_a_helper_made_by_a_program_counts_with_all_of_its_module(tmp_path):
    digests, followed = [], []
    for text in (MADE, MADE, MADE.replace("row + 1", "row + 2"), "# a comment\n" + MADE):
        with imported({"making.py": text}, tmp_path):
            digests.append(code_of(named("making.use")))
            followed.append(Followed.of([named("making.use")]))
    assert digests[0] == digests[1] == digests[3] != digests[2]
    unknown = next(part for part in followed[0].parts if part.kind == "unknown")
    assert (unknown.name, unknown.place) == ("made, made by a program in making", "counts with all of module making")


def test_a_version_that_is_asked_for_while_its_module_is_imported_sees_what_stands_below(tmp_path):
    versions = []
    for rate in ("2", "2", "3"):
        text = FLOWS.replace("def below(row):", "EARLY = by_module.version\n\n\ndef below(row):")
        with imported(FILES | {"flows.py": text.replace("helpers.cents(row)", f"row['v'] * {rate}")}, tmp_path):
            versions.append(named("flows.EARLY"))
    assert versions[0] == versions[1] != versions[2]


def test_a_module_that_counts_as_a_whole_may_define_the_operator(tmp_path):
    versions = []
    for rate in ("2", "2", "3"):
        text = FLOWS.replace("return helpers.cents(row)", f"return globals()['helpers'].cents(row) * {rate}")
        with imported(FILES | {"flows.py": text}, tmp_path):
            versions += [(named("flows.by_module").version, named("flows.by_process").version)]
    assert versions[0] == versions[1]
    assert versions[0][0] != versions[2][0]


# ---- it settles


VOLATILE = """
import itertools
import logging
import os
import random
import threading

log = logging.getLogger(__name__)
lock = threading.Lock()
rng = random.Random()
numbers = itertools.count()
environment = os.environ
nothing = object()
seen = {}


class Plain:
    pass


plain = Plain()


def use(row):
    log.info("x")
    with lock:
        return row, rng.random(), next(numbers), environment["HOME"], nothing, plain, seen
"""


def test_objects_of_the_process_make_no_new_version_in_every_process(tmp_path):
    (tmp_path / "volatile.py").write_text(VOLATILE)
    program = "import volatile, sys; from floodmark.core.code import code_of; sys.stdout.write(code_of(volatile.use))"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "PYTHONHASHSEED": seed, "HOME": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_a_big_module_is_followed_in_a_moment(tmp_path):
    text = "\n\n".join(f"def f{n}(row):\n    return [x for x in row if x > {n}] + f{n + 1}(row)" for n in range(300))
    with imported({"big.py": text + "\n\n\ndef f300(row):\n    return row\n"}, tmp_path):
        function = named("big.f0")
        reach = Reach().of(function)
        assert len(reach.parts) == 301
