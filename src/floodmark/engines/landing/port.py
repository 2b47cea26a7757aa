"""The port that an engine implements for landing: it reads and checks units, holds their rows until the commit, and writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from floodmark.connectors.unit import Reader, Unit
from floodmark.engines.landing.stamping import Stamping
from floodmark.engines.landing.units import Report
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.commits import Landing
from floodmark.semantics.time.delays import Delays
from floodmark.spec.rows.source import Source
from floodmark.spec.values.schema import Schema

ONE_FILE_ROWS = 1_000_000
"""Largest number of rows of a commit that are written to one file."""


class Blobs(Protocol):
    """The units of one commit, read once. Only the reports are in the driver, not the rows."""

    @property
    def reports(self) -> Sequence[Report]:
        """A report per unit, in order."""
        ...

    def measured(self, plan: Stamping) -> Delays:
        """The delays of the rows behind the watermark; the plan starts from unclamped states."""
        ...

    def set_aside(
        self, path: str, names: Sequence[str], reports: Mapping[int, Report], *, source: str, ordinal: int, now: int
    ) -> None:
        """Append to the quarantine table: the broken rows of units that land, and one entry for each unit that does not land.

        Args:
            path: of the table, which is created if there is none.
            names: of all units of the commit.
            reports: unit -> its report, of decided units.
            source: name of the source.
            ordinal: of the landing commit.
            now: ms UTC.
        """
        ...

    def mark(self, path: str, ordinal: int) -> None:
        """Write to the quarantine table which of its rows land with a commit, and why the others do not."""
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
            widen: whether the schema has nullable columns that the log lacks.
        """
        ...

    def release(self) -> None:
        """Free the memory or files that hold the rows."""
        ...


class Workers(Protocol):
    """The workers of an engine during one landing."""

    def check(self, source: Source, lake: Lake) -> None:
        """Refuse a source that this engine would not land as the other engine does. Called before anything is written."""
        ...

    def create_log(self, source: Source, path: str) -> None:
        """Create an empty log. Called if there is none."""
        ...

    def parsed(self, reader: Reader, units: Sequence[Unit], source: Source, now: int) -> Blobs:
        """Read and check units.

        Args:
            reader: of the source's connector.
            units: in order.
            source: contract, limits, watermark strategy.
            now: the landing clock, ms.
        """
        ...

    def replayed(self, path: str, source: Source, now: int) -> Blobs:
        """The open rows of a quarantine table that can be read again, checked anew, in the order in which they were quarantined."""
        ...

    def append_marker(
        self, path: str, landing: Landing, schema: Schema, plan: Stamping, *, modified: int, widen: bool
    ) -> None:
        """Append a marker, and no row, to the log. Arguments as of ``Blobs.append``."""
        ...

    def boundary(self, where: str, again: str) -> AbstractContextManager[None]:
        """A context that turns an exception of the engine or the disk into an error for people.

        Args:
            where: for the message.
            again: the command that lands again.
        """
        ...
