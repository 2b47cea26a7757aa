"""What an engine does in a landing: it reads and checks units, keeps their rows until they are written, and writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from floodmark.connectors.unit import Reader, Unit
from floodmark.engines.landing.stamping import Stamping
from floodmark.engines.landing.units import Report
from floodmark.lake.commits import Landing
from floodmark.lake.paths import Lake
from floodmark.semantics.delays import Delays
from floodmark.spec.schema import Schema
from floodmark.spec.source import Source

ONE_FILE_ROWS = 1_000_000
"""Up to so many rows a commit is one file."""


class Blobs(Protocol):
    """The units of one commit, read once. Only small facts are in the driver."""

    @property
    def reports(self) -> Sequence[Report]:
        """What is known of each unit, in order."""
        ...

    def measured(self, plan: Stamping) -> Delays:
        """How far the rows come behind; the plan starts from unheld states."""
        ...

    def set_aside(
        self, path: str, names: Sequence[str], reports: Mapping[int, Report], *, source: str, ordinal: int, now: int
    ) -> None:
        """Append to the quarantine table: the broken rows of units that land, one entry for each unit that does not.

        Args:
            path: of the table, which is created where there is none.
            names: of all units of the commit.
            reports: by unit, of those that are decided.
            source: its name.
            ordinal: of the landing commit.
            now: ms UTC.
        """
        ...

    def mark(self, path: str, ordinal: int) -> None:
        """Note in the quarantine table which of its rows land with a commit, and why the others do not."""
        ...

    def append(
        self, path: str, landing: Landing, schema: Schema, plan: Stamping, *, modified: int, widen: bool
    ) -> None:
        """Append the rows and the marker to the log, once.

        Args:
            path: of the log.
            landing: record of the commit.
            schema: of the rows.
            plan: of their stamps.
            modified: modification time of the first file, ms.
            widen: the schema has nullable columns that the log does not have yet.
        """
        ...

    def release(self) -> None:
        """Give back what keeps the rows."""
        ...


class Workers(Protocol):
    """An engine, at work for one landing."""

    def check(self, source: Source, lake: Lake) -> None:
        """Refuse what this engine cannot land with the other one's answer; before anything is written."""
        ...

    def create_log(self, source: Source, path: str) -> None:
        """Create an empty log where there is none."""
        ...

    def parsed(self, reader: Reader, units: Sequence[Unit], source: Source, now: int) -> Blobs:
        """Read and check units.

        Args:
            reader: of the source's connector.
            units: in order.
            source: contract, limits, what moves the watermark.
            now: the landing clock, ms.
        """
        ...

    def replayed(self, path: str, source: Source, now: int) -> Blobs:
        """The rows that wait in a quarantine table and can be read again, in the order in which they were set aside, checked anew."""
        ...

    def append_marker(
        self, path: str, landing: Landing, schema: Schema, plan: Stamping, *, modified: int, widen: bool
    ) -> None:
        """Append a marker to the log and no row; as ``Blobs.append``."""
        ...

    def boundary(self, where: str, again: str) -> AbstractContextManager[None]:
        """What the engine or the disk raises becomes an error for people."""
        ...
