"""The name of this host, as far as process ids and local sockets go: hosts may share a name, and containers of one host do not share process ids.

Also which of its processes lives: ids are used again, so that a process is known by its id and the time of its birth.
"""

from __future__ import annotations

import os
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
"""Two processes with one id are the same if their times of birth differ by less, where these are by the clock: earlier releases have written such ones, and
some systems know no others. The kernel of Linux adds them to a time of boot in whole seconds, which moves when the clock is set."""
_START, _TICK_SECONDS = 19, 0.005
"""Place of a process's start among the fields behind its name in /proc/PID/stat; half of what it is counted in."""
_BY_CLOCK = 1e9
"""Least time of birth that is by the clock, s since 1970; no machine has been on for as long."""


def host() -> str:
    """``name/machine``, and ``name/machine/namespace`` in a container with process ids of its own; the name alone where the system tells no more.

    Processes for which this text is the same see each other by their ids.
    """
    return "/".join((socket.gethostname(), *_further()))


def is_here(name: str) -> bool:
    """True if a text of ``host`` names this host. A name alone was written by an earlier version."""
    return name == host() or ("/" not in name and name == socket.gethostname())


def birth(process: psutil.Process) -> float:
    """When a process was made, which setting the clock does not move: s since its machine was booted; where the system does not tell that, s since 1970."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{process.pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return int(fields[_START]) / os.sysconf("SC_CLK_TCK")
    return float(process.create_time())


def since(process: psutil.Process, born: float) -> float:
    """How much later than a time of birth a process was made, s; the time is one of ``birth``, or of an earlier release."""
    return (process.create_time() if born >= _BY_CLOCK else birth(process)) - born


def is_older(process: psutil.Process, born: float) -> bool:
    """True if a process was made before a time of birth, as the latter may be noted."""
    return since(process, born) <= -BORN_SECONDS


def is_born(process: psutil.Process, born: float | None) -> bool:
    """True if a process was made at a time of birth; None stands for any."""
    return born is None or abs(since(process, born)) < (BORN_SECONDS if born >= _BY_CLOCK else _TICK_SECONDS)


def living(pid: int, born: float | None) -> psutil.Process | None:
    """(id, time of birth or None for any) -> the process; None if it has ended, is a zombie, or a later process has its id."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if is_born(process, born) and process.status() != psutil.STATUS_ZOMBIE:
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
