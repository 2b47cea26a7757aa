"""A run waits for another run of its operator, whose process it names; a stream it does not wait for."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from filelock import FileLock

from floodmark.core import background
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder import locks
from floodmark.lake.folder.locks import CATCHING_UP, exclusive, held_by, holder
from floodmark.lake.folder.paths import Lake


def test_a_stream_is_not_waited_for(tmp_path: Path):
    lake, lines = Lake(str(tmp_path)), list[str]()
    with (
        exclusive(lake, "operators", "sales", "run", role="stream"),
        pytest.raises(LifecycleError, match=f"LIFECYCLE-003.*process {os.getpid()}.*floodmark stop sales, or"),
        exclusive(lake, "operators", "sales", "run", 900, on_wait=lines.append),
    ):
        pass
    assert lines == []


@pytest.mark.parametrize("role", ["bounded run", CATCHING_UP])
def test_a_run_that_ends_by_itself_is_waited_for(tmp_path: Path, role: str):
    lake, lines = Lake(str(tmp_path)), list[str]()
    with (
        exclusive(lake, "operators", "sales", "run", role=role),
        pytest.raises(LifecycleError, match="Wait until it is done, or stop it"),
        exclusive(lake, "operators", "sales", "run", 0.1, on_wait=lines.append),
    ):
        pass
    assert lines == [lines[0]]
    assert f"held by its {role}, process {os.getpid()}: waiting" in lines[0]


def test_a_run_that_need_not_wait_says_nothing(tmp_path: Path):
    lines = list[str]()
    with exclusive(Lake(str(tmp_path)), "operators", "sales", "run", 0.1, on_wait=lines.append):
        pass
    assert lines == []


@pytest.mark.parametrize("left", [None, "999999999 stream"])
def test_who_looks_at_a_lock_refuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str | None):
    """A look at who holds a lock holds it for a moment; the name of a holder that was killed may stand beside it."""
    lake, holder_of = Lake(str(tmp_path)), locks._holder
    path = Path(lake.internal("savepoints", "sales", "lock"))
    path.parent.mkdir(parents=True)
    if left is not None:
        path.with_name("lock.holder").write_text(left)
    look = FileLock(path)

    def looked(file: Path) -> tuple[str, str]:
        look.release()
        return holder_of(file)

    monkeypatch.setattr(locks, "_holder", looked)
    with look, exclusive(lake, "savepoints", "sales", "savepoint"):
        assert path.with_name("lock.holder").read_text() == f"{os.getpid()} savepoint"


def test_a_lock_that_is_released_while_another_process_reads_who_holds_it(tmp_path: Path):
    """Its holder's file goes at any moment: between a look whether it is there and the reading, too."""
    lake, ended = Lake(str(tmp_path)), threading.Event()

    def hold() -> None:
        while not ended.is_set():
            with suppress(LifecycleError), exclusive(lake, "savepoints", "sales", "savepoint"):
                pass

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            for _ in range(3_000):
                holder(lake, "savepoints", "sales")
                held_by(lake, "savepoints", "sales")
        finally:
            ended.set()
        holding.result()


def test_the_end_of_a_log_is_read_while_it_is_written_truncated_or_removed(tmp_path: Path):
    log = tmp_path / "driver.log"
    assert background.tail(log, 10) == ("", 0)
    log.write_bytes("first\nzweitens ü\n".encode())
    assert background.tail(log, 4) == (" ü\n", 18)
    assert background.tail(log, 2) == ("\ufffd\n", 18)
    assert background.tail(log, 4, since=6) == ("zweitens ü\n", 18)
    log.write_bytes(b"new\n")
    assert background.tail(log, 4, since=18) == ("", 4)
