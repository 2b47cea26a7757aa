"""The processes of one `floodmark up`: written down, so that the next one finds what a killed one left."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.cli.console import Console
from floodmark.core.errors import SetupError

if TYPE_CHECKING:
    import psutil

_FILE = "up.json"
_GRACE_SECONDS = 10
_POLL_SECONDS = 0.05


def record(home: Path, leader: int, url: str) -> None:
    """Write down who runs Dagster with this state, and the leader of Dagster's session."""
    import psutil

    born = {"up": psutil.Process().create_time(), "leader": psutil.Process(leader).create_time()}
    about = {"host": socket.gethostname(), "up": os.getpid(), "leader": leader, "born": born, "url": url}
    (home / _FILE).write_text(json.dumps(about), "utf-8")


def forget(home: Path) -> None:
    """Nothing of it is left."""
    (home / _FILE).unlink(missing_ok=True)


def settle(home: Path, console: Console) -> bool:
    """Stop the Dagster that an `up` which was killed has left on this machine; whether one was.

    Raises:
        SetupError: SETUP-060, that `up` is still at work.
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
    orphans = members(about["leader"], since=about["born"]["leader"])
    if orphans:
        numbers = ", ".join(str(one.pid) for one in orphans)
        console.note(
            f"process {about['up']}, an earlier `floodmark up`, was killed; stopping its Dagster: processes {numbers}"
        )
        end(about["leader"], since=about["born"]["leader"])
    forget(home)
    return True


def members(leader: int, since: float = 0.0) -> list[psutil.Process]:
    """The processes of a session.

    Args:
        leader: number of its first process, which may have ended.
        since: when that process was made, s since 1970: older processes belong to another session of that number.
    """
    import psutil

    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            mine = os.getsid(process.pid) == leader and process.create_time() >= since - 1
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def end(leader: int, since: float = 0.0) -> None:
    """Make sure that no process of a session is left; a zombie has ended, whenever its parent looks."""
    import psutil

    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in members(leader, since):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        deadline = time.monotonic() + _GRACE_SECONDS
        while members(leader, since) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def listener(port: int) -> str:
    """Who listens on a port: ``", by process 12 (python)"``; nothing where this system does not say."""
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
    import psutil

    try:
        process = psutil.Process(pid)
        return bool(abs(process.create_time() - born) < 1 and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
