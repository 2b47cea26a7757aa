"""Holding: a stream waits while a gate of one of its inputs is closed. It keeps its place, and goes on from there once the gate is released."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

from floodmark.control.state.records import Watch
from floodmark.lake.folder.paths import is_local
from floodmark.lake.results import gates
from floodmark.lake.results.gates import Gate

_REMOTE_SECONDS = 10.0
"""Time for which gates of a table in a bucket are not looked up again."""


@dataclass(slots=True)
class Holding:
    """Which gate holds a stream, looked up again and again. A lookup on a local disk costs some microseconds, in a bucket a request."""

    _known: dict[str, tuple[float, Gate | None]] = field(default_factory=dict)

    def gate_of(self, watch: Watch | None) -> Gate | None:
        """The first closed gate of the inputs of a stream; None if all are open."""
        paths = () if watch is None else (path for _, path in watch.inputs)
        return next((gate for gate in map(self._first, paths) if gate is not None), None)

    def _first(self, path: str) -> Gate | None:
        at, gate = self._known.get(path, (float("-inf"), None))
        if is_local(path) or time.monotonic() - at > _REMOTE_SECONDS:
            with suppress(OSError):  # the lake is away: what was known holds until it is back
                gate = next(iter(gates.closed(path)), None)
            self._known[path] = time.monotonic(), gate
        return gate
