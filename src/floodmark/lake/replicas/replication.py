"""The replication of a source or of an operator's outputs: all tables of it, so that nothing of a commit is missing where its record has arrived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deltalake.exceptions import DeltaError

from floodmark.core.errors import ConnectorError, LifecycleError
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake, is_local
from floodmark.lake.replicas.shipping import Shipment, Shipping
from floodmark.lake.table import entries, origin
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.source import Source

AWAY = "DELIVERY-021"
"""Code of the error of a lake that cannot be reached."""
_LOOK_SECONDS = 0.2
"""Time between two looks for commits."""
_FIRST_SECONDS, _LONGEST_SECONDS = 0.5, 15.0
"""Shortest and longest time between two tries to reach a lake."""


@dataclass(slots=True)
class Replication:
    """The replication of a source or an operator to one lake.

    Args:
        name: of the source or operator.
        folder: of its locks: ``sources`` or ``operators``.
        target: the other lake.
        tables: its tables. A commit of the first one is shipped after what the commit has written to the others.
    """

    name: str
    folder: str
    target: Lake
    tables: Sequence[Shipping]

    @staticmethod
    def of(stream: Source | Operator, lake: Lake, target: Lake, rename: str = "") -> Replication:
        """The replication of a source's log, or of an operator's outputs.

        Args:
            stream: the source or operator.
            lake: the lake of its tables.
            target: the other lake.
            rename: name of the log in the other lake; by default that of the source.

        Raises:
            LifecycleError: LIFECYCLE-274, both lakes are one, or one lies within the other; LIFECYCLE-275, outputs under another name.
        """
        _check_apart(lake, target, stream.name)
        name, tables = stream.name, dict[str, str]()
        if isinstance(stream, Source):
            log = rename or name
            tables = {lake.log(name): target.log(log), lake.quarantine(name): target.quarantine(log)}
            if log == name:  # the list of landed units, with which a landing resumes in the other lake
                tables[lake.internal("sources", name, "files")] = target.internal("sources", name, "files")
            shipped = [Shipping(path, to, lake.logs or lake.root, name) for path, to in tables.items()]
            return Replication(name, "sources", target, shipped)
        if rename:
            fix = "Leave --as out: streams know the outputs of an operator by their names."
            where, got = f"operator '{name}'", f"'{rename}'"
            raise LifecycleError(where, "outputs under their own names", got, fix, code="LIFECYCLE-275")
        for output in stream.outputs:
            tables[lake.output(output.table)] = target.output(output.table)
            if output.current is not None:
                tables[lake.output(output.current.table)] = target.output(output.current.table)
        shipped = [Shipping(path, to, lake.root, name) for path, to in tables.items()]
        return Replication(name, "operators", target, shipped)

    def begin(self) -> bool:
        """Check the other lake, and mark its tables as replicas.

        Returns:
            False if the other lake is the home of the tables, which takes no commit from its replicas.

        Raises:
            ConnectorError: DELIVERY-020, there is no table to replicate.
            LifecycleError: as ``Shipping.begin``; LIFECYCLE-003, a landing or a stream in the other lake writes the tables.
        """
        first = self.tables[0]
        if not first.exists:
            fix = f"Fill it first: floodmark land {self.name}, or floodmark run {self.name} --unbounded --until-caught-up."
            where, expected = f"replication of '{self.name}'", f"a table at {first.source}"
            raise ConnectorError(where, expected, "none", fix, code="DELIVERY-020")
        there = origin.read(first.target)
        if entries.is_table(first.target) and (there is None or not there.is_replica):
            name = first.target.rsplit("/", 1)[-1] if self.folder == "sources" else self.name
            with exclusive(self.target, self.folder, name, "writer of what becomes a replica", role="replication"):
                return first.begin()
        return first.begin()

    def reached(self) -> Shipment | None:
        """A shipment without commits that says up to where the other lake has the first table; None if it has nothing of it."""
        first = self.tables[0]
        newest = entries.newest(first.target) if entries.is_table(first.target) else None
        if newest is None:
            return None
        return Shipment(table=entries.id_of(first.source), first=newest + 1, version=newest, rows=0, files=0, size=0)

    def ship(self, on_shipment: Callable[[Shipment], None], stop: threading.Event) -> bool:
        """Ship what the tables have now.

        Args:
            on_shipment: called after each shipment of the first table.
            stop: set to end after the shipment at work.

        Returns:
            True if anything was shipped.
        """
        there = [table for table in self.tables if table.exists]
        upto, shipped = there[0].newest(), False
        for table in reversed(there):
            last = upto if table is there[0] else table.newest()
            if not table.begin():
                continue
            while not stop.is_set() and (shipment := table.next(last)) is not None:
                shipped = True
                if table is there[0]:
                    on_shipment(shipment)
        return shipped


def replicate(
    replications: Sequence[Replication],
    *,
    until_caught_up: bool,
    stop: threading.Event,
    on_shipment: Callable[[str, Shipment], None] = lambda *_: None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> None:
    """Ship what several sources and operators have, in their order, until stopped.

    Args:
        replications: that ``begin`` has not refused.
        until_caught_up: end once all is shipped; a lake that cannot be reached is then an error.
        stop: set to stop after the shipment at work.
        on_shipment: called with a name and each shipment of it.
        on_wait: called with what is waited for, for people.

    Raises:
        ConnectorError: DELIVERY-021, the other lake cannot be reached or written.
    """
    pause = _FIRST_SECONDS
    while not stop.is_set():
        shipped = False
        try:
            for replication in replications:
                with reaching(replication):
                    shipped |= replication.ship(partial(on_shipment, replication.name), stop)
            pause = _FIRST_SECONDS
        except ConnectorError as error:
            if until_caught_up or error.code != AWAY:
                raise
            on_wait(f"waiting: {error.where}: {error.got}")
            stop.wait(pause)
            pause = min(pause * 2, _LONGEST_SECONDS)
            continue
        if until_caught_up:
            return
        if not shipped:
            stop.wait(_LOOK_SECONDS)


@contextmanager
def reaching(replication: Replication) -> Iterator[None]:
    """Errors of disks and stores as DELIVERY-021."""
    try:
        yield
    except (OSError, DeltaError) as error:
        fix = (
            "Nothing is half there: shipping resumes behind the last commit that the other lake has. See that it can be reached and written by this user, "
            "and that there is room."
        )
        got, where = (
            f"{type(error).__name__}: {error}",
            f"replication of '{replication.name}' to {replication.target.root}",
        )
        raise ConnectorError(where, "a lake that can be reached and written", got, fix, code="DELIVERY-021") from error


def _check_apart(lake: Lake, target: Lake, name: str) -> None:
    roots = [_resolved(root) for root in (lake.root, lake.logs or lake.root, target.root)]
    if any(_within(root, roots[-1]) or _within(roots[-1], root) for root in roots[:-1]):
        fix = f"Name another one: floodmark replicate {name} --to /elsewhere/lake"
        got = "the same lake, or one within the other"
        raise LifecycleError(
            f"replication of '{name}' to {target.root}", "another lake", got, fix, code="LIFECYCLE-274"
        )


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _resolved(root: str) -> str:
    return str(Path(root).resolve()) if is_local(root) else root.replace("s3a://", "s3://")
