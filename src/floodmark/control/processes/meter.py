"""Counts rows and measures processor time and memory of a stream's driver."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from floodmark.lifecycle.usage import Usage


@dataclass(slots=True)
class Meter:
    """The usage of this driver process: sums over its commits, and measured resources."""

    _counted: Usage = field(default_factory=Usage)
    _measured: Usage = field(default_factory=Usage)
    """Written by the heartbeat's thread."""

    def count(self, usage: Usage) -> None:
        """Add the usage of a commit."""
        self._counted = self._counted.plus(usage)

    def read(self) -> Usage:
        """The usage so far. Measures processor time and memory now."""
        processor, memory = 0.0, 0
        for process in _own_processes():
            with suppress(psutil.Error):  # the process has just ended
                times = process.cpu_times()
                processor += times.user + times.system + times.children_user + times.children_system
                memory += process.memory_info().rss
        before = self._measured
        self._measured = Usage(processor=max(before.processor, processor), memory=max(before.memory, memory))
        return self._counted.plus(self._measured)


def _own_processes() -> Iterator[psutil.Process]:
    """This process and its descendants in the same session. Processes in their own session are shared between drivers."""
    own, session = psutil.Process(), os.getsid(0)
    yield own
    yield from _of_session(own.children(recursive=True), session)


def _of_session(processes: Iterable[psutil.Process], session: int) -> Iterator[psutil.Process]:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == session:
                yield process
