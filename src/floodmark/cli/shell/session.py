"""The processes of one `floodmark up`, recorded in a file, so that the next `up` finds the processes that a killed `up` has left."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.cli.shell.console import Console
from floodmark.core.errors import SetupError

if TYPE_CHECKING:
    import psutil

PORT = 3000
"""Port of Dagster's web server by default."""
_FILE = "up.json"
_GRACE_SECONDS = 10
_POLL_SECONDS = 0.05


def record(home: Path, leader: int, url: str) -> None:
    """Record that this process runs Dagster.

    Args:
        home: folder of Dagster's own state.
        leader: process number of the leader of Dagster's session.
        url: address of Dagster's web server.
    """
    import psutil

    from floodmark.core.host import birth

    born = {"up": birth(psutil.Process()), "leader": birth(psutil.Process(leader))}
    about = {"host": socket.gethostname(), "up": os.getpid(), "leader": leader, "born": born, "url": url}
    (home / _FILE).write_text(json.dumps(about), "utf-8")


def forget(home: Path) -> None:
    """Remove the record, when no process of it is left."""
    (home / _FILE).unlink(missing_ok=True)


def end_killed(home: Path, console: Console) -> bool:
    """Stop the Dagster that a killed `up` has left on this machine. Returns True if there was a killed `up`.

    Raises:
        SetupError: SETUP-060, the recorded `up` still runs.
    """
    file = home / _FILE
    if not file.exists():
        return False
    about: dict[str, Any] = json.loads(file.read_text("utf-8"))
    if about["host"] != socket.gethostname():
        return False
    if _is_same(about["up"], about["born"]["up"]):
        fix = f"Open {about['url']}; or stop that one: kill -INT {about['up']}. A second one beside it needs its own --state and --port."
        where, got = f"floodmark up with the state {home}", f"process {about['up']}, which serves {about['url']}"
        raise SetupError(where, "no other one at work", got, fix, code="SETUP-060")
    orphans = members(about["leader"], about["born"]["leader"])
    if orphans:
        numbers = ", ".join(str(one.pid) for one in orphans)
        console.note(
            f"process {about['up']}, an earlier `floodmark up`, was killed; stopping its Dagster: processes {numbers}"
        )
        end(about["leader"], about["born"]["leader"])
    forget(home)
    return True


def members(leader: int, born: float = 0.0) -> list[psutil.Process]:
    """The processes of a session, without zombies.

    Args:
        leader: number of the session's first process, which may have ended.
        born: time of birth of that process (``core.host.birth``). Older processes belong to another session of the same number.
    """
    import psutil

    from floodmark.core.host import is_older

    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            mine = os.getsid(process.pid) == leader and not is_older(process, born)
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def end(leader: int, born: float = 0.0) -> None:
    """End all processes of a session: SIGTERM, then SIGKILL, each with 10 s to end. A zombie counts as ended, as its parent may never reap it."""
    import psutil

    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in members(leader, born):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        deadline = time.monotonic() + _GRACE_SECONDS
        while members(leader, born) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def listener(port: int) -> str:
    """The process that listens on a port, in words: ``", by process 12 (python)"``; empty if the system does not say."""
    import psutil

    with suppress(psutil.Error, PermissionError):
        for connection in psutil.net_connections("tcp"):
            if (
                connection.laddr
                and connection.laddr.port == port
                and connection.status == psutil.CONN_LISTEN
                and connection.pid
            ):
                return f", by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""


def _is_same(pid: int, born: float) -> bool:
    from floodmark.core.host import living

    return living(pid, born) is not None
