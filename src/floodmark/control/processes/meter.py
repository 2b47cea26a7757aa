"""Counts rows and measures processor time and memory of a stream's driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from floodmark.lifecycle.usage import Usage


class Metering(Protocol):
    """Measures the usage of one stream."""

    def count(self, usage: Usage) -> None:
        """Add the usage of a commit."""
        ...

    def read(self) -> Usage:
        """The usage so far."""
        ...


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
        processor, memory = _measured()
        before = self._measured
        self._measured = Usage(processor=max(before.processor, processor), memory=max(before.memory, memory))
        return self._counted.plus(self._measured)


@dataclass(slots=True)
class Division:
    """The usage of a process with several streams, divided among them, so that the parts add up to the whole.

    A stream has the processor time of its thread and an equal share of the rest, and an equal share of the memory.
    """

    usages: dict[int, Usage] = field(default_factory=dict)
    """Driver -> processor time so far, and greatest share of memory."""
    _total: float = 0.0
    _threads: dict[int, float] = field(default_factory=dict)

    def measure(self, threads: Mapping[int, threading.Thread]) -> None:
        """Measure what was used since the last call.

        Args:
            threads: driver -> thread of its stream.
        """
        total, memory = _measured()
        spent = {number: _seconds(thread) for number, thread in threads.items()}
        own = {number: max(0.0, seconds - self._threads.get(number, 0.0)) for number, seconds in spent.items()}
        common = max(0.0, total - self._total - sum(own.values()))
        self._total, self._threads = total, spent
        for number in threads:
            before = self.usages.get(number, Usage())
            processor = before.processor + own[number] + common / len(threads)
            self.usages[number] = Usage(processor=processor, memory=max(before.memory, memory // len(threads)))


@dataclass(slots=True)
class ShareMeter:
    """The usage of one of the streams of this process: sums over its commits, and its part of the resources.

    Args:
        division: of the process.
        driver: of the stream.
    """

    division: Division
    driver: int
    _counted: Usage = field(default_factory=Usage)

    def count(self, usage: Usage) -> None:
        """Add the usage of a commit."""
        self._counted = self._counted.plus(usage)

    def read(self) -> Usage:
        """The usage so far; resources as they were last measured."""
        return self._counted.plus(self.division.usages.get(self.driver, Usage()))


def _seconds(thread: threading.Thread) -> float:
    """Processor time of a thread, s; 0 if the system does not say, or the thread has ended."""
    try:
        fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measured() -> tuple[float, int]:
    """Processor time, s, and resident memory, bytes, of this process and its own processes."""
    processor, memory = 0.0, 0
    for process in _own_processes():
        with suppress(psutil.Error):  # the process has just ended
            times = process.cpu_times()
            processor += times.user + times.system + times.children_user + times.children_system
            memory += process.memory_info().rss
    return processor, memory


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
