"""The examples by which watermarks are explained, landed and computed on Spark: one batch of rows under each strategy, against plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

import pytest
from engines import embedded
from stored import rows as stored

import floodmark as fm
from examples import Answer, answer
from floodmark.control.processes.engine import Computing
from floodmark.core.time import NEVER, Interval, to_ms
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.source import Strategy
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import outputs

pytestmark = pytest.mark.usefixtures("read_by_workers")

START = datetime(2020, 1, 1, tzinfo=UTC)
SECOND, WINDOW = 1_000, 5_000
CLOCK = to_ms(START) + 3_600_000
"""At which rows without a time land."""


class Reading(fm.Contract):
    """A row that may mark the time, or state it."""

    at: fm.EventTime
    value: int
    marks: bool
    states: int | None = None


class Arrival(fm.Contract, event_time="ingestion"):
    """A row without a time."""

    value: int


def seconds() -> list[int]:
    """When a row says it was: up to ten seconds behind the newest."""
    return [n - (n * 7) % 11 for n in range(10, 70)]


def moment(n: int) -> int:
    """Second -> ms."""
    return to_ms(START) + n * SECOND


def readings() -> list[dict[str, object]]:
    """Every seventh row marks the time, every tenth states that what came half a minute ago is there."""
    return [
        {
            "at": (START + timedelta(seconds=n)).isoformat(),
            "value": value,
            "marks": value % 7 == 3,
            "states": moment(n - 30) if value % 10 == 0 else None,
        }
        for value, n in enumerate(seconds())
    ]


STRATEGIES: dict[str, Strategy] = {
    "ascending": fm.Ascending(),
    "tight": fm.BoundedOutOfOrderness("3 s"),
    "wide": fm.BoundedOutOfOrderness("11 s"),
    "marked": fm.Punctuated("marks"),
    "stated": fm.FromColumn("states"),
}


LANDED = {"tight", "marked"}
"""By the engine itself: it measures delays, and finds the rows that mark the time. The others, which both engines stamp by the same code, by the embedded one."""


def reached(strategy: str) -> list[int]:
    """The watermark before each row and after the last one, by the words of the book."""
    moments = [moment(n) for n in seconds()]
    said = {
        "ascending": [at - 1 for at in moments],
        "tight": [at - 3 * SECOND - 1 for at in moments],
        "wide": [at - 11 * SECOND - 1 for at in moments],
        "marked": [at - 1 if value % 7 == 3 else NEVER for value, at in enumerate(moments)],
        "stated": [at - 30 * SECOND if value % 10 == 0 else NEVER for value, at in enumerate(moments)],
    }
    return list(accumulate([NEVER, *said[strategy]], max))


Readings = fm.Stream[Reading]


@fm.operator
def counted(
    ascending: Readings,
    tight: Readings,
    wide: Readings,
    marked: Readings,
    stated: Readings,
    arrivals: fm.Stream[Arrival],
) -> fm.Stream:
    """All sources as one stream of windows."""
    first, *others = (
        rows.select("value", example=f"'{name}'")
        for name, rows in zip(
            (*STRATEGIES, "arrivals"), (ascending, tight, wide, marked, stated, arrivals), strict=True
        )
    )
    windowed = first.union(*others).key_by("example").window(fm.Tumbling("5 s"), late="side_output")
    return windowed.aggregate(n=fm.count(), newest=fm.max("value"))


def arrivals(values: int) -> fm.Source:
    """So many rows without a time have come."""
    rows = fm.Rows([{"value": value} for value in range(values)])
    return fm.Source("arrivals", contract=Arrival, connector=rows, watermark=fm.Ascending())


@dataclass(frozen=True, slots=True)
class Landed:
    """What was landed and computed.

    Args:
        lake: with a log per source.
        first: what the stream had said while one source had yet to end.
        reached: the watermark of the stream then.
        modes: what both modes say in the end.
    """

    lake: Lake
    first: Answer
    reached: int
    modes: tuple[Answer, Answer]


@pytest.fixture(scope="module")
def landed(engine: Computing, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    lake = Lake(str(tmp_path_factory.mktemp("landed")))
    sources = {
        name: fm.Source(name, contract=Reading, connector=fm.Rows(readings()), watermark=strategy)
        for name, strategy in STRATEGIES.items()
    }
    for name, source in sources.items():
        (engine if name in LANDED else embedded()).land(source, lake, end=name != "wide")
    for seconds, values, end in ((0, 2, False), (7, 3, False), (9, 3, True)):
        embedded().land(arrivals(values), lake, clock=lambda: CLOCK + seconds * SECOND, end=end)  # noqa: B023 - called at once
    begun = engine.run_unbounded(counted, lake, until_caught_up=True)
    first = answer(outputs(lake, counted), [begun])
    embedded().land(sources["wide"], lake, end=True)
    ended = engine.run_unbounded(counted, lake, until_caught_up=True)
    stream = answer(outputs(lake, counted), [begun, ended])
    other = Lake(f"{lake.root}-bounded", logs=lake.root)
    bounded = engine.run_bounded(counted, other, Interval())
    return Landed(lake, first, begun.watermark, (stream, answer(outputs(other, counted), [bounded])))


def log(lake: Lake, name: str) -> list[tuple[int, int]]:
    """(event time, watermark before it) of each row of a log, as it arrived."""
    return [(to_ms(row._event_time), row._watermark) for row in stored(lake.log(name), "_sequence") if row._kind == ROW]


def late(strategy: str) -> list[int]:
    """The rows whose window was closed when they arrived."""
    return [
        value
        for value, (n, watermark) in enumerate(zip(seconds(), reached(strategy), strict=False))
        if moment(n) // WINDOW * WINDOW + WINDOW - 1 <= watermark
    ]


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("ascending", marks=pytest.mark.feature("T10")),
        pytest.param("tight", marks=pytest.mark.feature("T7")),
        "wide",
        pytest.param("marked", marks=pytest.mark.feature("T9")),
        pytest.param("stated", marks=pytest.mark.feature("T11")),
    ],
)
def test_a_strategy_moves_the_watermark_as_the_book_says(engine: Computing, landed: Landed, strategy: str) -> None:
    expected = list(zip([moment(n) for n in seconds()], reached(strategy), strict=False))
    assert log(landed.lake, strategy) == expected
    for said in landed.modes:
        assert sorted(row["value"] for row in said.of(strategy, "late")) == late(strategy), said.mode
        wanted = Counter(moment(n) // WINDOW * WINDOW for n in seconds()) - Counter(
            moment(seconds()[value]) // WINDOW * WINDOW for value in late(strategy)
        )
        assert {to_ms(row["window_start"]): row["n"] for row in said.of(strategy)} == wanted, said.mode


@pytest.mark.feature("T12", "T16")
def test_a_larger_bound_is_later_and_more_complete_and_never_wrong(engine: Computing, landed: Landed) -> None:
    truth = Counter(moment(n) // WINDOW * WINDOW for n in seconds())
    closings = {}
    for name in ("ascending", "tight", "wide"):
        stamps = [watermark for _, watermark in log(landed.lake, name)]
        closings[name] = {
            start: next((n for n, watermark in enumerate(stamps) if watermark >= start + WINDOW - 1), len(stamps))
            for start in truth
        }
    for faster, slower in pairwise(closings.values()):
        assert all(faster[start] <= slower[start] for start in truth)
        assert faster != slower
    for said in landed.modes:
        lost = [len(said.of(name, "late")) for name in closings]
        assert lost[0] > lost[1] > lost[2] == 0, "only the widest is perfect"
        assert {to_ms(row["window_start"]): row["n"] for row in said.of("wide")} == truth
        for name, rows in zip(closings, lost, strict=True):
            assert sum(row["n"] for row in said.of(name)) + rows == len(seconds()), "none is lost silently"


@pytest.mark.feature("T14", "X6")
def test_of_several_inputs_the_slowest_decides(engine: Computing, landed: Landed) -> None:
    """All others have ended; windows are said up to where that one is, its own and theirs."""
    assert landed.reached == reached("wide")[-1] == max(map(moment, seconds())) - 11 * SECOND - 1
    closed = {
        (row["example"], row["window_start"], row["n"], row["newest"])
        for row in landed.modes[0].outputs[""]
        if to_ms(row["window_end"]) - 1 <= landed.reached
    }
    assert {
        (row["example"], row["window_start"], row["n"], row["newest"]) for row in landed.first.outputs[""]
    } == closed
    assert {name for name, *_ in closed} == set(STRATEGIES)
    assert len(closed) < len(landed.modes[0].outputs[""])


@pytest.mark.feature("T3")
def test_a_row_without_a_time_keeps_the_moment_it_was_first_seen(engine: Computing, landed: Landed) -> None:
    """In the log, also when it is landed again, and in windows of both modes, long after it."""
    assert [at for at, _ in log(landed.lake, "arrivals")] == [CLOCK, CLOCK, CLOCK + 7 * SECOND]
    for said in landed.modes:
        windows = {to_ms(row["window_start"]): (row["n"], row["newest"]) for row in said.of("arrivals")}
        assert windows == {CLOCK: (2, 1), CLOCK + WINDOW: (1, 2)}, said.mode
        assert not said.of("arrivals", "late")
