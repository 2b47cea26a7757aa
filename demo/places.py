"""Where a demo works, and whom it tells."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from floodmark.lake.paths import Lake


class Progress(Protocol):
    """Where the demo says what it does."""

    def say(self, text: str = "") -> None:
        """A line of the result."""
        ...

    def note(self, text: str) -> None:
        """A line about the way there."""
        ...

    def step(self, title: str) -> AbstractContextManager[None]:
        """Around something that takes a while."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The folders of one demo.

    Args:
        folder: holds the lakes and the report.
        root: of the workspace, where its ``pyproject.toml`` lies.
        inbox: the files that land.
    """

    folder: Path
    root: Path
    inbox: Path

    @property
    def bounded(self) -> Lake:
        """Lake A: the logs, and what bounded runs write."""
        return Lake(str(self.folder / "bounded"))

    @property
    def unbounded(self) -> Lake:
        """Lake B: what unbounded runs write, over the logs of A."""
        return Lake(str(self.folder / "unbounded"), logs=self.bounded.root)

    @property
    def complete(self) -> Lake:
        """Lake C: a bounded run in which no row is late."""
        return Lake(str(self.folder / "complete"), logs=self.bounded.root)
