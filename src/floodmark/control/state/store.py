"""The control store: deployments, drivers, leases, actions and a journal. SQLite serves one machine, PostgreSQL several.

Commands write the desired state; the supervisor realises it and writes the actual state. Every step is recorded before it is waited for.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn

from floodmark.control.state.records import Action, Deployment, Desired, Driver, State, StreamId, Watch
from floodmark.control.state.tables import (
    ACTIONS,
    ADDED,
    DRIVERS,
    JOURNAL,
    LEASES,
    MEASURED,
    MEASURES,
    MESSAGES,
    METADATA,
    ONE_LAKE,
    ROLLOUTS,
    STREAMS,
)
from floodmark.core.errors import SetupError
from floodmark.core.host import BORN_SECONDS, host
from floodmark.spec.assets.restart import Restart

CONTROL = "FLOODMARK_CONTROL_STORE"
"""Environment variable with the store's URL, for drivers."""

_PATIENCE_SECONDS = 30
"""Longest wait for another process that writes to the store."""
_TRIES = 30
_RETAINED_DRIVERS = 20
"""Newest drivers of each stream that are never removed, as the supervisor decides by them."""
_ROWS_PER_DELETE = 500
"""Most rows removed by one statement."""


class Store:
    """The control store.

    Args:
        url: SQLAlchemy URL: ``sqlite:////path/control.db``, ``postgresql+psycopg://...``.

    Raises:
        SetupError: SETUP-040, the store cannot be reached or written.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        parsed = sa.make_url(url)
        with self._translate_errors():
            if parsed.get_backend_name() == "sqlite":
                self._engine = _sqlite(url)
                self._held = self._connect(parsed.database)
            else:
                self._engine = _server(url)
                self._create()
            self._add_missing_columns()

    def _connect(self, path: str | None) -> sqlite3.Connection:
        """Connect to the SQLite file. Creates missing tables under a file lock, so that only one process does."""
        if path is None:
            return self._with_tables(":memory:")
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        empty = not file.exists() or file.stat().st_size == 0
        if empty or not set(METADATA.tables) <= set(sa.inspect(self._engine).get_table_names()):
            with FileLock(f"{path}.lock", timeout=_PATIENCE_SECONDS):
                return self._with_tables(path)
        return _connect_wal(path)

    def _with_tables(self, path: str) -> sqlite3.Connection:
        held = _connect_wal(path)
        METADATA.create_all(self._engine)
        return held

    def _create(self) -> None:
        """Create missing tables on a server. Retries once per table: each conflict means that another process has created a further table."""
        for _ in METADATA.tables:
            with suppress(IntegrityError, OperationalError, ProgrammingError):
                return METADATA.create_all(self._engine)
        return METADATA.create_all(self._engine)

    def _add_missing_columns(self) -> None:
        """Add columns that a store of an earlier version lacks, and migrate its deployments."""
        there = sa.inspect(self._engine)
        lacking = [
            (table, column)
            for table in (STREAMS, DRIVERS, ACTIONS, ROLLOUTS)
            for known in [{one["name"] for one in there.get_columns(table.name)}]
            for column in table.columns
            if column.name not in known
        ]
        if not lacking and not there.has_table(ONE_LAKE):
            return
        with (
            suppress(OperationalError, ProgrammingError),
            self._engine.begin() as connection,
        ):  # another process was faster
            for table, column in lacking:
                column_definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {column_definition}"))
            if there.has_table(ONE_LAKE):
                self._migrate_deployments(connection)

    @staticmethod
    def _migrate_deployments(connection: sa.Connection) -> None:
        """Migrate the deployments of an older store, and set the lake of its drivers and actions."""
        columns = [sa.Column(one.name, one.type) for one in STREAMS.columns if one.name not in ADDED]
        old = sa.Table(ONE_LAKE, sa.MetaData(), *columns)
        for row in connection.execute(old.select()).mappings():
            lake = row["lake"].rstrip("/")
            connection.execute(STREAMS.insert().values(**{**row, "lake": lake}))
            for table in (DRIVERS, ACTIONS):
                mine = (table.c.operator == row["operator"], table.c.lake.is_(None))
                connection.execute(table.update().where(*mine).values(lake=lake))
        old.drop(connection)

    # ---- desired state

    def deploy(self, deployment: Deployment) -> None:
        """Set the deployment of a stream."""
        values = {name: getattr(deployment, name) for name in Deployment.__slots__}
        values |= {"lake": deployment.stream.lake}
        values["restart"] = None if deployment.restart is None else deployment.restart.as_json()
        values["watch"] = None if deployment.watch is None else asdict(deployment.watch)
        with self.transaction() as connection:
            connection.execute(STREAMS.delete().where(*_of(STREAMS, deployment.stream)))
            connection.execute(STREAMS.insert().values(**values | {"changed_at": self._now(connection)}))

    def withdraw(self, stream: StreamId) -> None:
        """Remove the deployment of a stream, and what was measured of the stream."""
        with self.transaction() as connection:
            for table in (STREAMS, MEASURED, MEASURES):
                connection.execute(table.delete().where(*_of(table, stream)))

    def want(self, stream: StreamId, desired: Desired) -> bool:
        """Set the desired state of a stream. Returns False if the stream was never deployed."""
        with self.transaction() as connection:
            update = STREAMS.update().where(*_of(STREAMS, stream))
            changed = update.values(desired=desired, changed_at=self._now(connection))
            return bool(connection.execute(changed).rowcount)

    def hold(self, stream: StreamId, held: str | None) -> None:
        """Set the gate for which a stream waits; its drivers stop at their next micro-batch boundary. None: it may run."""
        with self.transaction() as connection:
            connection.execute(STREAMS.update().where(*_of(STREAMS, stream)).values(held=held))

    def deployments(self) -> list[Deployment]:
        """All deployments, by operator and lake."""
        with self.transaction() as connection:
            ordered = STREAMS.select().order_by(STREAMS.c.operator, STREAMS.c.lake)
            rows = connection.execute(ordered).mappings()
            parsed = {"restart": Restart.parse, "watch": Watch.parse}
            return [Deployment(**{**row, **{name: read(row[name]) for name, read in parsed.items()}}) for row in rows]

    def deployment(self, stream: StreamId) -> Deployment | None:
        """The deployment of a stream; None if it was never deployed."""
        return next((one for one in self.deployments() if one.stream == stream), None)

    # ---- drivers

    def begin(self, deployment: Deployment, log: str, shares: str | None = None) -> Driver:
        """Insert the record of a driver that is about to be started.

        Args:
            deployment: the deployment to run.
            log: folder of the driver's log.
            shares: as in ``Driver``.
        """
        for _ in range(_TRIES):
            try:
                return self._begun(deployment, log, shares)
            except SetupError as error:  # another supervisor has just begun a driver of that epoch
                if not isinstance(error.__cause__, IntegrityError):
                    raise
        return self._begun(deployment, log, shares)

    def _begun(self, deployment: Deployment, log: str, shares: str | None) -> Driver:
        mine = sa.select(sa.func.coalesce(sa.func.max(DRIVERS.c.epoch) + 1, 0))
        epoch = mine.where(DRIVERS.c.operator == deployment.operator).scalar_subquery()
        values = {
            "operator": deployment.operator,
            "lake": deployment.stream.lake,
            "version": deployment.version,
            "epoch": epoch,
            "state": "starting",
            "log": sa.literal(f"{log}/") + sa.cast(epoch, sa.String) + ".log",
            "host": host(),
            "kind": deployment.kind,
            "shares": shares,
        }
        with self.transaction() as connection:
            now = self._now(connection)
            insert = DRIVERS.insert().values(**values, started_at=now, heartbeat_at=now)
            key = connection.execute(insert).inserted_primary_key
        assert key is not None
        return self.driver(int(key[0]))

    def update(self, driver: int, *, heard: bool = False, **values: Any) -> None:
        """Update fields of a driver. With ``heard`` the driver itself reports, which counts as a heartbeat."""
        with self.transaction() as connection:
            values |= {"heartbeat_at": self._now(connection)} if heard else {}
            connection.execute(DRIVERS.update().where(DRIVERS.c.id == driver).values(**values))

    def join(self, driver: int, process: Driver) -> bool:
        """Add a driver to the process of another one. Returns False if that one has ended: its process takes no other any more.

        Args:
            driver: without a process.
            process: a driver in the process, with the same ``shares``.
        """
        other = DRIVERS.alias()
        lives = sa.select(other.c.id).where(
            other.c.id == process.id, other.c.shares == process.shares, other.c.ended_at.is_(None)
        )
        joined = DRIVERS.update().where(DRIVERS.c.id == driver, lives.exists())
        with self.transaction() as connection:
            return bool(connection.execute(joined.values(pid=process.pid, born=process.born)).rowcount)

    def assigned(self, pid: int, since: int) -> list[Driver]:
        """The drivers in a process of this machine that have not ended, oldest first.

        Args:
            pid: id of the process.
            since: the driver for which the process was started.
        """
        query = DRIVERS.select().where(*_in_process(pid), DRIVERS.c.id >= since).order_by(DRIVERS.c.id)
        with self.transaction() as connection:
            return [Driver(**row) for row in connection.execute(query).mappings()]

    def first(self, driver: Driver) -> Driver:
        """The driver for which the process of a driver was started."""
        born = sa.func.abs(DRIVERS.c.born - driver.born) < BORN_SECONDS
        same = (DRIVERS.c.pid == driver.pid, DRIVERS.c.host == driver.host, born)
        with self.transaction() as connection:
            row = connection.execute(DRIVERS.select().where(*same).order_by(DRIVERS.c.id).limit(1)).mappings().one()
            return Driver(**row)

    def close_process(self, pid: int) -> None:
        """Let no further driver join a process of this machine."""
        with self.transaction() as connection:
            connection.execute(DRIVERS.update().where(*_in_process(pid)).values(shares=None))

    def living(self) -> list[Driver]:
        """The drivers of all streams that have not ended, newest first."""
        query = DRIVERS.select().where(DRIVERS.c.ended_at.is_(None)).order_by(DRIVERS.c.id.desc())
        with self.transaction() as connection:
            return [Driver(**row) for row in connection.execute(query).mappings()]

    def hear(self, usages: Mapping[int, Mapping[str, Any]]) -> None:
        """Record heartbeats of drivers.

        Args:
            usages: driver -> fields of its ``Usage``.
        """
        with self.transaction() as connection:
            now = self._now(connection)
            for driver, usage in usages.items():
                heard = DRIVERS.update().where(DRIVERS.c.id == driver)
                connection.execute(heard.values(heartbeat_at=now, usage=dict(usage)))

    def unwanted(self, drivers: Iterable[int]) -> dict[int, str]:
        """Driver -> why, for those of some drivers that should stop; the reason is empty if their deployment wants it."""
        deployed = sa.and_(STREAMS.c.operator == DRIVERS.c.operator, STREAMS.c.lake == DRIVERS.c.lake)
        columns = (
            DRIVERS.c.id,
            DRIVERS.c.ended_at,
            DRIVERS.c.version,
            STREAMS.c.version,
            STREAMS.c.desired,
            STREAMS.c.held,
        )
        query = sa.select(*columns).select_from(DRIVERS.outerjoin(STREAMS, deployed))
        with self.transaction() as connection:
            rows = connection.execute(query.where(DRIVERS.c.id.in_(list(drivers)))).all()
        ended = {driver: "another driver has taken its place" for driver, ended_at, *_ in rows if ended_at is not None}
        changed = {
            driver: ""
            for driver, _, version, wanted, desired, held in rows
            if desired is not None and (desired == "stopped" or version != wanted or held is not None)
        }
        return changed | ended

    def end(self, driver: int, state: State, reason: str, read_to: Mapping[str, int] | None = None) -> None:
        """Record the end of a driver, unless its end was recorded before, for example by the driver itself.

        Args:
            driver: its id.
            state: final state.
            reason: why it ended.
            read_to: of a stream that sleeps now, as in ``Driver``.
        """
        with self.transaction() as connection:
            mine = DRIVERS.update().where(DRIVERS.c.id == driver, DRIVERS.c.ended_at.is_(None))
            values = {"state": state, "reason": reason, "read_to": read_to and dict(read_to)}
            connection.execute(mine.values(**values, ended_at=self._now(connection)))

    def driver(self, number: int) -> Driver:
        """The driver with an id."""
        with self.transaction() as connection:
            row = connection.execute(DRIVERS.select().where(DRIVERS.c.id == number)).mappings().one()
            return Driver(**row)

    def drivers(self, stream: StreamId, limit: int = 20) -> list[Driver]:
        """The drivers of a stream, newest first."""
        query = DRIVERS.select().where(*_of(DRIVERS, stream)).order_by(DRIVERS.c.id.desc()).limit(limit)
        with self.transaction() as connection:
            return [Driver(**row) for row in connection.execute(query).mappings()]

    # ---- leases

    def lease(self, name: str, holder: str, seconds: float) -> int | None:
        """Acquire or renew a lease. Returns its epoch, which increases with each new holder; None if another holder has the lease.

        Args:
            name: name of the lease.
            holder: name of the caller.
            seconds: duration of the lease.
        """
        with self.transaction() as connection:
            now = self._now(connection)
            mine = LEASES.update().where(LEASES.c.name == name, LEASES.c.holder == holder)
            if not connection.execute(mine.values(until=now + seconds)).rowcount:
                free = LEASES.update().where(LEASES.c.name == name, LEASES.c.until < now)
                taken = free.values(holder=holder, until=now + seconds, epoch=LEASES.c.epoch + 1)
                if not connection.execute(taken).rowcount:
                    try:
                        with connection.begin_nested():
                            first = LEASES.insert().values(name=name, holder=holder, until=now + seconds, epoch=0)
                            connection.execute(first)
                    except IntegrityError:
                        return None
            row = connection.execute(LEASES.select().where(LEASES.c.name == name)).mappings().one()
            return int(row["epoch"]) if row["holder"] == holder else None

    def holder(self, name: str) -> str | None:
        """The current holder of a lease; None if it is free or expired."""
        with self.transaction() as connection:
            row = connection.execute(LEASES.select().where(LEASES.c.name == name)).mappings().one_or_none()
            return str(row["holder"]) if row is not None and row["until"] >= self._now(connection) else None

    def release(self, name: str, holder: str) -> None:
        """Release a lease, if the caller holds it."""
        with self.transaction() as connection:
            connection.execute(
                LEASES.update().where(LEASES.c.name == name, LEASES.c.holder == holder).values(until=0.0)
            )

    def now(self) -> float:
        """Time by the store's clock, s since 1970: machines that share a store may have different clocks."""
        with self.transaction() as connection:
            return self._now(connection)

    @staticmethod
    def _now(connection: sa.Connection) -> float:
        if connection.dialect.name == "sqlite":  # a file of this machine
            return time.time()
        return float(connection.execute(sa.select(sa.extract("epoch", sa.func.clock_timestamp()))).scalar_one())

    # ---- actions and journal

    def act(self, stream: StreamId, **values: Any) -> Action:
        """Insert an action on a stream that begins now. ``values`` are its other columns."""
        values |= {"operator": stream.operator, "lake": stream.lake}
        with self.transaction() as connection:
            key = connection.execute(ACTIONS.insert().values(began_at=time.time(), **values)).inserted_primary_key
        assert key is not None
        return self.action(int(key[0]))

    def action(self, number: int) -> Action:
        """The action with an id."""
        with self.transaction() as connection:
            return Action(**connection.execute(ACTIONS.select().where(ACTIONS.c.id == number)).mappings().one())

    def record_step(self, action: int, step: str, **values: Any) -> None:
        """Record the step that an action begins, and further fields."""
        with self.transaction() as connection:
            connection.execute(ACTIONS.update().where(ACTIONS.c.id == action).values(step=step, **values))

    def close(self, action: int, step: str, reason: str = "") -> Action:
        """Record the final step of an action. Returns the action."""
        self.record_step(action, step, reason=reason, ended_at=time.time())
        return self.action(action)

    def actions(self, stream: StreamId | None = None, limit: int = 20) -> list[Action]:
        """The newest actions, of one stream or of all, newest first."""
        query = ACTIONS.select().order_by(ACTIONS.c.id.desc()).limit(limit)
        if stream is not None:
            query = query.where(*_of(ACTIONS, stream))
        with self.transaction() as connection:
            return [Action(**row) for row in connection.execute(query).mappings()]

    def unfinished(self, stream: StreamId) -> Action | None:
        """The running or interrupted action on a stream; None if there is none."""
        query = ACTIONS.select().where(*_of(ACTIONS, stream), ACTIONS.c.ended_at.is_(None))
        with self.transaction() as connection:
            row = connection.execute(query.order_by(ACTIONS.c.id.desc()).limit(1)).mappings().one_or_none()
            return None if row is None else Action(**row)

    def open_actions(self) -> list[Action]:
        """All running or interrupted actions."""
        with self.transaction() as connection:
            rows = connection.execute(ACTIONS.select().where(ACTIONS.c.ended_at.is_(None))).mappings()
            return [Action(**row) for row in rows]

    def note(self, who: str, action: str, operator: str | None = None, **detail: Any) -> None:
        """Add a row to the journal: who did what, to which operator, with details as JSON."""
        with self.transaction() as connection:
            values = {"at": time.time(), "who": who, "action": action, "operator": operator}
            connection.execute(JOURNAL.insert().values(**values, detail=json.dumps(detail, default=str)))

    def notes(self, operator: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """The newest rows of the journal, of one operator or of all, newest first."""
        query = JOURNAL.select().order_by(JOURNAL.c.id.desc()).limit(limit)
        if operator is not None:
            query = query.where(JOURNAL.c.operator == operator)
        with self.transaction() as connection:
            rows = connection.execute(query).mappings()
            return [{**row, "detail": json.loads(row["detail"])} for row in rows]

    def last(self, action: str) -> dict[str, Any] | None:
        """The newest row of the journal with an action; None if there is none."""
        query = JOURNAL.select().where(JOURNAL.c.action == action).order_by(JOURNAL.c.id.desc()).limit(1)
        with self.transaction() as connection:
            row = connection.execute(query).mappings().one_or_none()
            return None if row is None else {**row, "detail": json.loads(row["detail"])}

    def forget(self, before: float, *, dry_run: bool = False) -> dict[str, int]:
        """Remove records that ended before a time, except each stream's newest drivers and newest action.

        Args:
            before: the time, s since 1970.
            dry_run: only count the records.

        Returns:
            Kind of record (``journal``, ``drivers``, ``actions``, ``messages``) -> number removed.
        """
        newer = DRIVERS.alias()
        same = (newer.c.operator == DRIVERS.c.operator, newer.c.lake.is_not_distinct_from(DRIVERS.c.lake))
        later = sa.select(sa.func.count()).where(*same, newer.c.id > DRIVERS.c.id)
        newest = sa.select(sa.func.max(ACTIONS.c.id)).group_by(ACTIONS.c.operator, ACTIONS.c.lake)
        old = {
            "journal": (JOURNAL, JOURNAL.c.at < before),
            "drivers": (DRIVERS, sa.and_(DRIVERS.c.ended_at < before, later.scalar_subquery() >= _RETAINED_DRIVERS)),
            "actions": (ACTIONS, sa.and_(ACTIONS.c.ended_at < before, ACTIONS.c.id.not_in(newest))),
            "messages": (MESSAGES, sa.and_(MESSAGES.c.at < before, MESSAGES.c.state != "due")),
        }
        counts = dict[str, int]()
        with self.transaction() as connection:
            for name, (table, condition) in old.items():
                keys = list(connection.execute(sa.select(table.c.id).where(condition)).scalars())
                counts[name] = len(keys)
                for start in range(0, 0 if dry_run else len(keys), _ROWS_PER_DELETE):
                    connection.execute(table.delete().where(table.c.id.in_(keys[start : start + _ROWS_PER_DELETE])))
        return counts

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction of the store. Rolled back on an error.

        Raises:
            SetupError: SETUP-040, the store cannot be reached or written.
        """
        with self._translate_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OSError, ImportError) as error:
            where = f"control store {sa.make_url(self.url).render_as_string(hide_password=True)}"
            fix = "Streams that run go on without it. Start the database, or see to the file's folder and its rights; then try again."
            if isinstance(error, ImportError):
                fix = "Install its driver; of PostgreSQL: pip install 'floodmark[postgres]'"
            text = str(getattr(error, "orig", None) or error).strip().splitlines()
            if text and "locked" in text[0]:
                fix = "A process that writes to it is stopped or hangs. `floodmark status` names those that run; end it, or let it go on."
            if text and "no such table" in text[0]:
                fix = "It was removed, or replaced by an empty one. Put it back, or say again what should run: floodmark start OPERATOR"
            raise SetupError(
                where, "a database that answers", text[0] if text else type(error).__name__, fix, code="SETUP-040"
            ) from error


def _in_process(pid: int) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions that select the drivers in a process of this machine that have not ended."""
    return (DRIVERS.c.pid == pid, DRIVERS.c.host == host(), DRIVERS.c.ended_at.is_(None))


def _of(table: sa.Table, stream: StreamId) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions that select the rows of a stream."""
    return (table.c.operator == stream.operator, table.c.lake == stream.lake)


def _sqlite(url: str) -> sa.Engine:
    """An engine without a connection pool: a pooled connection would keep using a removed file."""
    return sa.create_engine(url, connect_args={"timeout": _PATIENCE_SECONDS}, poolclass=sa.NullPool)


def _connect_wal(path: str) -> sqlite3.Connection:
    """Open SQLite in WAL mode, so that a process suspended during a write does not block readers.

    While one connection stays open, other connections need not checkpoint the log when they close.
    """
    held = sqlite3.connect(path, timeout=_PATIENCE_SECONDS, check_same_thread=False)
    held.execute("PRAGMA journal_mode=WAL")
    held.execute("SELECT count(*) FROM sqlite_master")
    return held


def _server(url: str) -> sa.Engine:
    """An engine for a server that ends idle transactions after a while, so that a process suspended during a write does not block others."""
    engine = sa.create_engine(url, pool_pre_ping=True)

    @sa.event.listens_for(engine, "connect")
    def _bounded(connection: Any, _record: Any) -> None:  # not in the URL, where a connection pooler would reject it
        if engine.dialect.name == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"SET lock_timeout = '{2 * _PATIENCE_SECONDS}s'")
                cursor.execute(f"SET idle_in_transaction_session_timeout = '{_PATIENCE_SECONDS}s'")
            connection.commit()

    return engine
