"""The name of this host, as far as process ids and local sockets go: hosts may share a name, and containers of one host do not share process ids.

Also which of its processes lives: ids are used again, so that a process is known by its id and the time of its birth.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

_MACHINE, _PROCESSES = Path("/etc/machine-id"), Path("/proc/self/ns/pid")
_OF_MACHINE = 4026531836
"""Number of the namespace of process ids that a machine begins with, on every Linux."""
_DIGITS = 8
BORN_SECONDS = 2.0
"""Two processes with one id are the same if their times of birth differ by less. The kernel tells the time of boot, to which it adds, in whole seconds: when the
clock is set by a millisecond, all times of birth may move by a second."""


def host() -> str:
    """``name/machine``, and ``name/machine/namespace`` in a container with process ids of its own; the name alone where the system tells no more.

    Processes for which this text is the same see each other by their ids.
    """
    return "/".join((socket.gethostname(), *_further()))


def is_here(name: str) -> bool:
    """True if a text of ``host`` names this host. A name alone was written by an earlier version."""
    return name == host() or ("/" not in name and name == socket.gethostname())


def living(pid: int, born: float | None) -> psutil.Process | None:
    """(id, time of birth in s since 1970 or None for any) -> the process; None if it has ended, is a zombie, or a later process has its id."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        same = born is None or abs(process.create_time() - born) < BORN_SECONDS
        if same and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


@cache
def _further() -> tuple[str, ...]:
    parts = []
    with suppress(OSError):
        parts.append(_MACHINE.read_text("utf-8").strip()[:_DIGITS])
    with suppress(OSError, ValueError):
        number = int(str(_PROCESSES.readlink()).strip("pid:[]"))
        parts += [str(number)] if number != _OF_MACHINE else []
    return tuple(filter(None, parts))
