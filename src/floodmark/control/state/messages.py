"""Changes of the health of streams, and the messages that tell of them. A change and its messages are one transaction, so that each is told once."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa

from floodmark.control.state.records import StreamId
from floodmark.control.state.store import Store
from floodmark.control.state.tables import HEALTH, MESSAGES, UNMET
from floodmark.core.fingerprint import digest
from floodmark.core.time import Interval
from floodmark.spec.assets.alert import Change, Level

_FIRST_SECONDS, _LONGEST_SECONDS = 10.0, 3600.0
"""Pause before a message is sent again the first time, and the longest such pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The health of a stream as its alerts have last told it.

    Args:
        changes: number of changes so far.
        level: ``ok``, ``warning`` or ``error``.
        condition: what the stream does.
        since: time of the last change, s since 1970.
        crash: id of the newest crashed driver at the last look; -1 for none.
    """

    changes: int = 0
    level: Level = "ok"
    condition: str = "running"
    since: float = 0.0
    crash: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of one alert.

    Args:
        id: id of the record.
        alert: index of the alert among those of the workspace.
        change: what it tells.
        state: ``due``, ``sent``, or ``given up``.
        tries: number of tries so far.
        error: why the last try failed; empty if none has.
    """

    id: int
    alert: int
    change: Change
    state: str
    tries: int
    error: str


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages in a control store.

    Args:
        store: the store.
    """

    store: Store

    def last_told(self, stream: StreamId) -> Told | None:
        """The health of a stream as last told; None before the first look at it."""
        with self.store.transaction() as connection:
            row = connection.execute(HEALTH.select().where(*_of(HEALTH, stream))).mappings().one_or_none()
            return None if row is None else Told(**{name: row[name] for name in Told.__slots__})

    def tell(self, stream: StreamId, health: Told, change: Change | None, alerts: Iterable[int]) -> None:
        """Record the health of a stream, and a message of each alert about its change."""
        with self.store.transaction() as connection:
            connection.execute(HEALTH.delete().where(*_of(HEALTH, stream)))
            connection.execute(HEALTH.insert().values(operator=stream.operator, lake=stream.lake, **asdict(health)))
            if change is not None:
                _insert(connection, stream, change, alerts)

    def judged(self, stream: StreamId, change: Change, interval: Interval, alerts: Iterable[int]) -> bool:
        """Record whether rows meet an expectation, with a message of each alert if that has changed. Returns whether it has.

        Args:
            stream: of the operator.
            change: the verdict; its ``before`` and ``level_before`` are filled in.
            interval: event time of the rows. A verdict that they meet it holds for all intervals inside.
            alerts: indexes of the alerts.
        """
        mine = (*_of(UNMET, stream), UNMET.c.asset == change.asset, UNMET.c.expectation == change.expectation)
        with self.store.transaction() as connection:
            if change.level == "ok":
                inside = (*mine, UNMET.c.start >= interval.start, UNMET.c.end <= interval.end)
                before = connection.execute(sa.select(UNMET.c.level).where(*inside)).scalars().all()
                if not before:
                    return False
                connection.execute(UNMET.delete().where(*inside))
                levels: list[Level] = ["error" if "error" in before else "warning"]
                change = replace(change, level_before=levels[0], before="unmet")
            else:
                same = (*mine, UNMET.c.start == interval.start, UNMET.c.end == interval.end)
                if connection.execute(sa.select(UNMET.c.level).where(*same)).scalar_one_or_none() is not None:
                    return False
                bounds = {"start": interval.start, "end": interval.end, "level": change.level}
                about = {"asset": change.asset, "expectation": change.expectation}
                connection.execute(UNMET.insert().values(operator=stream.operator, lake=stream.lake, **about, **bounds))
            _insert(connection, stream, change, alerts)
        return True

    def due(self) -> list[tuple[int, StreamId, int]]:
        """(id, stream, index of the alert) of the messages that are to be sent now, oldest first."""
        query = sa.select(MESSAGES.c.id, MESSAGES.c.operator, MESSAGES.c.lake, MESSAGES.c.alert)
        query = query.where(MESSAGES.c.state == "due", MESSAGES.c.due <= time.time()).order_by(MESSAGES.c.id)
        with self.store.transaction() as connection:
            return [(row.id, StreamId(row.operator, row.lake), row.alert) for row in connection.execute(query)]

    def message(self, number: int) -> Message:
        """The message with an id."""
        with self.store.transaction() as connection:
            return _message(connection.execute(MESSAGES.select().where(MESSAGES.c.id == number)).mappings().one())

    def of(self, stream: StreamId, limit: int = 50) -> list[Message]:
        """The newest messages about a stream, newest first."""
        query = MESSAGES.select().where(*_of(MESSAGES, stream)).order_by(MESSAGES.c.id.desc()).limit(limit)
        with self.store.transaction() as connection:
            return [_message(row) for row in connection.execute(query).mappings()]

    def begin(self, number: int) -> None:
        """Record a try, and when the next one is due unless this one succeeds: also if this process or its supervisor dies meanwhile."""
        with self.store.transaction() as connection:
            tries = connection.execute(sa.select(MESSAGES.c.tries).where(MESSAGES.c.id == number)).scalar_one()
            pause = min(_FIRST_SECONDS * 2.0 ** min(tries, 32), _LONGEST_SECONDS)
            values = {"tries": tries + 1, "due": time.time() + pause}
            connection.execute(MESSAGES.update().where(MESSAGES.c.id == number).values(**values))

    def sent(self, number: int) -> None:
        """Record that a message was received."""
        self._end(number, state="sent", error="")

    def failed(self, number: int, error: str, tries: int) -> None:
        """Record why a try failed, and give the message up after so many tries. No effect on a message that was received."""
        given_up = self.message(number).tries >= tries
        self._end(number, error=error, **({"state": "given up"} if given_up else {}))

    def _end(self, number: int, **values: Any) -> None:
        with self.store.transaction() as connection:
            mine = MESSAGES.update().where(MESSAGES.c.id == number, MESSAGES.c.state == "due")
            connection.execute(mine.values(**values))


def key_of(stream: StreamId, changes: int) -> str:
    """The key of a change: of one stream of one lake no two are the same."""
    return digest([stream.operator, stream.lake, str(changes)])[:16]


def _insert(connection: sa.Connection, stream: StreamId, change: Change, alerts: Iterable[int]) -> None:
    """Insert a message of each alert about a change."""
    for alert in alerts:
        values = {"key": f"{change.key}-{alert}", "alert": alert, "change": asdict(change), "at": change.at}
        values |= {"state": "due", "tries": 0, "due": change.at, "error": ""}
        connection.execute(MESSAGES.insert().values(operator=stream.operator, lake=stream.lake, **values))


def _message(row: Any) -> Message:
    names = ("id", "alert", "state", "tries", "error")
    return Message(**{name: row[name] for name in names}, change=Change(**row["change"] | {"key": row["key"]}))


def _of(table: sa.Table, stream: StreamId) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.operator == stream.operator, table.c.lake == stream.lake)
