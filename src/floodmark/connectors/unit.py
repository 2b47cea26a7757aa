"""Units of a source: the pieces that land whole or not at all, such as a file, a commit of a table, a list of rows."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

from floodmark.connectors.entries import Entry, Form, Record
from floodmark.core.errors import ConnectorError
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.table.commits import Landed


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit that is to land.

    Args:
        name: the unit's lasting name within its source, such as a file's path below the folder.
        size: bytes; a file that has another size when it is read is still being written, and is left for a later landing.
        modified: the storage's time of the last change, ns; 0 if the storage has none.
        replaces: whether a unit of this name has landed with another content; such a unit is reported and does not land.
        position: of its source partition behind the unit, for connectors that read from positions; empty for others.
        rows: about how many rows it has, if that is known before it is read; with ``Pending.behind``.
    """

    name: str
    size: int = 0
    modified: int = 0
    replaces: bool = False
    position: str = ""
    rows: int = 0


def of_last_commit(landed: Mapping[str, Landed]) -> Mapping[str, Landed]:
    """Landed units of a source whose units land in order: at least those of the last landing commit that decided any.

    Not all of the landed units are read, as they may be very many.
    """
    return landed.newest() if isinstance(landed, LandedUnits) else landed


class Unreadable(Exception):  # noqa: N818 - not an error of the program: the unit is reported, the other units land
    """A unit that cannot be read to its end; nothing of it lands."""


class Gone(Unreadable):
    """A unit of which nothing is left in the source."""


class Moved(ConnectorError):  # noqa: N818 - what has become of the unit
    """A unit is no longer in the source as the last look has listed it. The next look lists the source anew; the error is raised if that look lists the unit again."""


class Undecodable(Exception):  # noqa: N818 - no error of the program: the message is set aside, the others land
    """Bytes that are no message of the format; says why, for people."""


Decode = Callable[[bytes], dict[str, Any]]
"""(bytes) -> the fields. Raises Undecodable."""


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
    def position(self) -> str:
        """Position of the source partition behind the unit, where it is only known after the last record; else empty: as of the unit."""
        return ""

    @property
    def default_nulls(self) -> Mapping[str, int]:
        """Column and text, ``"delay 'NA'"`` -> number of records in which the text was read as null by default. Known after the last record."""
        ...

    def records(self) -> Iterator[Entry]:
        """The rows in order. Raises Unreadable in the middle when the unit is broken."""
        ...

    def fingerprint(self) -> tuple[int, str]:
        """Bytes and digest of the content. Known after the last record."""
        ...


NOWHERE: Mapping[str, str] = MappingProxyType({})
"""No positions: nothing has landed, or units have none."""


class Values:
    """Content whose rows are dictionaries of Python values; for connectors that have no bytes to show.

    Args:
        values: rows, read one after the other; the first is row 1.
    """

    form: Form = "python"
    replay: str | None = '{"format": "python"}'
    left_out: Sequence[str] | None = None
    position: str = ""
    default_nulls: Mapping[str, int] = MappingProxyType({})

    def __init__(self, values: Iterable[Mapping[str, Any]]) -> None:
        self._values, self._digest = values, hashlib.blake2b()

    def records(self) -> Iterator[Record]:
        """The rows."""
        for number, value in enumerate(self._values, 1):
            self._digest.update(repr(value).encode())
            yield Record(number, b"", dict(value))

    def fingerprint(self) -> tuple[int, str]:
        """No bytes, and the digest of the values."""
        return 0, self._digest.hexdigest()


class Pending(NamedTuple):
    """What one look at a source has come to.

    Args:
        units: to land or to report, in order of arrival.
        touched: landed units whose content is the same under a new date.
        begun: source partition -> where its reading begins, of those that have no position yet. They are kept before their units are read.
        behind: source partition -> about how many rows are behind its position, those of ``units`` among them; of all partitions, or of none.
        complete: whether nothing is left, and nothing will come: the source ends here by its settings.
    """

    units: Sequence[Unit]
    touched: Sequence[Landed] = ()
    begun: Mapping[str, str] = NOWHERE
    behind: Mapping[str, int] = MappingProxyType({})
    complete: bool = False


class Reader(ABC):
    """What a connector's settings become where rows land. A reader is plain data, as it is sent to the workers."""

    __slots__ = ()

    vanishing: ClassVar[bool] = False
    """Whether units can be gone, or not yet there for a worker, when they are opened; such a unit is left for a later landing."""

    @abstractmethod
    def pending(self, landed: Mapping[str, Landed], positions: Mapping[str, str] = NOWHERE) -> Pending:
        """Look at the source once: what is there to land.

        Args:
            landed: name -> unit that has landed.
            positions: source partition -> position up to which it has landed, where units have positions.
        """
        ...

    @abstractmethod
    def open(self, unit: Unit) -> Content:
        """Open a unit, in a worker."""
        ...

    def ahead(self, units: Sequence[Unit]) -> None:  # noqa: B027 - not all readers have something to fetch
        """Begin to fetch what is opened next. Called in a process that opens several units one after the other, before each of them.

        Args:
            units: the unit that is opened next and those that follow it, in this order; none where no further unit is opened.
        """

    def glancing(self) -> Reader:
        """The reader of a landing that looks several times a second: one that finds new units at each look, and changes of others once a second."""
        return self

    def again(self) -> Callable[[bytes], Sequence[Record]]:
        """(what ``Record.stored`` gave the quarantine) -> the rows that it is; of contents whose ``replay`` has the format ``reader``."""
        raise NotImplementedError

    def check_there(self) -> None:  # noqa: B027 - not all readers have something to look for
        """Make sure that there is something to read from, before a landing begins. Raises ConnectorError."""

    def min_age(self, *, ending: bool) -> int:  # noqa: ARG002 - for files
        """Time for which a unit must be unchanged before it lands, ms.

        Args:
            ending: whether an end of input is to land.
        """
        return 0

    def look(self, name: str) -> Unit | None:  # noqa: ARG002 - for files
        """A unit of that name as it is now; None if it is gone."""
        return None

    def unsettled(self) -> Iterator[Unsettled]:
        """Names in the source that hold an end of input though they are not pending, or may do so; none by default."""
        return iter(())

    def lands(self, path: Path) -> bool:  # noqa: ARG002 - for files
        """Whether the source lands a file of this machine."""
        return False

    def on_disk(self, most: int) -> OnDisk | None:  # noqa: ARG002 - for files and tables
        """What workers have to see under the same path as this process; None if the source is on no disk.

        Args:
            most: of the files, how many are named.
        """
        return None


class Unsettled(NamedTuple):
    """A file in a source's folder, as far as an end of input waits for it.

    Args:
        unit: the file as it is now.
        unfinished: whether its name says that it is still being written.
        hidden: whether it is a copy in progress.
    """

    unit: Unit
    unfinished: bool
    hidden: bool


class OnDisk(NamedTuple):
    """A folder of a source.

    Args:
        folder: its path.
        files: path -> size in bytes, of some files in it.
        is_table: whether the folder is a Delta table.
    """

    folder: str
    files: Mapping[str, int]
    is_table: bool = False
