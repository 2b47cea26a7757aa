"""A stream in a process: what it waits for, and how its end is recorded, whatever it was."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from events import Event
from idle_job import IdleJob

from floodmark import Settings, Stream, Tumbling, Workspace, count, operator
from floodmark.control.processes import running
from floodmark.control.processes.job import OperatorStream
from floodmark.control.processes.meter import Meter
from floodmark.control.processes.running import Running, await_job
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import Store
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake


@operator
def tallied(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


class Job(IdleJob):
    """A job that starts after some tries, and ends as a test says."""

    def __init__(self, *, held: int = 0, ends: BaseException | None = None) -> None:
        self.held, self.ends = held, ends

    def start(self) -> None:
        """Finds the lock held."""
        self.held -= 1
        if self.held >= 0:
            raise LifecycleError(
                "operator 'tallied'", "no other run", "one by process 1", "Wait.", code="LIFECYCLE-003"
            )

    def run(self, *_: object) -> None:
        """Ends."""
        if self.ends is not None:
            raise self.ends


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Job) -> tuple[Running, list[str]]:
    """A stream that has ended, and the lines of its log."""
    store, said = Store(f"sqlite:///{tmp_path}/control.db"), list[str]()
    about = {"root": "/", "lake": "/lake", "environment": "dev", "package": "p", "version": "tallied@1"}
    store.deploy(Deployment(operator="tallied", desired="running", **about))  # type: ignore[arg-type]
    monkeypatch.setattr(running, "job_of", lambda *_: job)
    monkeypatch.setattr(running, "_LOOK_SECONDS", 0.01)
    stream = Running(store, store.begin(store.deployments()[0], "/log"), Meter(), said.append)
    stream.run(lambda _: Workspace())
    stream.record_end()
    return stream, said


def test_another_run_is_waited_for_and_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, said = run(tmp_path, monkeypatch, Job(held=3))
    ended = stream.store.driver(stream.driver.id)
    assert (ended.state, ended.reason) == ("stopped", "stopped at a micro-batch boundary")
    assert set(said) == {"waiting: operator 'tallied': expected no other run, got one by process 1"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no"), "ValueError: no"),
        (SystemExit(3), "SystemExit: 3"),
        (MemoryError(), "MemoryError: "),
        (LifecycleError("a", "b", "c", "d.", code="LIFECYCLE-034"), "LIFECYCLE-034 a: expected b, got c. d."),
    ],
)
def test_however_a_stream_ends_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, reason: str
) -> None:
    stream, _ = run(tmp_path, monkeypatch, Job(ends=error))
    ended = stream.store.driver(stream.driver.id)
    assert (ended.state, ended.reason) == ("crashed", reason)
    assert not ended.died


def test_a_stream_waits_for_a_bounded_run_of_its_operator_and_names_it(tmp_path: Path) -> None:
    lake, waits = Lake(str(tmp_path)), list[str]()
    write_deltalake(lake.input(tallied.inputs[0]), pa.table({"key": ["a"]}))
    stream, stop = OperatorStream(tallied, Settings(lake=lake.root)), threading.Event()
    with exclusive(lake, "operators", "tallied", "run", role="bounded run"):

        def wait(text: str) -> None:
            waits.append(text)
            stop.set()

        assert not await_job(stream, stop, wait)
    assert waits[0].startswith("waiting for another run of tallied: bounded run, process ")
    stop.clear()
    assert await_job(stream, stop, wait)
