"""Counters, gauges, histograms and meters of process functions: exact on both engines, whatever is computed again."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
from events import Event, disorder

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.control.processes.job import OperatorStream
from floodmark.control.processes.measuring import Measuring
from floodmark.control.state import measures
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import Store
from floodmark.core.errors import DefinitionError, UserCodeError
from floodmark.lake.folder.paths import Lake
from floodmark.spec.keyed.metric import Part, merge
from floodmark.spec.values.run import BatchInfo
from floodmark.testing.lakes import land

BOUNDS = (10, 20, 40)


class Rise(fm.Contract):
    """How much a key's number has grown."""

    at: fm.EventTime
    rise: int


class Rises(fm.ProcessFunction):
    """Fails for every thirteenth number, after it has counted: such a row is set aside, and counts nothing."""

    last = fm.ValueState(int)
    wake = fm.Timer()
    numbers = fm.Counter("numbers that came")
    twice = fm.Counter()
    seen = fm.Meter("numbers per second")
    level = fm.Gauge("the newest number")
    sizes = fm.Histogram(bounds=BOUNDS)
    woken = fm.Counter()

    def on_element(self, row, ctx):  # type: ignore[no-untyped-def]
        """A number."""
        value = row["value"]
        self.numbers.add()
        self.twice.add(2 * value)
        self.seen.mark()
        self.level.set(value)
        self.sizes.observe(value)
        if value % 13 == 0:
            raise ValueError(value)
        if not self.last.exists():
            self.wake.set(ctx.timestamp + 600_000)
        rise, _ = value - self.last.get(value), self.last.update(value)
        yield {"at": row["at"], "rise": rise}

    def on_timer(self, timer, ctx):  # type: ignore[no-untyped-def]
        """Ten minutes after a key's first number."""
        self.woken.add()


@fm.operator
def risen(events: fm.Stream[Event]) -> fm.Stream:
    return events.key_by("key").process(Rises(), schema=Rise, on_error="quarantine")


CODE: fm.Operator = risen
LOG = disorder(CODE, 3, 90)


def expected() -> dict[str, Part]:
    """Of the rows that are not set aside."""
    rows = [row for row in LOG.table().to_pylist() if row["_kind"] == 0 and row["value"] % 13]
    values = [row["value"] for row in rows]
    counts = [0] * (len(BOUNDS) + 1)
    for value in values:
        counts[bisect_left(BOUNDS, value)] += 1
    newest, level = max((row["_event_time"], row["value"]) for row in rows)
    return {
        "numbers": {"counter": len(values)},
        "twice": {"counter": 2 * sum(values)},
        "seen": {"meter": len(values)},
        "level": {"gauge": [newest, level]},
        "sizes": {"histogram": [list(BOUNDS), counts, sum(values)]},
        "woken": {"counter": len({row["key"] for row in rows})},
    }


TIMES = {"told": (1,), "twice": (2,), "lost": (0,), "twice or lost": (2, 0)}
"""How often each micro-batch in turn is counted."""


@pytest.mark.engines("embedded", "spark")
@pytest.mark.parametrize(
    "told",
    [
        pytest.param("twice or lost", marks=pytest.mark.feature("N1")),
        *(pytest.param(told, marks=pytest.mark.engines(soak=("spark",))) for told in ("told", "twice", "lost")),
    ],
)
def test_what_a_function_observes_is_exact_though_counts_are_repeated_or_lost(
    engine: Computing, tmp_path: Path, told: str
) -> None:
    lake, store = Lake(str(tmp_path / "lake")), Store(f"sqlite:///{tmp_path}/control.db")
    about: dict[str, Any] = {"root": "/", "environment": "dev", "package": "p", "version": CODE.version}
    store.deploy(Deployment(operator=CODE.name, lake=lake.root, desired="running", **about))
    (deployment,) = store.deployments()
    job = OperatorStream(CODE, fm.Settings(lake=lake.root), _engine=engine)
    counting = Measuring(store, store.begin(deployment, "/logs"), job, pytest.fail)

    times = cycle(TIMES[told])

    def tell(batch: BatchInfo) -> None:
        for _ in range(next(times)):
            counting.record(job._measured(batch))

    for first, last in pairwise(len(LOG.entries) * n // 3 for n in range(4)):
        land(lake, CODE, LOG, first, last)
        if engine.name == "embedded" or last == len(LOG.entries):  # on Spark in one driver
            stop = threading.Event()
            engine.run_unbounded(CODE, lake, stop=stop, on_batch=tell, until_caught_up=True, files_per_batch=1)
    counting.begin()
    assert measures.measured(store, deployment.stream).totals.metrics == expected()


def test_parts_merge_in_any_order_and_a_new_kind_begins_anew() -> None:
    parts: list[dict[str, Part]] = [
        {"a": {"counter": 1}, "g": {"gauge": [5, 1.0]}, "h": {"histogram": [[1, 2], [1, 0, 0], 0.1]}},
        {"a": {"counter": 2.5}, "g": {"gauge": [5, 3]}, "h": {"histogram": [[1, 2], [0, 2, 1], 0.2]}},
        {"g": {"gauge": [4, 9]}, "h": {"histogram": [[1, 2], [0, 0, 0], 0.3]}},
    ]
    whole = {
        "a": {"counter": 3.5},
        "g": {"gauge": [5, 3]},
        "h": {"histogram": [[1, 2], [1, 2, 1], math.fsum((0.1, 0.2, 0.3))]},
    }
    assert merge(parts) == merge(reversed(parts)) == whole
    assert merge([*parts, {"h": {"histogram": [[1], [4, 5], 6]}, "a": {"meter": 1}}]) == {
        "a": {"meter": 1},
        "g": {"gauge": [5, 3]},
        "h": {"histogram": [[1], [4, 5], 6]},
    }


class _Observations:
    open = True

    def __init__(self) -> None:
        self.items: list[tuple[str, float]] = []

    def add(self, name: str, value: float) -> None:
        self.items.append((name, value))


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: fm.Counter().bound(_Observations()).add(-1), "only grows"),
        (lambda: fm.Gauge().bound(_Observations()).set(math.nan), "a finite number, not nan"),
        (lambda: fm.Histogram().bound(_Observations()).observe(True), "a finite number, not True"),
        (lambda: fm.Meter().bound(_Observations()).mark("3"), "a finite number, not '3'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_observation_is_refused(use: Callable[[], None], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        use()


@pytest.mark.parametrize("bounds", [(), (2, 1), (1, 1), (1, math.inf), ("1",), (True, 2)])
def test_wrong_bounds_are_refused(bounds: tuple[Any, ...]) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-120 Histogram: expected ascending bounds"):
        fm.Histogram(bounds=bounds)


def test_a_metric_outside_a_callback_and_an_assignment_are_refused() -> None:
    function = Rises()
    with pytest.raises(UserCodeError, match="USER-006 metric 'numbers'"):
        function.numbers.add()
    with pytest.raises(UserCodeError, match="USER-004 metric 'numbers': expected a call, got an assignment"):
        function.numbers = fm.Counter()  # type: ignore[assignment]
