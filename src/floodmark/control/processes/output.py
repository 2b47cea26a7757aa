"""Output of a process with several streams: what a stream writes goes to the log of the stream, whichever thread of it writes."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

_LOG = "_floodmark_log"
"""Attribute of a thread: the log of the stream that the thread belongs to."""


class _Output(io.TextIOBase):
    """Stands for ``sys.stdout`` or ``sys.stderr``.

    Args:
        process: output of threads that belong to no stream.
    """

    def __init__(self, process: TextIO) -> None:
        self._process = process

    def _log(self) -> TextIO:
        log: TextIO = getattr(threading.current_thread(), _LOG, self._process)
        return self._process if log.closed else log  # a thread that outlives its stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute there
        return self._log().encoding

    @property
    def buffer(self) -> BinaryIO:
        return self._log().buffer

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._log().fileno()

    def write(self, text: str) -> int:
        return self._log().write(text)

    def flush(self) -> None:
        self._log().flush()


def install() -> None:
    """Divide the output of this process from now on. A thread belongs to the stream of the thread that starts it."""
    sys.stdout, sys.stderr = cast("TextIO", _Output(sys.stdout)), cast("TextIO", _Output(sys.stderr))
    start = threading.Thread.start

    def started(self: threading.Thread) -> None:
        log = getattr(threading.current_thread(), _LOG, None)
        if log is not None:
            setattr(self, _LOG, log)
        start(self)

    threading.Thread.start = started  # type: ignore[method-assign]  # contexts are not inherited by threads before Python 3.14


@contextmanager
def into(path: Path) -> Iterator[None]:
    """Send what this thread writes, and threads that it starts, to the end of a file."""
    thread = threading.current_thread()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", buffering=1, encoding="utf-8", errors="backslashreplace") as log:
        before = getattr(thread, _LOG, None)
        setattr(thread, _LOG, log)
        try:
            yield
        finally:
            if before is None:
                delattr(thread, _LOG)
            else:
                setattr(thread, _LOG, before)
