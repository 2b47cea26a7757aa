"""Ports for servers of tests, which listen only some time after their port was chosen."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import IO

_FIRST, _LAST = 20_000, 32_000
"""Below those that the system gives to whoever asks for any port, so that nobody gets the port of a server that is yet to listen, or is down for a moment."""
_DRAW = random.SystemRandom()
_CHOSEN = set[int]()


@cache
def _claims() -> IO[bytes]:
    """A file for all processes of tests: each locks the byte of a port that it has chosen, for as long as it lives."""
    return (Path(gettempdir()) / f"floodmark-ports-of-{os.getuid()}").open("ab")


def free_port() -> int:
    """A port that nobody listens on and that no process of tests has chosen."""
    while True:
        port = _DRAW.randrange(_FIRST, _LAST)
        if port in _CHOSEN:
            continue
        with suppress(OSError):  # another process has chosen the port, or listens there
            fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            _CHOSEN.add(port)
            return port


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port at which connections are refused while the context lasts: it is taken, and nobody listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
