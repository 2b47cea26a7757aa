"""What is measured of streams, in the control store: sums over all commits, and the newest commits of each stream in a ring of fixed size.

A commit is counted once, however often it is reported: by its number and the history of commits that it belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from floodmark.control.state.records import Driver, StreamId
from floodmark.control.state.store import Store
from floodmark.control.state.tables import DRIVERS, MEASURED, MEASURES
from floodmark.observe.measure import Measure, Totals

RECENT = 240
"""Commits of a stream whose records are retained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is measured of a stream.

    Args:
        totals: sums over all commits, including the crash of the newest driver.
        history: history of the last counted commit; empty before the first.
        number: number of the last counted commit; -1 before the first.
        at: time of the last change, s since 1970.
        recent: the newest commits, oldest first.
        graph: the program of the stream, as its driver has described it; None if none has.
    """

    totals: Totals
    history: str = ""
    number: int = -1
    at: float = 0.0
    recent: tuple[Measure, ...] = ()
    graph: dict[str, Any] | None = None

    @property
    def last(self) -> Measure | None:
        """The newest commit; None before the first."""
        return self.recent[-1] if self.recent else None


def record(store: Store, stream: StreamId, *commits: Measure) -> int:
    """Count commits of a stream, oldest first. Commits that were counted before are left out. Returns how many were counted."""
    counted = 0
    with store.transaction() as connection:
        row = _locked(connection, stream)
        totals = Totals.parse(row["totals"])
        for commit in commits:
            if row["history"] == commit.history and commit.number <= row["number"]:
                continue
            totals, counted = totals.plus(commit), counted + 1
            _put(connection, stream, row["counted"], commit)
            row |= {"history": commit.history, "number": commit.number, "counted": row["counted"] + 1}
        values = {name: row[name] for name in ("history", "number", "counted")}
        if counted:
            _update(connection, stream, totals=totals.as_json(), **values)
    return counted


def _put(connection: sa.Connection, stream: StreamId, ordinal: int, commit: Measure) -> None:
    """Put a commit into its slot of the ring, in place of an older one."""
    slot = ordinal % RECENT
    connection.execute(MEASURES.delete().where(*_of(MEASURES, stream), MEASURES.c.slot == slot))
    values = {"operator": stream.operator, "lake": stream.lake, "slot": slot, "ordinal": ordinal}
    connection.execute(MEASURES.insert().values(**values, measure=commit.as_json()))


def count_start(store: Store, driver: Driver) -> None:
    """Count the start of a driver, once, and the crashes of earlier drivers."""
    stream = driver.stream
    with store.transaction() as connection:
        row = _locked(connection, stream)
        if row["driver"] >= driver.id:
            return
        crashes = _crashes(connection, stream, row["driver"], driver.id)
        totals = Totals.parse(row["totals"]).started(crashes)
        _update(connection, stream, totals=totals.as_json(), driver=driver.id)


def describe(store: Store, stream: StreamId, graph: Mapping[str, Any]) -> None:
    """Record the program that a stream runs."""
    with store.transaction() as connection:
        _locked(connection, stream)
        _update(connection, stream, graph=dict(graph))


def measured(store: Store, stream: StreamId, limit: int = RECENT) -> Measured:
    """What is measured of a stream, with at most ``limit`` of its newest commits."""
    with store.transaction() as connection:
        row = connection.execute(MEASURED.select().where(*_of(MEASURED, stream))).mappings().one_or_none()
        if row is None:
            return Measured(totals=Totals())
        newest = MEASURES.select().where(*_of(MEASURES, stream)).order_by(MEASURES.c.ordinal.desc()).limit(limit)
        recent = [Measure.parse(one["measure"]) for one in connection.execute(newest).mappings()]
        crashes = _crashes(connection, stream, row["driver"], None)
    totals = Totals.parse(row["totals"])
    return Measured(
        totals=replace(totals, crashes=totals.crashes + crashes),
        history=row["history"],
        number=row["number"],
        at=row["at"],
        recent=tuple(reversed(recent)),
        graph=row["graph"],
    )


def _crashes(connection: sa.Connection, stream: StreamId, since: int, before: int | None) -> int:
    """Drivers of a stream that crashed: from the driver ``since`` on, before the driver ``before``."""
    crashed = sa.select(sa.func.count()).where(
        *_of(DRIVERS, stream), DRIVERS.c.state == "crashed", DRIVERS.c.id >= since
    )
    return int(connection.execute(crashed if before is None else crashed.where(DRIVERS.c.id < before)).scalar_one())


def _locked(connection: sa.Connection, stream: StreamId) -> dict[str, Any]:
    """The row of a stream, which no other transaction changes until the end of this one."""
    for _ in range(2):
        if _update(connection, stream):
            break
        try:
            with connection.begin_nested():
                values = {"operator": stream.operator, "lake": stream.lake, "at": time.time(), "totals": {}}
                connection.execute(MEASURED.insert().values(**values, history="", number=-1, counted=0, driver=0))
        except IntegrityError:  # another process was faster
            continue
    return dict(connection.execute(MEASURED.select().where(*_of(MEASURED, stream))).mappings().one())


def _update(connection: sa.Connection, stream: StreamId, **values: Any) -> bool:
    return bool(
        connection.execute(MEASURED.update().where(*_of(MEASURED, stream)).values(at=time.time(), **values)).rowcount
    )


def _of(table: sa.Table, stream: StreamId) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.operator == stream.operator, table.c.lake == stream.lake)
