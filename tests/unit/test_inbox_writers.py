"""Four writers into an inbox while ``land --end`` runs again and again: no row is lost, no end is too early, and none of both without a word."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from inbox_clock import AGE, HEAD, Clock, key, no_sail, row, source
from seeds import seed_of

from floodmark import Source
from floodmark.connectors.readers.files import FileReader
from floodmark.core.errors import ConnectorError, LifecycleError
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.landing.lander import Lander
from floodmark.lake.folder.paths import Lake

_ALWAYS, _ALL = 3, 200
"""Schedules in every run, and in ``make soak``."""


class Writers:
    """Four writers on the clock of the landing.

    Args:
        inbox: the folder.
        clock: of the writers.
        draw: of the schedule.
        longest: longest pause of a writer, s.
    """

    def __init__(self, inbox: Path, clock: Clock, draw: random.Random, longest: float) -> None:
        inbox.mkdir()
        self.rows: dict[str, set[str]] = {}  # file -> keys
        self.unwritten = 0  # pieces of files
        self._inbox, self._clock, self._draw, self._longest = inbox, clock, draw, longest
        for writer in range(4):
            at = draw.uniform(0, 1)
            for number in range(draw.randint(1, 2)):
                at = self._plan(f"{writer}-{number}.csv", at)

    def source(self, *, declared: bool) -> Source:
        """The source of the inbox."""
        return source(self._inbox, min_age=f"{AGE:g} seconds" if declared else None)

    def _plan(self, name: str, at: float) -> float:
        """Plan one file, in place or by a rename; when it is complete."""
        by_rename, first = self._draw.random() < 0.3, 10 * len(self.rows)
        file = self._inbox / (f"{name}.part" if by_rename else name)
        numbers = range(first, first + self._draw.randint(1, 6))
        self.rows[name] = {key(number) for number in numbers}
        whole = HEAD + "".join(map(row, numbers))
        ends = sorted({self._draw.randint(1, len(whole)) for _ in range(self._draw.randint(0, 4))} | {len(whole)})
        for start, end in zip([0, *ends], ends, strict=False):
            self._at(at, partial(self._clock.append, file, whole[start:end]))
            at += self._draw.choice([0.01, 0.3, 1, self._longest]) * self._draw.random()
        if by_rename:
            self._at(at, partial(file.rename, self._inbox / name))
        return at + 0.01

    def _at(self, seconds: float, piece: Callable[[], object]) -> None:
        self.unwritten += 1

        def write() -> None:
            piece()
            self.unwritten -= 1

        self._clock.at(seconds, write)


def landed(lake: Lake) -> set[str]:
    """The keys of the rows in the log, each landed once."""
    rows = DeltaTable(lake.log("events")).to_pyarrow_dataset().to_table(filter=ds.field("_kind") == 0)
    keys = [text for text in rows["key"].to_pylist() if len(text) == len(key(0))]  # a half line has half a key
    assert len(keys) == len(set(keys))
    return set(keys)


def disturb(monkeypatch: pytest.MonkeyPatch, clock: Clock, draw: random.Random) -> None:
    """Let writers go on between and in the middle of the steps of a landing."""
    for kind, step in ((FileReader, "listed"), (FileReader, "open"), (Lander, "commit"), (Lander, "end")):
        taken = getattr(kind, step)

        def slowly(self, *args, taken=taken):
            clock.advance(draw.choice([0, 0.001, 0.1, 0.5]))
            result = taken(self, *args)
            clock.advance(draw.choice([0, 0.001, 0.1]))
            return result

        monkeypatch.setattr(kind, step, slowly)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the writers and of the landing."""
    return Clock().put_in(monkeypatch)


RUNS = pytest.mark.parametrize(
    "number", [*range(_ALWAYS), *(pytest.param(n, marks=pytest.mark.soak) for n in range(_ALWAYS, _ALL))]
)


@pytest.mark.feature("D6")
def test_the_rows_of_an_hourly_file_that_comes_late_are_late_by_the_bound(lake, tmp_path, clock) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for name, minute in (("10.csv", "10:59"), ("11.csv", "11:02"), ("09.csv", "09:30"), ("10b.csv", "11:01")):
        clock.append(inbox / name, f"{HEAD}2020-01-01T{minute}:00Z,{name}\n")
        land(no_sail, source(inbox), lake, stop=clock)
    rows = DeltaTable(lake.log("events")).to_pyarrow_dataset().to_table(filter=ds.field("_kind") == 0).to_pylist()
    late = [row["key"] for row in rows if row["_event_time"].timestamp() * 1000 <= row["_watermark"]]
    assert sorted(row["key"] for row in rows) == ["09.csv", "10.csv", "10b.csv", "11.csv"]
    assert late == ["09.csv"], "the bound is one minute"


@pytest.mark.feature("D6")
@RUNS
def test_no_row_is_lost_and_no_end_is_early_where_writers_pause_for_less_than_the_age(
    lake, tmp_path, clock, monkeypatch, number
) -> None:
    draw = random.Random(seed_of(f"writers {number}"))
    writers = Writers(tmp_path / "inbox", clock, draw, longest=AGE * 0.98)
    events = writers.source(declared=draw.random() < 0.5)
    disturb(monkeypatch, clock, draw)
    clock.advance(1)
    ended = False
    while not ended:
        if events.connector.min_age and draw.random() < 0.3:
            land(no_sail, events, lake, stop=clock)
        try:
            ended = land(no_sail, events, lake, end=True, stop=clock, wait_seconds=draw.choice([0, 0, 3])).ended
        except LifecycleError as error:
            assert error.code == "LIFECYCLE-185"  # noqa: PT017 - most of the landings end so
        clock.advance(draw.uniform(0, 8))
    assert writers.unwritten == 0
    assert landed(lake) == set().union(*writers.rows.values())


@RUNS
def test_a_row_that_a_writer_adds_after_a_longer_pause_is_named_with_its_file(
    lake, tmp_path, clock, monkeypatch, number
) -> None:
    draw = random.Random(seed_of(f"slow writers {number}"))
    writers = Writers(tmp_path / "inbox", clock, draw, longest=AGE * 6)
    events, reopen, named = writers.source(declared=draw.random() < 0.5), False, ""
    with monkeypatch.context() as steps:
        disturb(steps, clock, draw)
        clock.advance(1)
        while writers.unwritten:
            named, reopen = _landed_or_named(events, lake, clock, reopen=reopen)
            clock.advance(draw.uniform(0, 8))
    clock.advance(AGE)
    named, reopen = _landed_or_named(events, lake, clock, reopen=reopen)
    if reopen:
        named, reopen = _landed_or_named(events, lake, clock, reopen=reopen)
    lost = {name for name, rows in writers.rows.items() if not rows <= landed(lake)}
    assert lost <= {name for name in writers.rows if name in named}, (
        "and files of which only the last line end came later"
    )
    assert not reopen


def _landed_or_named(events: Source, lake: Lake, clock: Clock, *, reopen: bool) -> tuple[str, bool]:
    """(what an error of a landing with the end says, whether the end is to be taken back first)."""
    try:
        land(no_sail, events, lake, end=True, stop=clock, reopen=reopen)
    except LifecycleError as error:
        assert error.code in {"LIFECYCLE-185", "LIFECYCLE-011"}  # noqa: PT017 - most of the landings end so
        return str(error), error.code == "LIFECYCLE-011"
    except ConnectorError as error:  # half a header
        assert error.code == "CONNECTOR-010"  # noqa: PT017
        return str(error), False
    return "", False
