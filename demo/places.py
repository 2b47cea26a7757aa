"""Where a demo works, and whom it tells."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from floodmark.lake.folder.paths import Lake
from floodmark.spec.workspace import Engine

Mode = Literal["bounded", "unbounded"]
ENGINES: tuple[Engine, ...] = ("embedded", "spark")
"""The first one always computes."""
MODES: tuple[Mode, ...] = ("bounded", "unbounded")


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
    def landed(self) -> Lake:
        """The logs, which all runs read."""
        return Lake(str(self.folder / "landed"))

    def ran(self, engine: Engine, mode: Mode) -> Lake:
        """What an engine writes in a mode."""
        return Lake(str(self.folder / f"{engine}-{mode}"), logs=self.landed.root)

    @property
    def complete(self) -> Lake:
        """A bounded run in which no row is late."""
        return Lake(str(self.folder / "complete"), logs=self.landed.root)

    @property
    def experiment(self) -> Lake:
        """A stream with an experiment, and the lakes of its arms."""
        return Lake(str(self.folder / "experiment"), logs=self.landed.root)

    @property
    def page(self) -> Path:
        """The report of the experiment."""
        return self.folder / "experiment.html"

    @property
    def lakes(self) -> tuple[Lake, ...]:
        """All of them."""
        return (
            self.landed,
            self.complete,
            self.experiment,
            *(self.ran(engine, mode) for engine in ENGINES for mode in MODES),
        )
