"""The name of this host, as far as process ids and local sockets go: hosts may share a name, and containers of one host do not share process ids."""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

_MACHINE, _PROCESSES = Path("/etc/machine-id"), Path("/proc/self/ns/pid")
_OF_MACHINE = 4026531836
"""Number of the namespace of process ids that a machine begins with, on every Linux."""
_DIGITS = 8


def host() -> str:
    """``name/machine``, and ``name/machine/namespace`` in a container with process ids of its own; the name alone where the system tells no more.

    Processes for which this text is the same see each other by their ids.
    """
    return "/".join((socket.gethostname(), *_further()))


def is_here(name: str) -> bool:
    """True if a text of ``host`` names this host. A name alone was written by an earlier version."""
    return name == host() or ("/" not in name and name == socket.gethostname())


@cache
def _further() -> tuple[str, ...]:
    parts = []
    with suppress(OSError):
        parts.append(_MACHINE.read_text("utf-8").strip()[:_DIGITS])
    with suppress(OSError, ValueError):
        number = int(str(_PROCESSES.readlink()).strip("pid:[]"))
        parts += [str(number)] if number != _OF_MACHINE else []
    return tuple(filter(None, parts))
