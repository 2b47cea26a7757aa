"""``prove``: operators that keep the promise pass, one that does not is caught with the fewest rows that show it."""

from __future__ import annotations

import random
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import floodmark as fm
from floodmark.core.time import NEVER, from_ms
from floodmark.testing.proof import as_test, prove


class Event(fm.Contract):
    """A keyed number."""

    at: fm.EventTime
    key: str
    value: int


@fm.operator
def hourly(events: fm.Stream[Event]) -> fm.Stream:
    """Refired and late."""
    windowed = events.key_by("key").window(fm.Tumbling("20ms"), allowed_lateness="10ms", late="side_output")
    return windowed.aggregate(n=fm.count(), mean=fm.mean("value"), middle=fm.median("value"), top=fm.top_n("value", 2))


@fm.operator
def visits(events: fm.Stream[Event]) -> fm.Stream:
    """Sessions."""
    return events.key_by("key").window(fm.Session("6ms"), allowed_lateness="9ms").aggregate(n=fm.count())


@fm.operator(inputs={"first": fm.Source("first", contract=Event, connector=fm.Rows([]), watermark=fm.Ascending())})
def both(first: fm.Stream, second: fm.Stream[Event]) -> fm.Stream:
    """Sessions over two inputs, by event time."""
    return first.union(second).key_by("key").window(fm.Session("6ms")).aggregate(values=fm.collect("value"))


@fm.operator(inputs={"hours": hourly})
def best(hours: fm.Stream) -> fm.Stream:
    """A chain over revisions."""
    windowed = hours.key_by("key").window(fm.Sliding("60ms", "20ms"), allowed_lateness="50ms")
    return windowed.aggregate(most=fm.max("n"), hours=fm.count())


def landed(name: str, count: int, seed: int):
    """Rows with the stamps of a landing whose bound is 8 ms."""
    rng, newest, found = random.Random(seed), NEVER, []
    for number in range(count):
        time = number * 3 + rng.randrange(-15, 5)
        values = {"at": from_ms(time), "key": rng.choice("ab"), "value": rng.randrange(10)}
        stamps = {"_event_time": time, "_watermark": newest, "_sequence": number, "_kind": 0}
        found.append((name, values | stamps))
        newest = max(newest, time - 9)
    return found


@pytest.mark.feature("B1", "B9")
@pytest.mark.parametrize(
    ("operator", "entries"),
    [
        (hourly, landed("events", 200, 1)),
        (visits, landed("events", 200, 2)),
        (both, landed("first", 80, 3) + landed("second", 80, 4)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_bounded_is_unbounded_at_any_cut(operator, entries):
    found = prove(operator, entries, cuts=12, seed=5)
    assert found.seed is None, found.differences
    assert found.cuts == 12
    assert found.results > 10


def test_a_chain_over_rows_that_are_taken_back():
    entries = []
    for number, (n, kind, stamp, end) in enumerate(
        [
            (3, 0, 18, 20),
            (2, 0, 38, 40),
            (3, -1, 25, 20),
            (4, 0, 25, 20),
            (2, -1, 41, 40),
            (5, 0, 41, 40),
            (1, 0, 58, 60),
        ]
    ):
        window = {"key": "a", "window_start": from_ms(end - 20), "window_end": from_ms(end), "mean": 1.0, "middle": 1.0}
        stamps = {
            "_event_time": end - 1,
            "_watermark": stamp,
            "_sequence": number - (kind == 0 and n in {4, 5}),
            "_kind": kind,
        }
        entries.append(("hours", window | {"n": n, "top": [1]} | stamps))
    found = prove(best, entries, cuts=12)
    assert found.seed is None, found.differences


def test_a_function_that_remembers_is_caught_with_the_fewest_rows(tmp_path):
    seen: list[int] = []

    def odd(row):
        seen.append(row["value"])
        if len(seen) % 13 == 0:
            return
        yield {"key": row["key"], "at": row["at"], "value": row["value"]}

    @fm.operator
    def broken(events: fm.Stream[Event]) -> fm.Stream:
        return events.flat_map(odd, schema=Event)

    found = prove(broken, landed("events", 60, 1), cuts=40)
    assert found.seed is not None
    assert found.differences[0].startswith("only ")
    assert 1 <= len(found.sample) < 60
    saved = tmp_path / "test_sample.py"
    saved.write_text(as_test(broken, found))
    with pytest.raises(AssertionError, match="only "):
        run_saved(saved, broken, times=40)  # what it remembers is other each time
    run_saved(saved, visits)


def run_saved(file: Path, operator: fm.Operator, times: int = 1) -> None:
    """Run a saved test as if the workspace had that operator."""
    module = ModuleType("definitions")
    module.workspace = lambda: SimpleNamespace(operator=lambda _: operator)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "definitions", module)
        names = runpy.run_path(str(file))
        assert names["ENTRIES"]
        for _ in range(times):
            names["test_broken_says_the_same_bounded_and_unbounded"]()
