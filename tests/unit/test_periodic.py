"""Upkeep that a supervisor starts by itself: when it is time, one at a time, and whatever becomes of it the streams go on."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import psutil
import pytest
from deltalake import DeltaTable
from small_lake import CHANGELOG, batch, make, row, totals

from floodmark.control.processes import upkeep
from floodmark.control.processes.periodic import ACTION, Periodic, describe_upkeep
from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import CONTROL, Store
from floodmark.lake.folder.paths import Lake

ENDS = (sys.executable, "-c", "")
WAITS = (sys.executable, "-c", "import time; time.sleep(3600)")
FAILS = (sys.executable, "-c", "raise SystemExit(3)")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'control' / 'control.db'}")


def several(root: Path) -> Lake:
    """A lake after six micro-batches."""
    lake = make(root)
    for number in range(2, 6):
        batch(lake, number, [row("a", 10, 6 + number)])
    return lake


def deploy(store: Store, lake: str) -> None:
    names = dict.fromkeys(("operator", "environment", "package", "version"), "totals@1")
    store.deploy(Deployment(root="/", lake=lake, desired="stopped", **names))  # type: ignore[arg-type]


@pytest.fixture
def periodic(store: Store, tmp_path: Path) -> Iterator[Callable[..., Periodic]]:
    """Makes one whose upkeep is due at once."""
    made = list[Periodic]()

    def make_one(minutes: float = -1, **values: object) -> Periodic:
        made.append(Periodic(store, tmp_path / "control", minutes, say=lambda _: None, **values))  # type: ignore[arg-type]
        return made[-1]

    yield make_one
    for one in made:
        one.end()


def until(look: Callable[[], object], seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not seen():
        assert time.monotonic() < end, look
        look()
        time.sleep(0.02)


def test_a_supervisor_keeps_up_the_lakes_of_its_streams_and_writes_down_what_it_did(
    store: Store, tmp_path: Path, periodic: Callable[..., Periodic]
) -> None:
    lake = several(tmp_path / "lake")
    deploy(store, lake.root)
    one = Supervisor(store=store, home=tmp_path / "control", holder="one", say=lambda _: None, upkeep=periodic())
    until(one.tick, lambda: store.last(ACTION) is not None)
    detail = store.last(ACTION)["detail"]  # type: ignore[index]
    assert detail["lakes"] == [lake.root]
    assert not detail["errors"]
    assert detail["done"]["merged"] == 10
    assert len(DeltaTable(lake.output(CHANGELOG)).file_uris()) == 1
    assert "files fewer" in describe_upkeep(detail)


def test_a_lake_that_cannot_be_kept_up_is_told_and_the_others_are(
    store: Store, tmp_path: Path, periodic: Callable[..., Periodic]
) -> None:
    lake, other = several(tmp_path / "lake"), several(tmp_path / "other")
    deploy(store, lake.root)
    broken = Deployment(
        operator="more", root="/", lake=other.root, environment="", package="", version="", desired="stopped"
    )
    store.deploy(broken)
    folder = Path(lake.internal("savepoints", "totals", "totals-20261122T084512-9c1e"))
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    one = periodic()
    until(lambda: one.look("one"), lambda: store.last(ACTION) is not None)
    (error,) = store.last(ACTION)["detail"]["errors"]  # type: ignore[index]
    assert "LIFECYCLE-060" in error
    assert len(DeltaTable(other.output(CHANGELOG)).file_uris()) == 1
    assert len(DeltaTable(lake.output(CHANGELOG)).file_uris()) > 1


@pytest.mark.parametrize(("command", "why"), [(FAILS, "exit 3"), (WAITS, "killed by signal 9")])
def test_an_upkeep_that_fails_or_is_killed_is_told_and_comes_again(
    store: Store, tmp_path: Path, periodic: Callable[..., Periodic], command: tuple[str, ...], why: str
) -> None:
    deploy(store, str(tmp_path))
    one = periodic(command=command)
    one.look("one")
    assert one._child is not None
    first = one._child.pid
    if command is WAITS:
        for _ in range(3):
            one.look("one")
        assert one._child.pid == first, "one at a time"
        psutil.Process(first).kill()
    until(lambda: one.look("one"), lambda: store.last(ACTION) is not None)
    assert why in describe_upkeep(store.last(ACTION)["detail"])  # type: ignore[index]
    until(lambda: one.look("one"), lambda: one._child is not None)
    again = one._child.pid  # type: ignore[union-attr]
    one.end()
    assert again != first
    assert not psutil.pid_exists(again)


@pytest.mark.clock
def test_it_waits_its_time_after_the_last_one_whoever_did_it_and_whatever_the_clock_says(
    store: Store, periodic: Callable[..., Periodic], monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(store, "/lake")
    assert 0.9 * 3600 <= periodic(minutes=60)._next() - time.time() <= 1.1 * 3600
    store.note("ann", ACTION)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3000)
    assert periodic(minutes=60)._next() - time.time() < 1000
    monkeypatch.setattr(time, "time", lambda: now - 365 * 86_400)
    assert periodic(minutes=60)._next() - time.time() < 4000
    none = periodic(minutes=0)
    none.look("one")
    assert none._child is None


def test_two_at_once_take_turns(store: Store, tmp_path: Path) -> None:
    lake = several(tmp_path / "lake")
    deploy(store, lake.root)
    command = [sys.executable, "-m", "floodmark.control.processes.upkeep", str(tmp_path / "control"), "{}"]
    both = [forked.begin(command, env={**os.environ, CONTROL: store.url}) for _ in range(2)]
    assert [one.wait(300) for one in both] == [0, 0]
    assert sum(note["detail"]["done"]["merged"] for note in store.notes()) == 10
    assert totals(lake) == {"a": 10, "b": 2}


def test_a_lake_that_cannot_be_written_is_told_as_such(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make(tmp_path / "lake")
    deploy(store, lake.root)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", lake.root)

    monkeypatch.setattr(upkeep, "maintain", refuse)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setenv(CONTROL, store.url)
    assert upkeep.main(str(tmp_path / "control"), "{}") == 1
    (error,) = store.last(ACTION)["detail"]["errors"]  # type: ignore[index]
    assert "SETUP-051" in error
    assert lake.root in error


def test_without_streams_nothing_is_started(store: Store, periodic: Callable[..., Periodic]) -> None:
    one = periodic(command=ENDS)
    one.look("one")
    assert one._child is None
    assert store.last(ACTION) is None
    deploy(store, "/lake")
    one.look("one")
    assert one._child is not None
