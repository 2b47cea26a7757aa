"""A server that processes share: one for all of them, apart in it, another one when it dies or has grown, and none when they have gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from embedded_process import revised
from pyspark.errors import AnalysisException

from floodmark.core.errors import ExecutionError, LifecycleError
from floodmark.core.host import birth
from floodmark.engines.embedded.sail import child, server
from floodmark.engines.embedded.sail.session import Sail, ServerLost
from floodmark.engines.embedded.sail.shared import SharedServer
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the server, which is gone afterwards whatever a test has done."""
    program = tmp_path / "child.py"
    text = Path(child.__file__).read_text("utf-8").replace("_SECONDS_ALONE = 10.0", "_SECONDS_ALONE = 1.0")
    first, patient = "alone = time.monotonic()\n", "alone = time.monotonic() + 60\n"  # the first user may be late
    assert text.count(first) > 1
    program.write_text(text.replace(first, patient, 1))
    monkeypatch.setattr(server, "_PROGRAM", program)
    yield tmp_path / "server"
    for process in servers(program):
        with suppress(psutil.Error):
            process.kill()


def servers(program: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(program) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def used(sail: Sail) -> int:
    with sail.lent() as connection:
        assert connection.spark.sql("SELECT 1 AS x").toArrow()["x"].to_pylist() == [1]
        return connection.server.pid


def _killed_while_used(sail: Sail) -> None:
    with sail.lent() as connection:
        os.kill(connection.server.pid, signal.SIGKILL)
        connection.spark.sql("SELECT 1").toArrow()


def ended(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)


def test_ten_that_begin_at_once_start_one_server_which_goes_with_the_last_of_them(folder: Path) -> None:
    with ThreadPoolExecutor(10) as threads:
        found = list(threads.map(lambda _: SharedServer(folder, 300), range(10)))
    assert len({one.pid for one in found}) == 1
    assert len(servers(folder.parent / "child.py")) == 1
    for one in found[1:]:
        one.close()
    found[0].wait(2)
    assert found[0].alive, "one uses it"
    spilled = Path(found[0].named.socket).parent
    assert spilled.is_dir()
    found[0].close()
    ended(found[0].pid)
    assert not found[0].alive
    assert not spilled.exists() and not spilled.with_name(f"{spilled.name}.lock").exists()
    again = SharedServer(folder, 300)
    assert again.pid != found[0].pid
    again.close()


def test_a_process_that_is_killed_lets_go_and_the_one_that_started_it_takes_nothing_with_it(folder: Path) -> None:
    program = f"""
        import sys
        from pathlib import Path
        from floodmark.engines.embedded.sail import server
        from floodmark.engines.embedded.sail.shared import SharedServer
        server._PROGRAM = Path({str(folder.parent / "child.py")!r})
        print(SharedServer(Path({str(folder)!r}), 300).pid, flush=True)
        sys.stdin.read()
    """
    first = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert first.stdin is not None and first.stdout is not None
    pid = int(first.stdout.readline())
    mine = SharedServer(folder, 300)
    os.killpg(first.pid, signal.SIGKILL)  # as a supervisor kills a driver that hangs, with all that it has started
    first.wait(60)
    first.stdin.close()
    first.stdout.close()
    assert mine.pid == pid
    assert mine.alive
    sail = Sail(300, folder=folder)
    try:
        assert used(sail) == pid
    finally:
        sail.close()
        mine.close()
    ended(pid)
    assert not servers(folder.parent / "child.py")


def test_sessions_are_apart_and_a_killed_server_costs_each_a_retry_and_one_new_server(folder: Path) -> None:
    sails = [Sail(300, folder=folder) for _ in range(2)]
    try:
        with sails[0].lent() as connection:
            connection.spark.sql("SELECT 7 AS x").createOrReplaceTempView("mine")
            assert connection.spark.sql("SELECT x FROM mine").toArrow()["x"].to_pylist() == [7]
            killed = connection.server.pid
        with sails[1].lent() as connection, pytest.raises(AnalysisException, match="mine"):
            connection.spark.sql("SELECT x FROM mine").toArrow()
        assert used(sails[1]) == killed
        with pytest.raises(ServerLost, match="ended while it was used"):
            _killed_while_used(sails[1])
        with ThreadPoolExecutor(2) as threads:
            (other,) = set(threads.map(used, sails))
        assert other != killed
    finally:
        for sail in sails:
            sail.close()


def test_who_finds_it_grown_starts_the_next_one_and_the_others_follow(folder: Path) -> None:
    one, other = Sail(300, folder=folder, most_uses=4), Sail(300, folder=folder)
    try:
        first = used(other)
        while (second := used(one)) == first:
            pass
        while used(other) == first:
            pass
        assert used(other) == second
        ended(first)
        assert [process.pid for process in servers(folder.parent / "child.py")] == [second]
    finally:
        one.close()
        other.close()


def test_what_is_named_and_gone_or_damaged_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    named = {"pid": os.getpid(), "born": birth(psutil.Process()), "port": 1, "socket": str(folder / "none")}
    for content in (json.dumps(named), "half a f", "{}"):
        (folder / "server.json").write_text(content)
        found = SharedServer(folder, 300, variables=())
        assert used_by(found) == found.pid
        found.close()
        ended(found.pid)
    broken = folder.parent / "broken.py"
    broken.write_text("import sys; sys.exit('no room')")
    monkeypatch.setattr(server, "_PROGRAM", broken)
    with pytest.raises(ExecutionError, match=r"EXECUTION-070 .*before it listened: no room"):
        SharedServer(folder, 300, variables=())


def used_by(found: SharedServer) -> int:
    assert found.alive and found.megabytes > 0
    return found.pid


def test_a_stream_that_runs_on_either_engine_is_begun_by_no_other(tmp_path: Path) -> None:
    lake, sail = Lake(str(tmp_path / "lake")), Sail(300)
    with (
        exclusive(lake, "operators", revised.name, "run", role="stream"),
        pytest.raises(LifecycleError, match=f"LIFECYCLE-003 .*one by process {os.getpid()}"),
    ):
        run_unbounded(sail, revised, lake, until_caught_up=True)
    assert not sail.started, "nobody has waited for a server"
