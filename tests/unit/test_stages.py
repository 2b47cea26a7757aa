"""Operators of several stages: what they compute, in memory; what is refused; what a plan says of a changed stage."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest
from events import Event, disorder
from staged import BUSIEST, PEAKS, REVISED, STAGED

import floodmark as fm
from floodmark.core.errors import CapabilityError, DefinitionError
from floodmark.core.time import Interval
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lake.results.needs import reads, stretches
from floodmark.lifecycle.plan import Deployed, plan
from floodmark.semantics.kernels.stage import stage_of
from floodmark.spec.graph.operator import Operator
from floodmark.testing.log import Log
from floodmark.testing.runs import final

MINUTE, HOUR = 60_000, 3_600_000


def in_memory(code: Operator, log: Log, cuts: int, *, restarts: bool = True) -> dict[str, list[dict[str, Any]]]:
    """The final rows of every output, in that many micro-batches, each by a run that resumes from the state of the one before."""
    going, tables = MemoryRun(code), defaultdict[str, list[Any]](list)
    bounds = [len(log.entries) * n // cuts for n in range(cuts + 1)]
    for first, last in pairwise(bounds):
        for name, table in going.batch({code.inputs[0].name: log.table(first, last)}).items():
            tables[name].append(table)
        going = MemoryRun(code, going.savepoint()) if restarts else going
    return {name: final(parts) for name, parts in tables.items()}


@pytest.mark.feature("W11", "B9")
@pytest.mark.parametrize("name", STAGED)
@pytest.mark.few(2)
def test_stages_give_the_same_however_their_input_is_cut(name: str) -> None:
    code = STAGED[name]
    log = disorder(code, 5, 150)
    whole = in_memory(code, log, 1)
    assert all(whole[output.name] for output in code.outputs if output.side is None)
    for cuts in (2, 9, 50):
        assert in_memory(code, log, cuts) == whole


def landed(log: Log, late_by: int = 0) -> list[tuple[int, str, int]]:
    """Time in ms, key and value of each row that is not late for a window of ten minutes by more than that."""
    rows = [row for row in log.table().to_pylist() if row["_kind"] == 0]
    return [
        (row["_event_time"], row["key"], row["value"])
        for row in rows
        if row["_event_time"] // (10 * MINUTE) * 10 * MINUTE + 10 * MINUTE - 1 + late_by > row["_watermark"]
    ]


def test_the_greatest_sum_of_an_hour_is_that_of_its_sums() -> None:
    log = disorder(PEAKS, 1, 240)
    sums = Counter[tuple[str, int]]()
    for time, key, value in landed(log):
        if value % 7:
            sums[key, time // (10 * MINUTE)] += value
    hours = defaultdict[tuple[str, int], list[int]](list)
    for (key, ten), total in sums.items():
        hours[key, ten // 6].append(total)
    answer = in_memory(PEAKS, log, 20)
    expected = {of: (len(totals), max(totals)) for of, totals in hours.items() if len(totals) > 1}
    got = {(row["key"], int(row["window_start"].timestamp()) // 3600): (row["tens"], row["most"]) for row in answer[""]}
    assert got == expected
    assert len(answer["quarantine"]) == len(hours) - len(expected) > 0
    assert len(answer["late"]) == sum(
        1 for row in log.table().to_pylist() if row["_kind"] == 0 and row["value"] % 7
    ) - sum(1 for *_, value in landed(log) if value % 7)


def test_an_aggregate_joined_with_an_aggregate_of_itself_is_one_stage_of_both() -> None:
    assert [stage.uid for stage in BUSIEST.stages] == ["busiest", "busiest_2", "busiest_3"]
    log = disorder(BUSIEST, 3, 120)
    counts = defaultdict[int, Counter[str]](Counter)
    for row in log.table().to_pylist():
        for end in (
            range(row["_event_time"] // (10 * MINUTE) + 1, row["_event_time"] // (10 * MINUTE) + 4)
            if row["_kind"] == 0
            else ()
        ):
            counts[end][row["key"]] += end * 10 * MINUTE - 1 > row["_watermark"]
    expected = {
        (end * 600, key, n) for end, keys in counts.items() for key, n in keys.items() if n == max(keys.values()) > 0
    }
    assert {(int(row["ends"].timestamp()), row["key"], row["n"]) for row in in_memory(BUSIEST, log, 9)[""]} == expected


def test_results_that_are_revised_revise_those_behind_them() -> None:
    log = disorder(REVISED, 4, 240)
    assert REVISED.outputs[0].revisable
    one_by_one = in_memory(REVISED, log, 60)
    sums = Counter[tuple[str, int]]()
    for time, key, value in landed(log, 15 * MINUTE):
        sums[key, time // (10 * MINUTE)] += value
    totals = Counter[tuple[str, int]]()
    for (key, ten), total in sums.items():
        totals[key, ten // 6] += total
    assert {
        (row["key"], int(row["window_start"].timestamp()) // 3600): row["total"] for row in one_by_one[""]
    } == totals


def daily(body: Any, name: str = "daily") -> Operator:
    return fm.operator(body, name=name)


def test_stages_without_names_are_numbered_and_a_name_twice_is_refused() -> None:
    def named(events: fm.Stream[Event], *names: str | None) -> fm.Stream:
        hours = events.key_by("key").window(fm.Tumbling("1 hour")).aggregate(n=fm.count(), uid=names[0])
        return hours.key_by("key").window(fm.Tumbling("1 day")).aggregate(n=fm.sum("n"), uid=names[1])

    def of(*names: str | None) -> Operator:
        def body(events: fm.Stream[Event]) -> fm.Stream:
            return named(events, *names)

        return daily(body)

    assert [stage.uid for stage in of(None, None).stages] == ["daily", "daily_2"]
    assert [stage.uid for stage in of("hours", None).stages] == ["hours", "daily"]
    with pytest.raises(DefinitionError, match="DEFINITION-450 operator 'daily': .*uid='hours' twice"):
        of("hours", "hours")


def test_an_operator_of_one_stage_is_its_own_link() -> None:
    def body(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("key").window(fm.Tumbling("1 hour")).aggregate(n=fm.count())

    code = daily(body)
    assert code.links == (code,)
    assert [link.version for link in PEAKS.links] == [PEAKS.version] * 2
    assert [len(link.stages) for link in STAGED["both"].links] == [1, 1, 0]
    with pytest.raises(AssertionError, match="computed by its links"):
        stage_of(PEAKS)


def _clocked(events: fm.Stream[Event]) -> fm.Stream:
    seconds = events.key_by("key").window(fm.Tumbling("1 second"), time="processing").aggregate(n=fm.count())
    return seconds.window(fm.Tumbling("1 hour")).aggregate(n=fm.sum("n"))


def _late_twice(events: fm.Stream[Event]) -> fm.Stream:
    hours = events.key_by("key").window(fm.Tumbling("1 hour"), late="side_output").aggregate(n=fm.count())
    return hours.window(fm.Tumbling("1 day"), late="side_output").aggregate(n=fm.sum("n"))


def _revised_sessions(events: fm.Stream[Event]) -> fm.Stream:
    hours = events.key_by("key").window(fm.Tumbling("1 hour"), allowed_lateness="1 hour").aggregate(n=fm.count())
    return hours.key_by("key").window(fm.Session("2 hours")).aggregate(n=fm.sum("n"))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (_clocked, "CAPABILITY-095 .*'daily', which waits for processing time.*Split it"),
        (_late_twice, "CAPABILITY-095 .*two outputs 'late'"),
        (_revised_sessions, "CAPABILITY-003 .*'step daily', whose rows may be taken back"),
    ],
)
def test_stages_that_cannot_follow_each_other_are_refused(body: Any, text: str) -> None:
    with pytest.raises(CapabilityError, match=text):
        daily(body)


def test_a_bounded_run_reads_from_the_first_window_of_the_first_stage() -> None:
    day = Interval(start=dt_ms(2), end=dt_ms(3))
    assert reads(PEAKS, day) == day
    within = Interval(start=dt_ms(2) + 30 * MINUTE, end=dt_ms(2) + 90 * MINUTE)
    assert stretches(PEAKS, within) == (Interval(start=dt_ms(2), end=within.end), within)
    assert reads(BUSIEST, day) == Interval(start=day.start - 20 * MINUTE, end=day.end)
    assert reads(STAGED["quiet"], day).start < 0, "a process function depends on all rows before"


def dt_ms(day: int) -> int:
    return int(dt.datetime(2020, 1, day, tzinfo=dt.UTC).timestamp() * 1000)


# ---- plans


def peaks(
    *, first: str = "10 minutes", second: str = "1 hour", over: str = "value % 7 <> 0", n: str = "n > 0"
) -> Operator:
    def body(events: fm.Stream[Event]) -> fm.Stream:
        tens = (
            events.filter(over).key_by("key").window(fm.Tumbling(first)).aggregate(n=fm.count(), total=fm.sum("value"))
        )
        return tens.filter(n).key_by("key").window(fm.Tumbling(second)).aggregate(most=fm.max("total"))

    return daily(body, "peaks")


def changes(before: Operator, after: Operator) -> list[tuple[str, str, str, str]]:
    tables = {output.table: list(output.schema.types.items()) for output in before.outputs}
    deployed = Deployed(version=before.version, fingerprint=before.fingerprint, graph=before.canonical(), tables=tables)
    return [(one.where, one.before, one.after, one.verdict) for one in plan(deployed, after).changes]


@pytest.mark.feature("W11")
def test_a_plan_names_the_stage_that_has_changed() -> None:
    assert changes(peaks(), peaks()) == []
    assert changes(peaks(), peaks(second="2 hours")) == [
        ("step 'peaks_2'", "Tumbling(size=1 hour)", "Tumbling(size=2 hours)", "rebuild")
    ]
    assert changes(peaks(), peaks(first="5 minutes")) == [
        ("step 'peaks'", "Tumbling(size=10 minutes)", "Tumbling(size=5 minutes)", "rebuild")
    ]
    assert changes(peaks(), peaks(n="n > 1")) == [("before 'peaks_2'", "filter n > 0", "filter n > 1", "forward-only")]
    assert changes(peaks(), peaks(over="value % 7 = 1")) == [
        ("before 'peaks'", "filter value % 7 <> 0", "filter value % 7 = 1", "forward-only")
    ]


def test_a_plan_says_that_a_stage_more_is_another_state() -> None:
    def body(events: fm.Stream[Event]) -> fm.Stream:
        hours = events.filter("value % 7 <> 0").key_by("key").window(fm.Tumbling("1 hour"))
        return hours.aggregate(most=fm.max("value"))

    one = daily(body, "peaks")
    assert changes(one, peaks()) == [("operator", "stages 'peaks'", "stages 'peaks_2' ('peaks')", "rebuild")]
    assert [verdict for *_, verdict in changes(peaks(), one)] == ["rebuild"]


def test_another_number_of_key_groups_divides_the_state_of_all_stages() -> None:
    before = peaks().grouped(128)
    deployed = Deployed(
        version=before.version,
        fingerprint=before.fingerprint,
        graph=before.canonical(),
        tables={output.table: list(output.schema.types.items()) for output in before.outputs},
        key_groups=128,
    )
    after = fm.operator(peaks().body, name="peaks", key_groups=16)
    assert {stage.groups for stage in after.stages} == {16}
    assert [change.verdict for change in plan(deployed, after).changes] == ["rescale"]
