"""Commits are recorded beside the stream: it waits for no store, and at its end all of them are recorded, in order."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from idle_job import IdleJob

from floodmark.control.processes.measuring import Measuring, Recorder
from floodmark.control.state import measures
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import Store
from floodmark.lifecycle.usage import Usage
from floodmark.observe.measure import Committed, Measure


def commit(number: int, history: str = "h") -> Committed:
    measure = Measure(history=history, number=number, at=float(number), seconds=0.1, rows_in=number)
    return Committed(number=number, progress=number, usage=Usage(rows=number), text=f"{number}", measure=measure)


def test_a_stream_goes_on_while_the_store_is_slow_and_what_has_come_meanwhile_is_one_transaction() -> None:
    answers, called, recorded = threading.Event(), threading.Event(), list[list[int]]()

    def record(commits: Sequence[Committed]) -> None:
        called.set()
        assert answers.wait(60)
        recorded.append([one.number for one in commits])

    with Recorder(record) as recorder:
        recorder.put(commit(0))
        assert called.wait(60)
        for number in range(1, 10):
            recorder.put(commit(number))
        assert recorded == []
        answers.set()
    assert recorded == [[0], [*range(1, 10)]]


def test_what_recording_fails_with_ends_the_stream() -> None:
    failed = threading.Event()

    def record(_: Sequence[Committed]) -> None:
        failed.set()
        raise ValueError("no")

    def stream(error: Exception | None) -> None:
        with Recorder(record) as recorder:
            recorder.put(commit(0))
            assert failed.wait(60)
            if error is not None:
                raise error

    with pytest.raises(ValueError, match="no"):
        stream(None)
    with pytest.raises(KeyError, match="of the stream") as raised:
        stream(KeyError("of the stream"))
    assert raised.value.__notes__ == ["Recording its commits has failed too: ValueError: no"]


def test_commits_of_one_call_are_counted_once_each_and_those_between_are_caught_up_with(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/control.db")
    about = {"root": "/", "lake": "/lake", "environment": "dev", "package": "p", "version": "tallied@1"}
    store.deploy(Deployment(operator="tallied", desired="running", **about))  # type: ignore[arg-type]
    (deployment,) = store.deployments()

    class Job(IdleJob):
        """Its tables have commits 0 to 9."""

        def missed(self, history: str, number: int) -> list[Measure]:
            """Those after a number."""
            return [commit(n).measure for n in range(number + 1, 10)]

    measuring = Measuring(store, store.begin(deployment, "/logs"), Job(), pytest.fail)
    measuring.record(*(commit(number).measure for number in (0, 1, 2)))
    measuring.record(*(commit(number).measure for number in (3, 6, 7)))
    measuring.record()
    measuring.record(commit(0, "anew").measure, commit(1, "anew").measure)
    found = measures.measured(store, deployment.stream)
    assert [one.number for one in found.recent if one.history == "h"] == [*range(8)]
    assert [one.number for one in found.recent if one.history == "anew"] == [0, 1]
    assert found.totals.commits == 10
