"""Ctrl-C: once stops at the next micro-batch boundary, twice aborts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from floodmark.cli.console import Console


@contextmanager
def stopping(console: Console, boundary: str) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second signal raises KeyboardInterrupt.

    Args:
        console: says so.
        boundary: what is finished first, for the message.

    Enter it after the session has started: Spark installs a handler of its own then.
    """
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        console.note(f"{signal.Signals(number).name}: stopping after {boundary}; once more aborts")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
