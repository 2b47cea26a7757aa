"""Reader of a table in a database: ranges of a column that increases, through SQLAlchemy.

A range is asked for in one query, in a worker. It ends at a value that was the largest one a while ago, so that transactions which had
a smaller value then have ended: what such values mean is in ``SqlTable``. These looks are kept by the process, not by the log: another
process waits once more.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from floodmark.connectors.databases import engine_of
from floodmark.connectors.unit import NOWHERE, Pending, Reader, Unit, Values
from floodmark.core.errors import ConnectorError, closest
from floodmark.core.patience import is_patient, waits
from floodmark.lake.table.commits import Landed
from floodmark.spec.rows.source import Source
from floodmark.spec.rows.sql_table import SqlTable
from floodmark.spec.values import secret

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

T = TypeVar("T")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15.0
_POOLED_SECONDS = 3600
"""After that a connection is made anew: servers close those that are idle for long."""
_TOGETHER = 5_000
"""Rows that are taken over from the database at once."""
_LOOKS_PER_LAG = 20
"""Looks that are kept are a twentieth of the lag apart at least, so that a source that is looked at often keeps few."""


class _Kind(NamedTuple):
    """A kind of values.

    Args:
        type: of the values.
        read: makes a value of its text.
        order: values of one order can be compared.
    """

    type: type
    read: Callable[[str], Any]
    order: str


_KINDS = {
    "datetime": _Kind(datetime, datetime.fromisoformat, "times"),
    "date": _Kind(date, date.fromisoformat, "dates"),
    "int": _Kind(int, int, "numbers"),
    "decimal": _Kind(Decimal, Decimal, "numbers"),
    "text": _Kind(str, str, "texts"),
}
"""By the name that positions have for it. A ``datetime`` is a ``date`` too, so it comes first."""
_BEGINNING = ""
"""The position before all values."""


class _Look(NamedTuple):
    """What was seen at a look.

    Args:
        at: monotonic clock before the look, s.
        largest: value of the column.
        oldest: number of PostgreSQL's oldest transaction at work; 0 elsewhere.
        running: number of the first transaction of PostgreSQL that had not begun; 0 elsewhere.
    """

    at: float
    largest: Any
    oldest: int
    running: int


@dataclass(frozen=True, slots=True)
class SqlReader(Reader):
    """Reads a table.

    Args:
        settings: as the author wrote them.
        source: name of the source, for messages.
        units_per_look: most units that a look finds; the next one goes on behind them.
    """

    settings: SqlTable
    source: str
    units_per_look: int

    def pending(
        self,
        landed: Mapping[str, Landed],  # noqa: ARG002 - the position says it
        positions: Mapping[str, str] = NOWHERE,
    ) -> Pending:
        """The next ranges of values behind the position.

        Raises:
            ConnectorError: CONNECTOR-280 the database does not answer, 281 it refuses, 282 no such table or column, 283 a row without
                a value, 284 values of another kind.
        """
        position = positions.get("", _BEGINNING)
        end = self._settled(position)
        if end is None:
            return Pending(())
        self._check_kind(end, position)
        return Pending(self._asked(lambda connection: list(self._ranges(connection, position, end))))

    def check_there(self) -> None:
        """As ``Reader``: table and column exist, and each row has a value that can be ordered. Looks begin anew."""
        self._asked(self._check_values)
        with _lock:
            _looks.pop(_of_process(self), None)

    def open(self, unit: Unit) -> Values:
        """The rows of a range, in order."""
        high = unit.position
        low = unit.name.removesuffix(f"..{high}")
        return Values(self._rows("" if low == "beginning" else low, high))

    @property
    def where(self) -> str:
        """For errors."""
        return f"source '{self.source}', table '{self.settings.name}'"

    def _rows(self, low: str, high: str) -> Iterator[Mapping[str, Any]]:
        from sqlalchemy import exc, select, text  # noqa: PLC0415 - imports much

        column = self._column()
        within = [column <= _value(high), *([column > _value(low)] if low else [])]
        query = select(text("*")).select_from(column.table).where(*within).order_by(column)
        try:
            with self._connected() as connection:
                rows = connection.execution_options(yield_per=_TOGETHER).execute(query).mappings()
                yield from (dict(row) for row in rows)
        except exc.DBAPIError as error:  # some rows are read, so it cannot begin again by itself
            raise self._away(_driver_words(error)) from error

    def _ranges(self, connection: Connection, position: str, end: Any) -> Iterator[Unit]:
        """The next units behind a position."""
        from sqlalchemy import func, select  # noqa: PLC0415 - as above

        column = self._column()
        for _ in range(self.units_per_look):
            within = [column <= end, *([column > _value(position)] if position else [])]
            some = select(column).select_from(column.table).where(*within)
            some_first = some.order_by(column).limit(self.settings.rows_per_unit).subquery()
            last = connection.execute(select(func.max(some_first.c[0]))).scalar()
            if last is None:
                return
            reached = _position(last)
            yield Unit(name=f"{position or 'beginning'}..{reached}", position=reached)
            position = reached

    def _settled(self, position: str) -> Any:
        """The largest value up to which all rows are there; None if there is none.

        A landing that goes on comes again for what is not settled yet. Any other waits once, and lands what was there when it began.
        """
        lag, goes_on = self.settings.lag_ms / 1000, is_patient()
        look = self._asked(self._look)
        if look is None:
            return None
        with _lock:
            looks = _looks.setdefault(_of_process(self), deque())
            if not looks or (goes_on and look.at - looks[-1].at >= lag / _LOOKS_PER_LAG):
                looks.append(look)
            first, oldest = looks[0], look.oldest
        if not goes_on:
            if _position(first.largest) == position:
                return None
            time.sleep(max(first.at + lag - time.monotonic(), 0))
            oldest = self._asked(self._transactions)[0]
            if first.running > oldest:
                sys.stderr.write(
                    f"{self.source}: rows of {self.settings.name} wait for a transaction of the database that has not ended. The next landing reads them.\n"
                )
        now, settled = time.monotonic(), None
        with _lock:
            while looks and looks[0].at + lag <= now and looks[0].running <= oldest:
                settled = looks.popleft()
            if settled is not None:
                looks.appendleft(settled)  # until a newer one is
        return None if settled is None else settled.largest

    def _look(self, connection: Connection) -> _Look | None:
        """The table now; None if it has no row.

        The transactions at work are asked for behind the value: each that has a smaller value has begun by then.
        """
        from sqlalchemy import func, select  # noqa: PLC0415 - as above

        at, largest = time.monotonic(), connection.execute(select(func.max(self._column()))).scalar()
        return None if largest is None else _Look(at, largest, *self._transactions(connection))

    def _transactions(self, connection: Connection) -> tuple[int, int]:
        """Numbers of PostgreSQL's oldest transaction at work, and of the first that has not begun; 0 elsewhere."""
        from sqlalchemy import text  # noqa: PLC0415 - as above

        if connection.dialect.name != "postgresql":
            return 0, 0
        snapshot = "SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text FROM pg_current_snapshot() AS s"
        oldest, running = connection.execute(text(snapshot)).one()
        return int(oldest), int(running)

    def _check_values(self, connection: Connection) -> None:
        from sqlalchemy import inspect, select, text  # noqa: PLC0415 - as above

        column = self._column()
        table = column.table
        value = connection.execute(select(column).select_from(table).where(column.isnot(None)).limit(1)).scalar()
        if value is not None and not any(isinstance(value, kind) for kind, _, _ in _KINDS.values()):
            raise self._unordered(f"{type(value).__name__} {value!r}")
        declared = inspect(connection).get_columns(table.name, table.schema)
        nullable = any(each["nullable"] for each in declared if each["name"] == self.settings.increasing)
        if (
            nullable
            and connection.execute(select(text("1")).select_from(table).where(column.is_(None)).limit(1)).first()
        ):
            got = f"a row whose {self.settings.increasing} is null"
            fix = f"Such a row has no place in the order. Give it a value, or read a view without such rows: WHERE {self.settings.increasing} IS NOT NULL."
            raise ConnectorError(self.where, "a value in every row", got, fix, code="CONNECTOR-283")

    def _check_kind(self, end: Any, position: str) -> None:
        """Raise ConnectorError CONNECTOR-284 if a value cannot be compared with those that have landed."""
        kind = _kind(end)
        if kind is None:
            raise self._unordered(f"{type(end).__name__} {end!r}")
        if not position:
            return
        before, landed = position.partition(" ")[0], _value(position)
        zones = {value.tzinfo is None for value in (end, landed) if isinstance(value, datetime)}
        if _KINDS[kind].order != _KINDS[before].order or len(zones) > 1:
            got = f"{end!r} behind {landed!r}"
            fix = "The column was changed. Land the table under a new source name, with a union of both for their readers."
            where = f"{self.where}, column '{self.settings.increasing}'"
            raise ConnectorError(where, "values as those that have landed", got, fix, code="CONNECTOR-285")

    def _unordered(self, got: str) -> ConnectorError:
        fix = "Choose a column of whole numbers, decimals, times or dates: SqlTable(..., increasing=...)."
        where = f"{self.where}, column '{self.settings.increasing}'"
        return ConnectorError(where, "values that can be ordered exactly", got, fix, code="CONNECTOR-284")

    def _column(self) -> Any:
        """The column, whose ``table`` is the table."""
        from sqlalchemy import column, table  # noqa: PLC0415 - as above

        schema, _, name = self.settings.name.rpartition(".")
        return table(name, column(self.settings.increasing), schema=schema or None).c[self.settings.increasing]

    def _asked(self, ask: Callable[[Connection], T]) -> T:
        """An answer of the database. Waits for one that is away where the landing is one that goes on."""
        from sqlalchemy import exc  # noqa: PLC0415 - as above

        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                with self._connected() as connection:
                    return ask(connection)
            except exc.DBAPIError as error:
                why = _driver_words(error)
                if not waits(f"the database of the table {self.settings.name} does not answer ({why})", pause):
                    raise self._away(why) from error
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection. Raises DBAPIError for a database that is away.

        Raises:
            ConnectorError: CONNECTOR-281, 282: the database refuses.
        """
        from sqlalchemy import exc  # noqa: PLC0415 - as above

        engine = _engine(self)
        with engine.connect() as connection:
            try:
                yield connection
            except exc.DBAPIError as error:
                if error.connection_invalidated:
                    raise
                raise self._refused(engine, error) from error
            except exc.NoSuchTableError as error:
                raise self._refused(engine, error) from error

    def _away(self, why: str) -> ConnectorError:
        fix = (
            "Start the database, or correct url= and password= of SqlTable(...). What has landed stays; the landing goes on where it was: "
            f"floodmark land {self.source}"
        )
        return ConnectorError(self.where, "an answer of the database", why, fix, code="CONNECTOR-280")

    def _refused(self, engine: Engine, error: Exception) -> ConnectorError:
        """The error for a query that the database refuses: no table or column of that name, or another reason."""
        from sqlalchemy import exc, inspect  # noqa: PLC0415 - as above

        table = self._column().table
        try:
            inspector = inspect(engine)
            names = [*inspector.get_table_names(table.schema), *inspector.get_view_names(table.schema)]
            columns = (
                [each["name"] for each in inspector.get_columns(table.name, table.schema)]
                if table.name in names
                else []
            )
        except exc.SQLAlchemyError:
            names, columns = [table.name], [self.settings.increasing]  # who may not look is told the database's words
        if table.name not in names:
            fix = f"{closest(table.name, names)}Correct the name in SqlTable(...), or let its user read the table."
            return ConnectorError(self.where, "a table or view of this name", "none", fix, code="CONNECTOR-282")
        if self.settings.increasing not in columns:
            fix = f"{closest(self.settings.increasing, columns)}Correct increasing= of SqlTable(...)."
            got = f"the columns {', '.join(columns)}"
            return ConnectorError(self.where, f"a column '{self.settings.increasing}'", got, fix, code="CONNECTOR-282")
        fix = f"Mend it in the database, or read a view that leaves out what it refuses. Then: floodmark land {self.source}"
        return ConnectorError(self.where, "the rows of the table", _driver_words(error), fix, code="CONNECTOR-281")


def reader(settings: SqlTable, source: Source) -> SqlReader:
    """The reader of a source that is a table of a database."""
    return SqlReader(settings, source.name, source.files_per_commit)


def _driver_words(error: Exception) -> str:
    """What a driver has said, in a line."""
    original = getattr(error, "orig", None)
    return " ".join(str(error if original is None else original).split())


def _kind(value: Any) -> str | None:
    """The name of a value's kind; None for values that have no exact order."""
    return next((kind for kind, (type_, _, _) in _KINDS.items() if isinstance(value, type_)), None)


def _position(value: Any) -> str:
    return f"{_kind(value)} {value.isoformat() if isinstance(value, date) else value}"


def _value(position: str) -> Any:
    kind, _, text = position.partition(" ")
    return _KINDS[kind].read(text)


_engines: dict[tuple[int, str], tuple[str, Engine]] = {}
"""With the digest of the files that their secrets are of."""
_looks: dict[tuple[int, str], deque[_Look]] = {}
_lock = threading.Lock()


def _of_process(reader: SqlReader) -> tuple[int, str]:
    """Key: a connection must not be used by a forked process."""
    return os.getpid(), repr(reader)


def _engine(reader: SqlReader) -> Engine:
    """The engine of a process for a table. Raises ConnectorError and SetupError, as ``engine_of``."""
    settings, key = reader.settings, _of_process(reader)
    content = secret.digest_of((settings.url, settings.password))
    with _lock:
        known, former = _engines.get(key, ("", None))
        if former is not None and known == content:
            return former
    engine = engine_of(
        settings.url,
        settings.password,
        where=reader.where,
        setting="SqlTable(...)",
        options=lambda _: {"pool_recycle": _POOLED_SECONDS},
    )
    with _lock:
        _engines[key] = content, engine
    if former is not None:  # a secret was changed
        former.dispose()
    return engine
