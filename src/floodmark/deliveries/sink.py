"""Sinks: what a delivery's settings become where changes are delivered."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from floodmark.core.errors import ConnectorError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.replicas.shipping import Shipment
from floodmark.lake.stream.delivered import Delivered

if TYPE_CHECKING:
    import pyarrow as pa


class Change(NamedTuple):
    """What became of one result.

    Args:
        key: the result's lasting name, 32 hexadecimal digits: of its key, or of its row where results are final.
        row: column -> value, of its last value; None if there is none any more.
        values: column -> value of its key, where it has one.
        at: table version whose commit brought the change.
    """

    key: str
    row: Mapping[str, Any] | None
    values: Mapping[str, Any]
    at: int


class Documents(NamedTuple):
    """Changes as JSON documents.

    Args:
        keys: of each change: the key of its result as JSON, or the result's lasting name where results are final.
        values: of each change: the result's last value as JSON; None if there is none any more.
    """

    keys: list[bytes]
    values: list[bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of one delivery.

    Args:
        batches: lists of changes, each result once. To be read once.
        documents: the same changes as JSON documents, to be read instead of ``batches``: a fifth of the processor time.
        position: behind these changes.
        before: position before these changes.
        whole: the changes are all results there are: what else was delivered before is to be removed.
        taken_back: rows were replaced or restored, by a rollback, a rebuild or a bounded run.
        columns: (columns to select, columns to sort by, most rows of a batch) -> the changes in Arrow, to be read instead of ``batches``.
    """

    batches: Iterator[list[Change]]
    documents: Iterator[Documents]
    position: Delivered
    before: Delivered | None
    whole: bool = False
    taken_back: bool = False
    columns: Callable[[Sequence[str], Sequence[str], int], Iterator[pa.RecordBatch]] | None = None


class Away(ConnectorError):  # noqa: N818 - what the sink is, not what went wrong
    """A sink that cannot be reached or has no room now: the delivery waits, and goes on when it can."""


class Altered(Exception):  # noqa: N818 - no error of the program: the sink is looked at again
    """What the sink writes to is not as it was when it was last looked at."""


class Sink(ABC):
    """Takes the changes of one output."""

    remembers: ClassVar[bool] = False
    """Whether the sink keeps the position together with what is delivered; otherwise the lake does."""
    forgets: ClassVar[bool] = False
    """Whether the sink, though it remembers, may lose the position after a while; all results are then delivered anew, over what is there."""
    commit_by_commit: ClassVar[bool] = False
    """Whether each delivery has the changes of one commit of the output only."""

    @property
    def takes_deletes(self) -> bool:
        """Whether results may be deleted; otherwise all results are delivered anew when some are gone."""
        return True

    @abstractmethod
    def prepare(self) -> None:
        """Reach the sink, and make or check what is written to. Called again after ``Altered`` and ``Away``.

        Raises:
            Away: it cannot be reached.
            ConnectorError: it cannot take the changes as it is.
        """

    def claim(self, lake: str) -> None:  # noqa: B027 - a sink that is written by key needs none
        """Mark what is written to as this delivery's, in one step: of several deliveries that claim it at once, one gets it. Called behind ``prepare``.

        Args:
            lake: root of the lake that is delivered.

        Raises:
            Away: it cannot be reached.
            Altered: another one has changed it at the same time.
            ConnectorError: it is another delivery's.
        """

    @property
    def takeover(self) -> str:
        """For people: how another lake gets what this one has filled, of a sink that remembers."""
        return "remove what the sink remembers of the delivery, which delivers all anew"

    @property
    def lost(self) -> bool:
        """Whether what was delivered is gone, of a sink that does not remember but can tell; all results are then delivered anew. Asked behind ``prepare``."""
        return False

    def position(self) -> Delivered | None:
        """The position of what is delivered, of a sink that remembers; None before the first delivery, or one without a table that names the lake whose claim it has."""
        return None

    @abstractmethod
    def deliver(self, changes: Changes, number: int) -> None:
        """Deliver changes. A repeated call has the number, and for sinks that do not remember also the changes, of the call that was cut short.

        Args:
            changes: to deliver.
            number: of the delivery, one more than that of the delivery before.

        Raises:
            Away: the sink cannot be reached, or has no room.
            Altered: what it writes to has changed.
            ConnectorError: it does not take these changes.
        """

    def close(self) -> None:  # noqa: B027 - not all sinks hold something
        """Let go of connections."""


class CommitSink(ABC):
    """Takes the commits of a table as they are, and remembers how far it is."""

    @abstractmethod
    def prepare(self) -> None:
        """As ``Sink.prepare``."""

    @abstractmethod
    def ship(self, lake: Lake, stop: threading.Event) -> Iterator[Shipment]:
        """Take those commits that it lacks now.

        Args:
            lake: of the table.
            stop: set to end after the shipment at work.

        Raises:
            Away: the sink cannot be reached, or has no room.
            FloodmarkError: it does not take these commits.
        """

    def close(self) -> None:  # noqa: B027 - not all sinks hold something
        """Let go of connections."""
