"""Recorded answers of calls: they go where their stream goes, leave with the rows that are forgotten, and do not grow with micro-batches."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from answering import Service, fetched
from forget_process import PERSONS, Visit, source, write

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import DefinitionError
from floodmark.core.time import Interval
from floodmark.engines.forgetting import forget
from floodmark.lake.folder.copies import files_of
from floodmark.lake.folder.paths import Lake
from floodmark.lake.forgetting.keys import ForgottenKey
from floodmark.lake.forgetting.plan import look
from floodmark.lake.forgetting.search import search
from floodmark.lake.maintenance.retention import tidy_answers
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork, move
from floodmark.testing.lakes import outputs
from floodmark.testing.runs import final

FILES = 4
POINTS = crash.POINTS["forget"]


class Known(fm.Contract):
    """A visit with what a service says of its number."""

    person: str
    number: int
    doubled: int


def asking(port: int, name: str = "known", **settings: str | timedelta) -> fm.Operator:
    """Each visit, asked about."""

    async def double(visit, request):
        answer = await fetched(port, visit["number"], request.key)
        return Known(person=visit["person"], number=visit["number"], **answer)

    @fm.operator(name=name)
    def known(visits: fm.Stream[Visit]) -> fm.Stream:
        return visits.call(double, Known, **settings)

    return known


@pytest.fixture
def service() -> Iterator[Service]:
    """That answers at once."""
    with Service() as running:
        yield running


@pytest.fixture
def filled(embedded: Computing, tmp_path: Path) -> Callable[[fm.Operator], Lake]:
    """(operator) -> a lake in which its stream has read four files, one per run."""

    def fill(code: fm.Operator) -> Lake:
        lake, inbox = Lake(str(tmp_path / "lake")), tmp_path / "inbox"
        for number in range(FILES):
            write(inbox, number)
            embedded.land(source(inbox), lake)
            embedded.run_unbounded(code, lake, until_caught_up=True)
        return lake

    return fill


def numbers(lake: Lake, code: fm.Operator) -> list[int]:
    """Of the visits that are answered."""
    rows = final([outputs(lake, code)[""]])
    assert all(row["doubled"] == 2 * row["number"] for row in rows)
    return sorted(row["number"] for row in rows)


@pytest.mark.feature("A1")
def test_answers_go_with_a_stream_that_moves_and_a_rebuild_keeps_its_own(
    embedded: Computing, service: Service, filled: Callable[[fm.Operator], Lake], tmp_path: Path
) -> None:
    code = asking(service.port)
    lake = filled(code)
    before = numbers(lake, code)
    assert service.calls.total() == len(before) == 44
    there, _ = move(lake, code.name, str(tmp_path / "there"))
    shutil.rmtree(lake.internal("answers"))
    embedded.run_unbounded(code, there, until_caught_up=True, from_scratch=True)
    beside = Lake(there.internal("operators", code.name, "rebuild", "x"), logs=lake.root, upstream=there.root)
    embedded.run_unbounded(code, beside, until_caught_up=True)
    assert numbers(there, code) == numbers(beside, code) == before
    assert service.calls.total() == 44
    shutil.rmtree(there.internal("answers"))
    again = Lake(there.internal("operators", code.name, "rebuild", "y"), logs=lake.root, upstream=there.root)
    embedded.run_unbounded(code, again, until_caught_up=True)
    shutil.rmtree(again.root)
    assert service.calls.total() == 88
    embedded.run_unbounded(code, there, until_caught_up=True, from_scratch=True)
    assert service.calls.total() == 88, "what a rebuild was answered stays when its folder goes"


@pytest.mark.feature("A1")
def test_a_fork_reads_the_answers_of_its_original_and_writes_none_there(
    embedded: Computing, service: Service, filled: Callable[[fm.Operator], Lake], tmp_path: Path
) -> None:
    code = asking(service.port)
    lake = filled(code)
    forked = fork(lake, savepoints.create(code.name, lake), str(tmp_path / "fork"))
    write(tmp_path / "inbox", FILES)
    embedded.land(source(tmp_path / "inbox"), lake)
    held = sorted(files_of(lake.internal("answers")))
    embedded.run_unbounded(code, forked, until_caught_up=True)
    assert service.calls.total() == 55
    embedded.run_unbounded(code, forked, until_caught_up=True, from_scratch=True)
    assert service.calls.total() == 55
    assert sorted(files_of(lake.internal("answers"))) == held


@pytest.mark.feature("A1")
@pytest.mark.parametrize("streaming", [True, False])
def test_answers_about_a_person_are_forgotten_and_nobody_is_asked_again(
    embedded: Computing, service: Service, tmp_path: Path, streaming: bool
) -> None:
    code, lake, inbox = asking(service.port), Lake(str(tmp_path / "lake")), tmp_path / "inbox"
    for number in range(2):
        write(inbox, number)
    embedded.land(source(inbox), lake, until_caught_up=True, end=True)
    if streaming:
        embedded.run_unbounded(code, lake, until_caught_up=True)
    else:
        embedded.run_bounded(code, lake, Interval())
    before, asked = numbers(lake, code), service.calls.total()
    key = ForgottenKey.parse(f"person={PERSONS[1]}")
    done = forget(look([source(inbox)], [code], lake, [key]), embedded)
    assert done.searched.holding == ()
    assert numbers(lake, code) == [number for number in before if number % 4 != 1]
    assert service.calls.total() == asked
    embedded.run_bounded(code, lake, Interval(), force=True)
    assert service.calls.total() == asked, "answers about others are there still"
    assert not Path(lake.internal("answers_before", code.name)).exists()


class Killed(BaseException):
    """At a crash point."""


@pytest.mark.feature("A1")
@pytest.mark.parametrize(
    "point",
    [point if point == "forget.after_rows" else pytest.param(point, marks=pytest.mark.soak) for point in POINTS],
)
def test_a_forgetting_that_is_killed_asks_nobody_when_it_is_begun_again(
    embedded: Computing, service: Service, tmp_path: Path, point: str
) -> None:
    code, lake, inbox = asking(service.port), Lake(str(tmp_path / "lake")), tmp_path / "inbox"
    for number in range(2):
        write(inbox, number)
        embedded.land(source(inbox), lake)
        embedded.run_unbounded(code, lake, until_caught_up=True)
    savepoints.create(code.name, lake)
    before, asked = numbers(lake, code), service.calls.total()

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    key = ForgottenKey.parse(f"person={PERSONS[1]}")
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr(crash, "point", kill)
        forget(look([source(inbox)], [code], lake, [key]), embedded)
    forget(look([source(inbox)], [code], lake, [key]), embedded)
    assert search(lake.root, [key]).holding == ()
    assert numbers(lake, code) == [number for number in before if number % 4 != 1]
    embedded.run_unbounded(code, lake, until_caught_up=True, from_scratch=True)
    assert service.calls.total() == asked


@pytest.mark.feature("A1")
def test_upkeep_leaves_a_file_for_each_hour_and_no_hour_that_is_older_than_answers_are_kept(
    embedded: Computing, service: Service, filled: Callable[[fm.Operator], Lake]
) -> None:
    forever, brief = asking(service.port), asking(service.port, "brief", keep="2 hours")
    lake = filled(forever)
    embedded.run_unbounded(brief, lake, until_caught_up=True)
    asked = service.calls.total()
    dry = [(one.name, one.files) for one in tidy_answers(lake, dry_run=True)]
    assert dry == [(one.name, one.files) for one in tidy_answers(lake)]
    assert tidy_answers(lake) == []
    hours = {
        name: [path.split("/")[1] for path in files_of(lake.internal("answers", name)) if path.endswith(".arrow")]
        for name in ("known", "brief")
    }
    newest = max(hours["known"])
    assert len(hours["known"]) <= len(set(hours["known"])) + hours["known"].count(newest) - 1
    assert set(hours["brief"]) == set(sorted(set(hours["known"]))[-3:])
    embedded.run_unbounded(forever, lake, until_caught_up=True, from_scratch=True)
    assert service.calls.total() == asked, "merged answers are read"
    embedded.run_unbounded(brief, lake, until_caught_up=True, from_scratch=True)
    assert asked < service.calls.total() < asked + 44, "older rows are asked about again"
    with pytest.raises(DefinitionError, match="DEFINITION-055.*keep"):
        asking(service.port, keep="0 s")
