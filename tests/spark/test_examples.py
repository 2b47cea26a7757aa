"""The examples by which time and windows are explained, against plain Python: each stream and its bounded run show many; functions and aggregates of one's own on Spark."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from pyspark.sql import SparkSession

import examples
from examples import BOUNDS, DISORDER, RELEASED, SECOND, SHUFFLED, SINE, Answer, answer_of, in_both_modes, kept
from floodmark import Aggregate, Operator, Session, Sliding, Stream, count, operator
from floodmark.control.processes.engine import Computing
from floodmark.core.time import to_ms
from floodmark.spec.windowing.windows import Window
from floodmark.testing.embedded import EmbeddedCase
from floodmark.testing.lakes import LakeCase
from floodmark.testing.log import Log
from floodmark.testing.spark import SparkCase


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of ``examples.seconds``: what was there before the watermark closed a window, what both modes have said, and what is said of rows all on time."""

    log: Log
    begins: dict[str, int]
    before: Answer
    modes: tuple[Answer, Answer]
    on_time: Answer


@pytest.fixture(scope="module")
def seconds(engine: Computing, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seconds:
    folder, (made, cut) = tmp_path_factory.mktemp("seconds"), examples.examples_of_seconds()

    def case(name: str) -> LakeCase:
        place = str(folder / name)
        if engine.name == "embedded":
            return EmbeddedCase(examples.seconds, place)
        return SparkCase(request.getfixturevalue("spark"), examples.seconds, place)

    stream = case("unbounded")
    stream.land(made.log, 0, cut)
    begun = stream.run_unbounded()
    before = answer_of(stream, begun)
    stream.land(made.log, cut)
    unbounded = answer_of(stream, begun, stream.run_unbounded())
    batch = case("bounded")
    batch.land(made.log)
    bounded = answer_of(batch, batch.run_bounded())
    on_time = answer_of(batch, batch.run_bounded(late_rows="all"))
    return Seconds(made.log, made.begins, before, (unbounded, bounded), on_time)


@pytest.mark.feature("L6", "L7")
def test_each_row_is_in_its_window_or_if_that_is_closed_in_the_late_output(seconds: Seconds) -> None:
    held, late = examples.in_seconds(seconds.log)
    assert sum(late.values()) > 10
    for said in seconds.modes:
        windows = {(row["example"], to_ms(row["window_start"])): (row["n"], row["top"]) for row in said.outputs[""]}
        assert windows == {window: (len(values), max(values)) for window, values in held.items()}, said.mode
        totals = {(row["example"], to_ms(row["window_start"])): row["total"] for row in said.outputs[""]}
        assert totals == pytest.approx({window: sum(values) for window, values in held.items()}, abs=1e-9), said.mode
        assert Counter((row["example"], to_ms(row["at"])) for row in said.outputs["late"]) == late, said.mode
        assert said.dropped == sum(late.values()), said.mode


@pytest.mark.feature("L1")
def test_a_window_is_said_when_the_watermark_reaches_its_last_millisecond_and_not_before(seconds: Seconds) -> None:
    assert seconds.before.of("closed") == seconds.before.of("open") == []
    for said in seconds.modes:
        assert said.windows("closed", "total", seconds.begins["closed"]) == {0: 3}
        assert said.windows("open", "total", seconds.begins["open"]) == {1: 4}


@pytest.mark.feature("T1")
def test_any_order_of_arrival_gives_the_same_windows(seconds: Seconds) -> None:
    """Where the bound covers the disorder in both modes; where it does not, once all rows count as on time."""
    wanted, orders = {1: 9, 12: 7, 3: 2, 28: 9}, range(len(list(itertools.permutations(SHUFFLED))))
    for said in (*seconds.modes, seconds.on_time):
        for n in orders:
            assert said.windows(f"order {n}", "total", seconds.begins["order 0"]) == wanted, (said.mode, n)
    for n in orders:
        assert seconds.on_time.windows(f"hasty {n}", "total", seconds.begins["hasty 0"]) == wanted, n
    assert seconds.modes[1].windows("hasty 0", "total", seconds.begins["hasty 0"]) != wanted
    assert seconds.on_time.dropped == len(seconds.on_time.outputs["late"]) == 0


@pytest.mark.feature("T4")
def test_films_released_out_of_order_are_told_in_order(seconds: Seconds) -> None:
    for said in seconds.modes:
        assert [row["top"] for row in said.of("told")] == [1, 2, 3, 4, 5, 6, 7]
        assert [row["top"] for row in said.of("released")] == list(RELEASED.values()) == [4, 5, 6, 1, 2, 3, 7]


@pytest.mark.feature("T5")
def test_a_sine_wave_sums_to_nothing_by_event_time_and_to_something_by_arrival(seconds: Seconds) -> None:
    for said in seconds.modes:
        by_event_time = said.windows("sine", "total", seconds.begins["sine"])
        by_arrival = said.windows("sine by arrival", "total", seconds.begins["sine by arrival"])
        assert list(by_event_time) == list(range(len(SINE) // 100))
        assert all(abs(total) <= 1e-9 for total in by_event_time.values())
        assert all(abs(total) > 1e-6 for total in by_arrival.values())
        assert abs(by_arrival[0]) > 10, "in the first second the end of the wave has yet to arrive"


@pytest.mark.feature("T12")
def test_a_watermark_that_was_wrong_loses_no_row_silently(seconds: Seconds) -> None:
    for said in seconds.modes:
        lost = {bound: len(said.of(f"bound {bound}", "late")) for bound in BOUNDS}
        counted = {bound: sum(row["n"] for row in said.of(f"bound {bound}")) for bound in BOUNDS}
        assert {bound: lost[bound] + counted[bound] for bound in BOUNDS} == dict.fromkeys(BOUNDS, len(DISORDER))
        assert [lost[bound] > 0 for bound in BOUNDS] == [True, True, True, False, False], "the last two are perfect"


@pytest.mark.feature("T18")
def test_a_row_is_late_when_the_watermark_has_reached_its_time(seconds: Seconds) -> None:
    for said in seconds.modes:
        assert (len(said.of("on time")), len(said.of("on time", "late"))) == (1, 0)
        assert (len(said.of("late")), len(said.of("late", "late"))) == (0, 1)


def run(spark: SparkSession, code: Operator, log: Log, folder: Path) -> tuple[LakeCase, tuple[Answer, Answer]]:
    """A stream of three micro-batches, of a third of the rows each, and a bounded run; what they have said."""
    return in_both_modes(lambda place: SparkCase(spark, code, place), log, str(folder))


@pytest.mark.soak
@pytest.mark.feature("W3", "W14", "L6")
def test_folds_of_five_seconds_that_begin_a_tenth_past(spark: SparkSession, tmp_path: Path) -> None:
    log = examples.disorder(examples.folds, 1, 240)
    held, dropped = examples.in_windows(log, 5 * SECOND, 5 * SECOND, 100)
    wanted = {
        window: reduce(lambda before, value: (before * 31 + value) % 9973, values) for window, values in held.items()
    }
    assert {start % (5 * SECOND) for _, start in wanted} == {100}
    assert dropped > 10
    _, modes = run(spark, examples.folds, log, tmp_path)
    for said in modes:
        assert {(row["example"], to_ms(row["window_start"])): row["value"] for row in said.outputs[""]} == wanted
        assert all(to_ms(row["window_end"]) - to_ms(row["window_start"]) == 5 * SECOND for row in said.outputs[""])
        assert said.dropped == dropped, said.mode


@pytest.mark.soak
@pytest.mark.feature("W2", "W18", "W21")
def test_sliding_minutes_of_all_keys_keep_a_row_once(spark: SparkSession, tmp_path: Path) -> None:
    log = examples.disorder(examples.lasting, 2, 240)
    held, dropped = examples.in_windows(log, 60 * SECOND, SECOND, keyed=False)
    case, modes = run(spark, examples.lasting, log, tmp_path)
    for said in modes:
        rows = {to_ms(row["window_start"]): (row["n"], row["total"]) for row in said.outputs[""]}
        assert rows == {start: (len(values), sum(values)) for (_, start), values in held.items()}, said.mode
        assert len(rows) == len(said.outputs[""]), "one for all keys"
        assert said.dropped == dropped
    sizes = [rows for rows, _ in kept(spark, case)]
    assert sizes[0] <= len(log.entries) // 2, "a row is in sixty windows, and kept once, with the others of its second"
    assert sizes[-1] == 0


@pytest.mark.feature("P1", "W16")
def test_a_function_sees_all_rows_of_a_window(spark: SparkSession, tmp_path: Path) -> None:
    _functions(spark, examples.medians(), median, tmp_path)


@pytest.mark.soak
@pytest.mark.feature("W17")
def test_a_function_sees_aggregates_of_a_window_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    _functions(spark, examples.means(), fmean, tmp_path)


def _functions(spark: SparkSession, code: Operator, middle, folder: Path) -> None:
    log = examples.disorder(code, 3, 150)
    held, _ = examples.in_windows(log, 10 * SECOND, 5 * SECOND)
    wanted = {(example, start, start + 10 * SECOND): middle(values) for (example, start), values in held.items()}
    _, modes = run(spark, code, log, folder)
    for said in modes:
        rows = {(row["example"], row["since"], row["until"]): row["middle"] for row in said.outputs[""]}
        assert rows == pytest.approx(wanted), said.mode
        assert len(rows) == len(said.outputs[""])


def spreads(window: Window) -> Operator:
    """An aggregate of the user's, whose accumulator is neither what goes in nor what comes out."""

    class Spread(Aggregate):
        type = "string"

        def create(self) -> Any:
            return []

        def add(self, accumulator: Any, value: Any) -> Any:
            return self.merge(accumulator, [value])

        def merge(self, left: Any, right: Any) -> Any:
            both = sorted([*left, *right])
            return [both[0], both[-1]]

        def result(self, accumulator: Any) -> Any:
            return f"{accumulator[0]:.0f} to {accumulator[-1]:.0f}"

    @operator
    def spreads(events: Stream[examples.Event]) -> Stream:
        return events.key_by("example").window(window).aggregate(n=count(), spread=Spread("value"))

    return spreads


@pytest.mark.feature("W15")
@pytest.mark.parametrize(
    "window",
    [Session("1 s"), pytest.param(Sliding("10 s", "5 s"), marks=pytest.mark.soak)],
    ids=["sessions", "sliding"],
)
def test_an_aggregate_of_ones_own_is_merged(spark: SparkSession, window: Window, tmp_path: Path) -> None:
    """By sessions that grow together, also over micro-batches, and by windows that overlap; none of these rows is late."""
    code = spreads(window)
    log = examples.disorder(code, 4, 150, sensors="abcd", behind=4)
    if isinstance(window, Sliding):
        held, _ = examples.in_windows(log, 10 * SECOND, 5 * SECOND)
        windows = {(example, start, start + 10 * SECOND): values for (example, start), values in held.items()}
    else:
        windows = examples.in_sessions(log, SECOND)
        assert len(windows) > 10 < max(map(len, windows.values())) * 5
    wanted = {window: (len(values), f"{min(values):.0f} to {max(values):.0f}") for window, values in windows.items()}
    _, modes = run(spark, code, log, tmp_path)
    for said in modes:
        found = {
            (row["example"], to_ms(row["window_start"]), to_ms(row["window_end"])): (row["n"], row["spread"])
            for row in said.outputs[""]
        }
        assert found == wanted, said.mode
        assert len(found) == len(said.outputs[""])
