"""Bounds against loss: counted in one pass over stamps, against a walk of its own for every bound."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import land, late, learn, trace

from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.core.time import NEVER
from floodmark.lake.folder.paths import Lake
from floodmark.observe import bounds as module
from floodmark.observe.bounds import Rows, Window, fronts, picture, report, weigh
from floodmark.semantics.time.watermarks import WatermarkState, advance, decide
from floodmark.spec.rows.connector import Rows as Listed
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import BoundedOutOfOrderness, FromColumn, Learned, Punctuated, Source


class Reading(Contract):
    at: EventTime
    sensor: str


def source(watermark: object, **settings: object) -> Source:
    return Source("readings", contract=Reading, connector=Listed([]), watermark=watermark, **settings)  # type: ignore[arg-type]


START = 1_000_000_000_000
rows_of = st.lists(st.tuples(st.integers(START, START + 300), st.sampled_from("abc")), max_size=30)
some_bounds = st.sets(st.integers(0, 320), min_size=1, max_size=5)
windows = st.builds(lambda size, lateness: Window(size=size, lateness=lateness), st.integers(1, 90), st.integers(0, 60))


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own


def ms(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def batches(rows: list[tuple[int, str]], bound: int, cut: int) -> list[Rows]:
    """The rows with the stamps of a landing with that bound, in two batches, the later rows first."""
    stamps, _ = advance(WatermarkState(), trace(rows, bound), now=0)
    moments, at = ms([moment for moment, _ in rows]), np.where(stamps == NEVER, NEVER, stamps + bound + 1)
    return [Rows(moments[cut:], at[cut:]), Rows(moments[:cut], at[:cut])]


def dropped(rows: list[tuple[int, str]], bound: int, window: Window) -> Counter[int]:
    """By the definition: the row's window, whose last millisecond and lateness lie behind the row's stamp under that bound."""
    stamps, _ = advance(WatermarkState(), trace(rows, bound), now=0)
    found: Counter[int] = Counter()
    for (moment, _), stamp in zip(rows, stamps.tolist(), strict=True):
        start = moment // window.size * window.size
        if stamp > NEVER and start + window.size - 1 + window.lateness <= stamp:
            found[start] += 1
    return found


@pytest.mark.feature("T16")
@given(rows_of, st.integers(0, 100), some_bounds, st.integers(0, 30))
def test_rows_late_under_a_bound_equal_a_walk_with_that_bound(rows, landed_with, weighed, cut) -> None:
    costs, _ = weigh(batches(rows, landed_with, cut), dict.fromkeys(weighed, ()))
    assert {cost.bound: cost.late for cost in costs} == {bound: late(rows, bound) for bound in weighed}


@pytest.mark.feature("T16")
@given(rows_of, st.integers(0, 100), some_bounds, windows, st.integers(0, 30))
def test_rows_dropped_per_window_equal_a_walk_with_that_bound(rows, landed_with, weighed, window, cut) -> None:
    costs, lost = weigh(batches(rows, landed_with, cut), dict.fromkeys(weighed, ()), window)
    for at, cost in enumerate(costs):
        expected = dropped(rows, cost.bound, window)
        assert {start: counts[at] for start, counts in lost.items() if counts[at]} == expected
        assert (cost.dropped, cost.windows) == (expected.total(), len(expected))


commits_of = st.lists(st.tuples(st.integers(0, 5), rows_of), max_size=4)


@pytest.mark.feature("T15", "T16")
@given(commits_of, st.integers(0, 100), st.integers(0, 320))
def test_idle_source_partitions_are_idle_whatever_the_bound(commits, landed_with, other) -> None:
    stamps: dict[int, list[int]] = {}
    for bound in (landed_with, other):
        state, now, stamps[bound] = WatermarkState(), 0, []
        for pause, rows in commits:
            now += pause
            more, state = advance(state, trace(rows, bound), now=now, idle_timeout=3)
            stamps[bound] += more.tolist()
    moments = [moment for _, rows in commits for moment, _ in rows]
    known = ms(stamps[landed_with])
    rows = Rows(ms(moments), np.where(known == NEVER, NEVER, known + landed_with + 1))
    (cost,), _ = weigh([rows], {other: ()})
    assert cost.late == sum(moment <= stamp for moment, stamp in zip(moments, stamps[other], strict=True))


@pytest.mark.feature("T16", "T12")
@given(rows_of, some_bounds)
def test_a_larger_bound_never_makes_more_rows_late(rows, weighed) -> None:
    counts = [cost.late for cost in weigh(batches(rows, 0, 0), dict.fromkeys(weighed, ()))[0]]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.feature("T13", "T16")
@given(st.lists(st.tuples(st.integers(0, 120), rows_of), min_size=1, max_size=5))
def test_stamps_tell_the_front_whatever_bounds_there_were(pieces) -> None:
    state, fixed, at, stamps, expected, sequences = WatermarkState(), None, 0, [], [], []
    for bound, rows in pieces:
        state = decide(state, bound=bound, was=None, sequence=at)
        more, state = learn(state, rows)
        fixed = decide(fixed or WatermarkState(), bound=0, was=None, sequence=0)
        plain, fixed = learn(fixed, rows)
        expected += [NEVER if stamp == NEVER else stamp + 1 for stamp in plain]
        stamps, sequences, at = stamps + more, [*sequences, *range(at, at + len(rows))], at + len(rows) + 1
    found, known = fronts(ms(stamps), ms(sequences), state.learned.decisions)
    assert found[known].tolist() == [front for front, sure in zip(expected, known, strict=True) if sure]
    held = [decision.held for decision in state.learned.decisions if decision.held > NEVER]
    assert {stamps[row] for row in np.flatnonzero(~known)} <= set(held), "only rows of a held watermark are left out"


@pytest.mark.feature("T16")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(commits=st.lists(rows_of.filter(len), min_size=1, max_size=3), weighed=some_bounds, window=windows)
def test_a_report_on_a_landed_log_equals_brute_force(tmp_path_factory, commits, weighed, window) -> None:
    lake, last = Lake(str(tmp_path_factory.mktemp("lake"))), None
    fixed, rows = (
        source(BoundedOutOfOrderness("40 ms"), partition_by="sensor"),
        [row for commit in commits for row in commit],
    )
    for commit in commits:
        last = land(fixed, lake, commit, last)
    found = report(fixed, lake, bounds=sorted(weighed), window=window)
    assert (found.rows, found.left_out, found.in_force, found.learned) == (len(rows), 0, 40, None)
    assert {cost.bound: cost.late for cost in found.costs} == {bound: late(rows, bound) for bound in {*weighed, 40}}
    assert {cost.bound: cost.dropped for cost in found.costs} == {
        bound: dropped(rows, bound, window).total() for bound in {*weighed, 40}
    }


HOUR = 3_600_000
HOURLY = [(START + n * HOUR, "a") for n in range(100)]
BEHIND = [(START + 99 * HOUR - 90 * 60_000, "a"), (START + 90 * HOUR, "a")]


@pytest.mark.feature("T16")
def test_bounds_are_quantiles_of_the_delays_where_none_are_named(lake) -> None:
    fixed = source(BoundedOutOfOrderness("2 hours"))
    land(fixed, lake, HOURLY + BEHIND)
    found = report(fixed, lake)
    assert [(cost.bound, cost.names, cost.late) for cost in found.costs] == [
        (0, ("50%", "75%", "90%", "95%"), 2),
        (92 * 60_000, ("99%",), 1),
        (2 * HOUR, ("in force",), 1),
        (9 * HOUR, ("99.5%", "99.9%", "99.99%"), 0),
    ]


@pytest.mark.feature("T13", "T16")
def test_a_report_on_a_source_that_learns_proposes_and_remembers(lake) -> None:
    last = land(source(Learned(0.98, bound="2 hours")), lake, HOURLY + BEHIND)
    proposed = report(source(Learned(0.98, bound="2 hours")), lake)
    assert (proposed.in_force, proposed.proposed) == (2 * HOUR, 0)
    last = land(source(Learned(1, bound="9 hours")), lake, [(START + n * HOUR, "a") for n in (100, 106, 107, 99)], last)
    found = report(source(Learned(1, bound="9 hours")), lake)
    assert [(d.sequence, d.bound, d.held) for d in found.learned.decisions] == [
        (0, 2 * HOUR, NEVER),
        (103, 9 * HOUR, START + 97 * HOUR - 1),
    ]
    assert (found.in_force, found.proposed, found.rows, found.left_out) == (9 * HOUR, 9 * HOUR, 103, 3)
    assert found.learned.delays.rows == 106, "the sketch knows the rows that stamps do not tell"


@pytest.mark.feature("T16")
def test_only_rows_are_weighed_and_a_log_without_rows_costs_nothing(lake) -> None:
    fixed = source(BoundedOutOfOrderness("1 hour"))
    land(fixed, lake, [])
    found = report(fixed, lake)
    assert (found.rows, [(cost.bound, cost.late) for cost in found.costs]) == (0, [(HOUR, 0)])
    assert parsed(picture(found)).tag.endswith("svg")


@pytest.mark.feature("T16")
def test_the_picture_falls_from_left_to_right_and_names_the_bounds(lake) -> None:
    learned = source(Learned(0.98, bound="2 hours"))
    land(learned, lake, HOURLY + BEHIND)
    svg = picture(report(learned, lake))
    line = parsed(svg).find("{http://www.w3.org/2000/svg}polyline").get("points")
    points = [tuple(float(number) for number in point.split(",")) for point in line.split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted(y for _, y in points), "down is further along y"
    for text in ("in force", "proposed", "1 h", "6 h", "100%", "none"):
        assert f">{text}</text>" in svg


def test_a_log_that_is_not_there_says_how_to_land_it(lake) -> None:
    with pytest.raises(ExecutionError) as error:
        report(source(BoundedOutOfOrderness("1 hour")), lake)
    assert error.value.as_json() == {
        "code": "EXECUTION-002",
        "where": "source 'readings'",
        "expected": f"a Delta table at {lake.log('readings')}",
        "got": "none",
        "fix": "Land it first: floodmark land readings",
    }


def test_a_watermark_that_the_source_states_has_no_bound_to_weigh(lake) -> None:
    with pytest.raises(CapabilityError) as error:
        report(source(FromColumn("sensor")), lake)
    assert str(error.value) == (
        "CAPABILITY-021 source 'readings': expected a watermark with a bound, got FromColumn('sensor'), which says its "
        "watermark itself. Weigh a source with BoundedOutOfOrderness, Ascending, Punctuated or Learned."
    )


def test_more_windows_than_a_report_can_hold_are_refused(lake, monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_WINDOWS", 1)
    land(source(BoundedOutOfOrderness("1 hour")), lake, HOURLY + BEHIND)
    with pytest.raises(CapabilityError) as error:
        report(source(BoundedOutOfOrderness("1 hour")), lake, window=Window(size=60_000))
    assert str(error.value) == (
        "CAPABILITY-022 windows of 1 minute: expected at most 1 that lose rows, got 2 and more. "
        "Name larger windows, or larger bounds: --window '1 day'."
    )


@pytest.mark.feature("T9", "T16")
def test_a_punctuated_source_is_weighed_by_its_punctuation(lake) -> None:
    punctuated = source(Punctuated("sensor = 'p'", "1 hour"))
    land(punctuated, lake, HOURLY)
    assert report(punctuated, lake).in_force == HOUR
