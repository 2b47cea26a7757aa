"""Ctrl-C: once stops at the next micro-batch boundary, twice aborts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from floodmark.cli.shell.console import Console
from floodmark.core.handlers import defer


@contextmanager
def stopping(console: Console, boundary: str) -> Iterator[threading.Event]:
    """A context with an event that SIGINT and SIGTERM set.

    Enter the context after Spark's session has started: Spark installs a handler of its own at its start.

    Args:
        console: prints a note at the first signal.
        boundary: the work that is finished before the stop, for the note.

    Raises:
        KeyboardInterrupt: at a second signal.
    """
    stop, signalled = threading.Event(), False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            raise KeyboardInterrupt
        signalled = True
        defer(lambda: tell(number))

    def tell(number: int) -> None:
        try:
            console.note(f"{signal.Signals(number).name}: stopping after {boundary}; once more aborts")
        finally:
            stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
