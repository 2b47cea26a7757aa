"""Streams that read another stream's output, which is taken back or made anew while they are in their first micro-batch: they read what is there then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from restated import Story, halves, of_halves, standing

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.timeline import Timeline

READER = halves("plain")
SAID = [(-(1 << 62), "plain")]


class Killed(BaseException):
    """In the stead of SIGKILL."""


@pytest.fixture(scope="module")
def sail() -> Iterator[Sail]:
    """One server for all tests."""
    found = Sail(memory=300)
    yield found
    found.close()


@pytest.fixture
def story(sail: Sail, lake: Lake) -> Story:
    """A stream behind a savepoint."""
    story = Story(lake)
    story.land(110)
    run_unbounded(sail, story.begin("plain"), lake, until_caught_up=True)
    savepoints.create("totals", lake)
    story.land(150)
    run_unbounded(sail, story.begin("plain"), lake, until_caught_up=True)
    return story


def made(lake: Lake) -> Savepoint:
    (found,) = savepoints.savepoints(lake, "totals")
    return found


def killed(sail: Sail, lake: Lake, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader, at a write of its first micro-batch."""

    def point(name: str) -> None:
        if name == at:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(crash, "point", point)
        with pytest.raises(Killed):
            run_unbounded(sail, READER, lake, until_caught_up=True)


@pytest.mark.feature("V3")
@pytest.mark.parametrize("at", ["embedded.after_files", "embedded.after_state", "embedded.before_commit"])
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.few(2)
def test_a_first_micro_batch_that_has_written_nothing_is_not_repeated_over_other_rows(
    sail: Sail, story: Story, at: str, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read for it is taken back, or is another table's."""
    lake, code = story.lake, story.begin("plain")
    killed(sail, lake, at, monkeypatch)
    if anew:
        run_unbounded(sail, code, lake, until_caught_up=True, from_scratch=True)
    else:
        roll_back(lake, made(lake))
    story.land(201)
    for one in (code, READER):
        run_unbounded(sail, one, lake, until_caught_up=True)
    assert standing(lake.output("halves")) == of_halves(lake, SAID)


@pytest.mark.feature("V3")
def test_a_first_micro_batch_that_is_written_is_no_longer_ended_over_other_rows(
    sail: Sail, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, code = story.lake, story.begin("plain")
    killed(sail, lake, "embedded.after_commit", monkeypatch)
    with pytest.raises(LifecycleError, match="LIFECYCLE-035 .*of halves"):
        roll_back(lake, made(lake))
    assert roll_back(lake, made(lake), alone=True).left == ("halves",)
    story.land(201)
    run_unbounded(sail, code, lake, until_caught_up=True)
    with pytest.raises(LifecycleError, match="LIFECYCLE-038 .*--from-scratch"):
        run_unbounded(sail, READER, lake, until_caught_up=True)
    run_unbounded(sail, READER, lake, until_caught_up=True, from_scratch=True)
    assert standing(lake.output("halves")) == of_halves(lake, SAID)


@pytest.mark.feature("V3")
def test_a_reader_that_begins_behind_a_rollback_may_stop_on_its_way_through_what_is_there(
    sail: Sail, story: Story
) -> None:
    """The rollback lies before the version of the table that it began with."""
    lake, code, stop = story.lake, story.begin("plain"), threading.Event()
    roll_back(lake, made(lake))
    run_unbounded(sail, code, lake, until_caught_up=True)
    once: Callable[[object], None] = lambda _: stop.set()  # noqa: E731 - typed
    run_unbounded(sail, READER, lake, until_caught_up=True, files_per_batch=1, stop=stop, on_batch=once)
    assert Timeline.current(lake, "halves").checkpoint.positions(0)[0].version == -1
    there = savepoints.create("halves", lake)
    other = fork(lake, there, f"{lake.root}-fork")
    run_unbounded(sail, READER, other, until_caught_up=True, files_per_batch=1)
    roll_back(lake, there)
    run_unbounded(sail, READER, lake, until_caught_up=True, files_per_batch=1)
    assert standing(lake.output("halves")) == standing(other.output("halves")) == of_halves(lake, SAID)


@pytest.mark.feature("V3")
@pytest.mark.parametrize("anew", ["both", "reader"])
def test_what_a_reader_had_read_before_its_tables_were_made_anew_is_nothing_to_go_back_to(
    sail: Sail, story: Story, anew: str
) -> None:
    """The message names the way out, and not a computation that was just made."""
    lake, code = story.lake, story.begin("plain")
    run_unbounded(sail, READER, lake, until_caught_up=True)
    create_coordinated_savepoints("totals", lake)
    if anew == "both":
        run_unbounded(sail, code, lake, until_caught_up=True, from_scratch=True)
        with pytest.raises(LifecycleError, match="LIFECYCLE-040 .*'halves'.* made since.*run halves .*--from-scratch"):
            create_coordinated_savepoints("totals", lake)
    run_unbounded(sail, READER, lake, until_caught_up=True, from_scratch=True)
    there = savepoints.create("totals", lake)
    story.land(201)
    for one in (code, READER):
        run_unbounded(sail, one, lake, until_caught_up=True)
    with pytest.raises(LifecycleError, match="LIFECYCLE-035 .*--leave-readers"):
        roll_back(lake, there)
    assert roll_back(lake, there, alone=True).left == ("halves",)
    run_unbounded(sail, code, lake, until_caught_up=True)
    run_unbounded(sail, READER, lake, until_caught_up=True, from_scratch=True)
    assert standing(lake.output("halves")) == of_halves(lake, SAID)
