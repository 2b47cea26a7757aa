"""Units of a source: the pieces that land whole or not at all, such as a file, a commit of a table, a list of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.table.commits import Landed

Form = Literal["json", "text", "python"]
"""Form of a record's value: JSON, a dictionary of texts, a dictionary of typed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit that is to land.

    Args:
        name: the unit's lasting name within its source, such as a file's path below the folder.
        size: bytes; a file that has another size when it is read is still being written, and is left for a later landing.
        modified: the storage's time of the last change, ns; 0 if the storage has none.
        replaces: whether a unit of this name has landed with another content; such a unit is reported and does not land.
    """

    name: str
    size: int = 0
    modified: int = 0
    replaces: bool = False


class Record(NamedTuple):
    """One row as it stands in the source.

    Args:
        position: of the row in its unit, for people: the 1-based line of its first line, or the row number.
        raw: the row's bytes as they are.
        value: checked against the contract: a dictionary, or JSON.
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
    """Landed units of a source whose units land in order: at least those of the last landing commit that decided any.

    Not all of the landed units are read, as they may be very many.
    """
    return landed.newest() if isinstance(landed, LandedUnits) else landed


class Unreadable(Exception):  # noqa: N818 - not an error of the program: the unit is reported, the other units land
    """A unit that cannot be read to its end; nothing of it lands."""


class Content(Protocol):
    """An opened unit."""

    @property
    def form(self) -> Form:
        """Whether a record's value is JSON, a dictionary of texts, or a dictionary of typed values."""
        ...

    @property
    def replay(self) -> str | None:
        """JSON settings to read one raw row of this unit again, on its own; None if that is impossible. Known after the first record."""
        ...

    @property
    def left_out(self) -> Sequence[str] | None:
        """Columns left out of all records, as the contract does not name them; None if records have all columns. Known after the first record."""
        ...

    @property
    def default_nulls(self) -> Mapping[str, int]:
        """Column and text, ``"delay 'NA'"`` -> number of records in which the text was read as null by default. Known after the last record."""
        ...

    def records(self) -> Iterator[Record | Columns]:
        """The rows in order. Raises Unreadable in the middle when the unit is broken."""
        ...

    def fingerprint(self) -> tuple[int, str]:
        """Bytes and digest of the content. Known after the last record."""
        ...


class Reader(Protocol):
    """The reader that a connector's settings become. A reader is plain data, as it is sent to the workers."""

    def pending(self, landed: Mapping[str, Landed]) -> tuple[list[Unit], list[Landed]]:
        """Units to land or to report, in order of arrival; and landed units whose content is the same under a new date."""
        ...

    def open(self, unit: Unit) -> Content:
        """Open a unit, in a worker."""
        ...
