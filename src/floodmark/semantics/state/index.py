"""The index of a key group whose windows are computed in columns: the content of each chunk of its store."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from floodmark.core.time import NEVER


@dataclass(slots=True)
class Chunk:
    """A chunk of partials: how many rows, and the slices in it with the first end each is on time for."""

    rows: int
    slices: list[int]
    from_ends: list[int]


TOGETHER = 1_000
"""Rows that wait in one chunk, unless more have come at once: all of it is read when the first is due."""
_MANY = 1 << 40
"""Keys in a layer that does not say how many."""
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(slots=True)
class Index:
    """What a group holds, by chunk number.

    Args:
        parts: chunks of on-time partials.
        pending: chunks of late rows whose windows have not fired -> those windows' ends.
        waiting: the same chunks -> how many rows; an older release has not counted.
        fired: end of a window that has fired and may refire -> its layers, [chunk, keys] each; what a newer one has of a key replaces
            what older ones have.
        fired_to: progress of the last firing.
        next: chunk number.
    """

    parts: dict[int, Chunk] = field(default_factory=dict)
    pending: dict[int, list[int]] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    fired: dict[int, list[list[int]]] = field(default_factory=dict)
    fired_to: int = NEVER - 1
    next: int = 0

    def forget(self, number: int) -> None:
        """Remove a chunk of waiting late rows from the index."""
        del self.pending[number]
        self.waiting.pop(number, None)

    @staticmethod
    def load(text: bytes | None) -> Index:
        """The index as it was written; a new one if there is none."""
        if text is None:
            return Index()
        raw = json.loads(str(text, "utf-8"))
        pending, waiting = (
            {int(n): v for n, v in raw[k].items()} if raw.get(k) else {} for k in ("pending", "waiting")
        )
        parts = {int(n): Chunk(*chunk) for n, chunk in raw["parts"].items()}
        # an older release stored each window in one chunk
        fired = {
            int(end): [[layers, _MANY]] if isinstance(layers, int) else layers
            for end, layers in raw.get("fired", {}).items()
        }
        return Index(parts, pending, waiting, fired, raw["fired_to"], raw["next"])

    def dump(self) -> bytes:
        """The index as JSON."""
        parts = {n: [c.rows, c.slices, c.from_ends] for n, c in self.parts.items()}
        late = {"pending": self.pending, "waiting": self.waiting} if self.waiting else {"pending": self.pending}
        other_fields = {**late, "fired": self.fired, "fired_to": self.fired_to, "next": self.next}
        return _ENCODER.encode({"parts": parts, **other_fields}).encode()
