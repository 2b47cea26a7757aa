"""``floodmark serve``: copies of a state: who waits for them, what stays of them on the disk, and what is answered when they fail."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from remembered import assert_equal, landed, remembered, rows_of, service, state_of

from floodmark.core.errors import SetupError
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.spark.session import builder
from floodmark.engines.spark.setup import jars
from floodmark.lake.folder import bucket as buckets
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.serve import spark_reader, state_files
from floodmark.serve.refusals import NotReady
from floodmark.serve.spark_reader import UnreadableError
from floodmark.serve.state_files import StateFiles

if TYPE_CHECKING:
    from s3_server import Proxy, Server

    from floodmark.engines.embedded.sail.session import Sail

SECONDS = 300


class Copies:
    """What a Java does for Spark's state, done to state of the embedded engine: a copy, which may wait or fail."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.failure = threading.Event(), threading.Event(), ""
        self.may_end.set()

    def convert(self, files: StateFiles, of: Any, checkpoint: str) -> str:
        """A copy of a checkpoint."""
        self.begun.set()
        assert self.may_end.wait(SECONDS)
        if self.failure:
            raise state_files._unreadable(of, UnreadableError(self.failure, "memory"))
        root = str(files._new_folder())
        shutil.copytree(checkpoint, root, dirs_exist_ok=True)
        return root


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[Copies]:
    """State of the embedded engine is copied as if it were Spark's."""
    made = Copies()
    monkeypatch.setattr(state_files, "NAME", "another engine")
    monkeypatch.setattr(state_files, "_SHARE", 0)
    monkeypatch.setattr(state_files, "_written_at", lambda _: 0)
    monkeypatch.setattr(spark_reader.SparkReader, "start", lambda _: None)
    monkeypatch.setattr(StateFiles, "_converted", lambda files, of, checkpoint, *_: made.convert(files, of, checkpoint))
    yield made
    made.may_end.set()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collector runs: what a cycle holds stays."""
    gc.disable()
    yield
    gc.enable()


def until(ask: Callable[[], Any]) -> None:
    """Wait until an answer is true."""
    end = time.monotonic() + SECONDS
    while not ask():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_question_waits_for_the_copy_that_it_needs_alone(
    sail: Sail, lake: Lake, tmp_path: Path, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, saved = rows_of(60, 8), list[str]()
    for count in (30, 60):
        landed(lake, rows[:count], count - 30)
        run_unbounded(sail, remembered, lake, until_caught_up=True)
        saved.append(savepoints.create("remembered", lake).id)
    with service(lake, tmp_path) as ask, ThreadPoolExecutor(4) as threads:
        of, answers = ask.service.states["remembered"], ask.service._at_savepoints
        first = answers.state(of, saved[0])
        copies.may_end.clear()
        copies.begun.clear()
        waiting = [threads.submit(answers.state, of, saved[1]) for _ in range(3)]
        assert copies.begun.wait(SECONDS)
        assert threads.submit(answers.state, of, saved[0]).result(SECONDS) is first
        copies.may_end.set()
        assert len({id(one.result(SECONDS)) for one in waiting}) == 1
        copies.may_end.clear()
        answers._made.clear()
        monkeypatch.setattr(state_files, "_WAIT_SECONDS", 3.0)
        begun = time.monotonic()
        for _ in range(20):
            with pytest.raises(NotReady):
                answers.state(of, saved[1])
        assert time.monotonic() - begun < 20 * 3, "the seconds are those of the first question"
        copies.may_end.set()
        assert_equal(ask, rows, saved[1])


@pytest.mark.feature("U1")
def test_answers_tell_why_no_newer_copy_was_made_and_old_copies_go(
    sail: Sail, lake: Lake, tmp_path: Path, copies: Copies, uncollected: None
) -> None:
    rows, lines = rows_of(90, 8), list[str]()
    landed(lake, rows[:30])
    run_unbounded(sail, remembered, lake, until_caught_up=True)
    with service(lake, tmp_path) as ask:
        files = ask.service._files
        files.say = lines.append
        copies.failure = "OutOfMemoryError"
        status, answer = state_of(ask, [])
        assert (status, answer["error"]["code"]) == (409, "SERVE-023")
        assert "spark.driver.memory" in answer["error"]["fix"]
        copies.failure = ""
        assert_equal(ask, rows[:30])
        for begin in (30, 60):
            landed(lake, rows[: begin + 30], begin)
            run_unbounded(sail, remembered, lake, until_caught_up=True)
            copies.failure = "no space"
            until(lambda: "no space" in (state_of(ask, [])[1]["as_of"]["failure"] or ""))
            assert_equal(ask, rows[:begin])
            copies.failure = ""
            until(lambda: state_of(ask, [])[1]["as_of"]["failure"] is None)
            assert_equal(ask, rows[: begin + 30])
            until(lambda: not files._pending)
        assert len(lines) == 2
        until(lambda: len([*(tmp_path / "copies" / "states").iterdir()]) == 1)


def test_questions_at_a_service_that_ends_are_refused_at_once(
    sail: Sail, lake: Lake, tmp_path: Path, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(lake, rows_of(30, 8))
    run_unbounded(sail, remembered, lake, until_caught_up=True)
    monkeypatch.setattr(state_files, "_WAIT_SECONDS", 10.0 * SECONDS)
    with service(lake, tmp_path) as ask, ThreadPoolExecutor(1) as threads:
        of, files = ask.service.states["remembered"], ask.service._files
        copies.may_end.clear()
        files._threads.submit(copies.may_end.wait, SECONDS)
        queued = threads.submit(files.committed, of, None)
        until(lambda: files._pending)
        files.close()
        for ask_again in (lambda: queued.result(SECONDS), lambda: files.committed(of, None)):
            with pytest.raises(NotReady, match="a service that ends") as refused:
                ask_again()
            assert refused.value.code == "SERVE-032"
        assert not files._pending
        copies.may_end.set()


def test_a_failure_that_nobody_asked_for_is_forgotten(
    sail: Sail, lake: Lake, tmp_path: Path, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(30, 8)
    landed(lake, rows)
    run_unbounded(sail, remembered, lake, until_caught_up=True)
    with service(lake, tmp_path) as ask:
        of, files = ask.service.states["remembered"], ask.service._files
        copies.failure = "no space"
        with monkeypatch.context() as hasty:
            hasty.setattr(state_files, "_WAIT_SECONDS", 0.0)
            copies.may_end.clear()
            with pytest.raises(NotReady):
                files.committed(of, None)
            copies.may_end.set()
        until(lambda: [one for one in files._pending.values() if one.failed])
        copies.failure = ""
        monkeypatch.setattr(state_files, "_FAILED_SECONDS", -1.0)
        assert_equal(ask, rows)


def test_a_reader_that_is_closed_while_its_process_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, calls = spark_reader.SparkReader(), list[str]()

    class Process:
        """A process that has been started, and cannot be ended before."""

        def start(self) -> None:
            calls.append("start")

        def terminate(self) -> None:
            assert calls
            calls.append("terminate")

        def join(self) -> None:
            calls.append("join")

    class End:
        """An end of a pipe to it."""

        def send(self, order: object) -> None:
            raise AssertionError(order)

        def close(self) -> None: ...

    class Context:
        """Where it is made, while the reader is closed."""

        def Pipe(self, **_: object) -> tuple[End, End]:  # noqa: N802 - as a context has it
            return End(), End()

        def Process(self, **_: object) -> Process:  # noqa: N802 - as a context has it
            closing.start()
            until(lambda: reader._closed)
            return Process()

    closing = threading.Thread(target=reader.close)
    monkeypatch.setattr(spark_reader, "get_context", lambda _: Context())
    with pytest.raises(UnreadableError, match="a service that ends"):
        reader.start()
    closing.join(SECONDS)
    assert not closing.is_alive()
    assert (calls[0], calls[-1]) == ("start", "join")
    assert "terminate" in calls


def test_a_folder_that_could_not_be_filled_goes(
    sail: Sail, s3: Server, s3_proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3_proxy.url
    bucket = Lake(f"{s3.bucket()}/lake")
    landed(bucket, rows_of(30, 8))
    run_unbounded(sail, remembered, bucket, until_caught_up=True)
    with service(bucket, tmp_path) as ask:
        of, files = ask.service.states["remembered"], ask.service._files

        def vanished(pairs: Any) -> None:
            raise FileNotFoundError(next(iter(pairs))[0])

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(buckets, "fetch", vanished)
            with pytest.raises(NotReady):
                files.committed(of, None)
        assert [*files.folder.iterdir()] == []
        root = files._new_folder()
        with pytest.raises(FileNotFoundError):
            state_files._state(of, str(root), 0, "1", 0, Timeline.current(bucket, of.name).folder(CHECKPOINT))
        assert not root.exists()


@pytest.mark.parametrize(
    ("error", "cause", "advice"),
    [
        (SetupError("Spark", "Java", "none", "Install it.", code="SETUP-001"), "setup", "Install Java"),
        (ModuleNotFoundError("No module named 'pyspark'"), "setup", "Install Java"),
        (RuntimeError("Job aborted: java.lang.OutOfMemoryError: Java heap space"), "memory", "spark.driver.memory"),
        (RuntimeError("[CANNOT_LOAD_STATE_STORE] checksum"), "state", "as of a savepoint"),
    ],
)
def test_what_reads_sparks_state_has_the_workspaces_settings_and_says_what_failed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, cause: str, advice: str, tmp_path: Path
) -> None:
    settings = list[dict[str, str]]()

    def session(*, extra: dict[str, str], **_: object) -> None:
        settings.append(extra)
        raise error

    monkeypatch.setattr(jars, "fetch", lambda: None)
    monkeypatch.setattr(builder, "spark_session", session)
    own = {"spark.driver.memory": "3g", "spark.driver.host": "pod", "spark.sql.caseSensitive": "true"}
    answer = spark_reader._answer(None, own)
    assert isinstance(answer, UnreadableError)
    assert answer.cause == cause
    assert settings == [{"spark.driver.memory": "3g", "spark.sql.caseSensitive": "true"}]
    with service(Lake(str(tmp_path / "lake")), tmp_path) as ask:
        refusal = state_files._unreadable(ask.service.states["remembered"], answer)
    assert advice in refusal.fix
    assert str(error) in refusal.got
