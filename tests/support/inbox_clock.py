"""An inbox whose writers and whose landing share one clock that the landing's waits advance."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Files, Source
from floodmark.connectors.readers import files
from floodmark.connectors.readers.files import END_AGE
from floodmark.engines.landing import closing, looks

SECOND = 1_000_000_000
AGE = END_AGE / 1000
"""Seconds for which a file must be unchanged before an end, unless the source declares another time."""


class Event(Contract):
    """Something that happened."""

    at: EventTime
    key: str


HEAD = "at,key\n"


def key(number: int) -> str:
    """The key of a row."""
    return f"{number:06d}"


def row(number: int) -> str:
    """A line of a file."""
    return f"2020-01-01T00:00:00Z,{key(number)}\n"


def no_sail() -> None:
    """Landing needs no server."""
    raise AssertionError


def source(inbox: Path, **settings: object) -> Source:
    """The source of an inbox, one file per commit."""
    files = Files(str(inbox), **settings)  # type: ignore[arg-type]
    return Source(
        "events", contract=Event, connector=files, watermark=BoundedOutOfOrderness("1 minute"), files_per_commit=1
    )


@dataclass
class Clock:
    """Stands in for ``time`` in the landing, and for its ``stop``: whoever waits advances it, and what is due happens meanwhile."""

    now: int = 1_900_000_000 * SECOND
    _due: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _number: count[int] = field(default_factory=count)

    def put_in(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        """In the place of the modules' clock."""
        for module in (looks, closing):
            monkeypatch.setattr(module, "time", self)
        monkeypatch.setattr(files, "END_AGE", END_AGE)
        return self

    def at(self, seconds: float, happening: Callable[[], None]) -> None:
        """Let something happen in so many seconds."""
        heapq.heappush(self._due, (self.now + int(seconds * SECOND), next(self._number), happening))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + int(seconds * SECOND)
        while self._due and self._due[0][0] <= until:
            self.now, _, happening = heapq.heappop(self._due)
            happening()
        self.now = until

    def append(self, file: Path, text: str) -> None:
        """A writer appends to a file now."""
        with file.open("a") as opened:
            opened.write(text)
        os.utime(file, ns=(self.now, self.now))

    def time_ns(self) -> int:
        """As ``time.time_ns``."""
        return self.now

    def monotonic_ns(self) -> int:
        """As ``time.monotonic_ns``."""
        return self.now

    def monotonic(self) -> float:
        """As ``time.monotonic``."""
        return self.now / SECOND

    def is_set(self) -> bool:
        """As an event that nobody sets."""
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """As an event that nobody sets."""
        self.advance(timeout or 0)
        return False
