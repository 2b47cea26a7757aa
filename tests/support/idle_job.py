"""A job of a driver that commits nothing."""

from __future__ import annotations

from typing import Any, ClassVar

from floodmark.observe.measure import Measure


class IdleJob:
    """Needs nothing; what it runs is for subclasses."""

    version = "tallied@1"
    graph: ClassVar[dict[str, Any]] = {"nodes": [], "edges": []}

    def awaits(self) -> str:
        """Nothing."""
        return ""

    def missed(self, *_: object) -> list[Measure]:
        """Nothing."""
        return []
