"""Units: what a source lands whole or not at all: a file, a commit of a table, a list of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

from floodmark.lake.commits import Landed
from floodmark.lake.landed import LandedUnits


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Something to land.

    Args:
        name: what it is known by for ever, within its source: a file's path below the folder.
        size: bytes; a file that has another size when it is read is still being written, and waits.
        modified: as the storage says it, ns; 0 where it says nothing.
        replaces: its name has landed already, with another content; it is reported and not landed.
    """

    name: str
    size: int = 0
    modified: int = 0
    replaces: bool = False


class Record(NamedTuple):
    """One row as it stands in the source.

    Args:
        position: of the row in its unit, for people: the 1-based line of its first line, or the row number.
        raw: its bytes as they are.
        value: what the contract checks: a dictionary, or JSON.
        reason: why there is no value to check; empty when there is.
    """

    position: int
    raw: bytes
    value: object
    reason: str = ""


class Columns(NamedTuple):
    """Consecutive rows of a columnar source.

    Args:
        position: of the first row in its unit, from 1.
        batch: the rows.
    """

    position: int
    batch: pa.RecordBatch

    def records(self) -> Iterator[Record]:
        """The rows one by one."""
        rows = self.batch.to_pylist(maps_as_pydicts="strict")
        return (Record(number, b"", row) for number, row in enumerate(rows, self.position))


def of_last_commit(landed: Mapping[str, Landed]) -> Mapping[str, Landed]:
    """Of units that land in order, those of the last landing commit that decided any, or more; not all of what may be very many."""
    return landed.newest() if isinstance(landed, LandedUnits) else landed


class Unreadable(Exception):  # noqa: N818 - not an error of the program: the file is reported and the source goes on
    """A unit that cannot be read to its end; nothing of it lands."""


class Content(Protocol):
    """An opened unit."""

    @property
    def form(self) -> Literal["json", "python"]:
        """Whether a record's value is JSON or a Python dictionary."""
        ...

    @property
    def replay(self) -> str | None:
        """JSON from which a raw row of this unit can be read again, on its own; None where it cannot. After the first record."""
        ...

    @property
    def left_out(self) -> Sequence[str] | None:
        """Columns that no record has, as the contract does not name them; None where records have all. After the first record."""
        ...

    def records(self) -> Iterator[Record | Columns]:
        """The rows in order. Raises Unreadable in the middle when the unit is broken."""
        ...

    def fingerprint(self) -> tuple[int, str]:
        """Bytes and digest of the content; after the last record."""
        ...


class Reader(Protocol):
    """What a connector's settings become. Plain data: it travels to the workers."""

    def pending(self, landed: Mapping[str, Landed]) -> tuple[list[Unit], list[Landed]]:
        """Units to land or to report, in order of arrival; and landed ones whose content is the same under a new date."""
        ...

    def open(self, unit: Unit) -> Content:
        """Open a unit, in a worker."""
        ...
