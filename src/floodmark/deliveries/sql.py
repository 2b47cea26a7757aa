"""SQL: results in a table of a database, whose rows change in one transaction with the position."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects import mysql, postgresql, sqlite

from floodmark.connectors.databases import engine_of
from floodmark.core import crash
from floodmark.core.errors import ConnectorError, LifecycleError, shown
from floodmark.core.host import host
from floodmark.core.types import Type
from floodmark.core.types import parse as parse_type
from floodmark.deliveries import claims
from floodmark.deliveries.sink import Altered, Away, Change, Changes, Sink
from floodmark.deliveries.sql_columns import column_type, fits, plain_of
from floodmark.lake.stream.delivered import Delivered
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.to_sql import DIALECTS, ToSql
from floodmark.spec.values import secret

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

KEY = "_floodmark_key"
"""The primary key of a delivered table: a digest of the columns by which a result is one, as those may be null, NaN or longer than keys may be."""
POSITIONS = "_floodmark_positions"
_COLUMNS = "columns"
"""Key in the text of a position: column -> full name of the table that it was delivered into last. Earlier releases list the columns alone, and read both."""
_TURN = "(claims)"
"""Name of a row among the positions, which no delivery has: who holds its lock may claim a table."""
_CODES = {
    "UndefinedTable",
    "DuplicateTable",
    "UndefinedColumn",
    "DuplicateColumn",
    "DatatypeMismatch",
    "NotNullViolation",
    "GeneratedAlways",
}
"""psycopg's errors of a table that was altered."""
_OTHER_UNIQUE = (
    "a row that a unique index of the table, other than its primary key, has already (SHOW INDEX names them)"
)
_MADE = ("pg_type_typname_nsp_index", "pg_class_relname_nsp_index", "(1050,", "(1060,")
"""What PostgreSQL and MariaDB say of a table or column that another process makes at the same time."""
_GONE = ("no such table", "has no column named", "no such column", "doesn't exist", "Unknown column")
"""What SQLite and MariaDB say then."""


@dataclass(slots=True)
class SqlSink(Sink):
    """A table of a database.

    Args:
        settings: of the delivery.
        route: the delivery.
    """

    remembers: ClassVar[bool] = True

    settings: ToSql
    route: Route
    _engine: Engine | None = field(default=None, init=False)
    _table: sa.Table | None = field(default=None, init=False)
    _plain: tuple[tuple[str, Callable[[Any], Any]], ...] = field(default=(), init=False)

    # ---- the sink

    def prepare(self) -> None:
        """Connect, and make the table of positions."""
        self.close()
        self._engine = self._connect()
        dialect = self._engine.dialect.name
        self._plain = tuple((name, plain_of(kind, self.settings.nan, dialect)) for name, kind in self._types.items())
        with self._translating(), self._transaction() as connection:
            positions, self._table = self._declared(dialect)
            positions.create(connection, checkfirst=True)

    def claim(self, lake: str) -> None:
        """Note that this delivery fills the table, unless another one does; then make the table, or check its columns.

        Raises:
            ConnectorError: DELIVERY-024, another delivery fills it; DELIVERY-004, it is another table, or has columns of other types.
            LifecycleError: LIFECYCLE-241, another lake delivers under this name, into whatever table.
        """
        assert self._table is not None
        with self._translating():
            with self._transaction() as connection:  # a table that is refused leaves no claim
                self._check_lake(connection, lake)
                self._check_owner(connection, self._table)
                self._lacking(connection, self._table)
            with self._transaction() as connection:
                positions, _ = self._declared(connection.dialect.name)
                if connection.dialect.name != "sqlite":  # whose transactions are one after the other
                    connection.execute(_turn(positions, connection.dialect.name))
                self._check_lake(connection, lake)
                for left in self._left_claims(
                    connection, self._table
                ):  # one that has begun meanwhile stays, and is refused below
                    claim = positions.c.delivery == left, positions.c.number < 0
                    connection.execute(sa.delete(positions).where(*claim))
                self._check_owner(connection, self._table)
                self._note_claim(connection, self._table, lake)
            with self._transaction() as connection:  # before the table is altered, which MariaDB commits at once
                self._row(connection, locked=True)  # no other process of this name delivers between look and note
                is_forgotten = self._lacking(connection, self._table) != [] or self._was_other(connection, self._table)
                if is_forgotten:
                    self._forget_table(connection)
            with self._transaction() as connection:  # may wait for readers of the table, and holds no row of positions
                if self._make(connection, self._table) and not is_forgotten:  # dropped or altered by hand meanwhile
                    self._forget_table(connection)

    def position(self) -> Delivered | None:
        """As the database says."""
        with self._translating(), self._transaction() as connection:
            row = self._row(connection)
        return None if row is None else _position(row)

    def deliver(self, changes: Changes, number: int) -> None:
        """Delete and upsert rows, and move the position, in one transaction."""
        assert self._table is not None
        with self._translating(), self._transaction() as connection:
            row = self._row(connection, locked=True)
            if row is not None and row.number >= number:
                if _position(row) == changes.position:
                    return
                raise self._taken_over(row.number, number)
            if (-1 if row is None else row.number) != number - 1:
                raise self._taken_over(-1 if row is None else row.number, number)
            if changes.whole:
                self._check_owner(connection, self._table)
                connection.execute(sa.delete(self._table))
                crash.point("delivery.after_clear")
            for batch in changes.batches:
                self._write(connection, batch)
                crash.point("delivery.after_batch")
            crash.point("delivery.before_position")
            self._move(connection, row, changes.position)
            crash.point("delivery.before_commit")
        crash.point("delivery.after_commit")

    def close(self) -> None:
        """Close connections."""
        if self._engine is not None:
            self._engine.dispose()
        self._engine = None

    # ---- statements

    def _write(self, connection: Connection, batch: list[Change]) -> None:
        table = self._table
        assert table is not None
        if gone := [{"gone": change.key} for change in batch if change.row is None]:
            connection.execute(sa.delete(table).where(table.c[KEY] == sa.bindparam("gone")), gone)
        if rows := [self._values(change.key, change.row) for change in batch if change.row is not None]:
            connection.execute(_upsert(table, connection.dialect.name), rows)

    def _values(self, key: str, row: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {KEY: key}
        for name, plain in self._plain:
            value = row[name]
            try:
                values[name] = None if value is None else plain(value)
            except ValueError as error:
                fix = f"{error.args[1]} The row: {shown(json.dumps(dict(row), default=str))}."
                where = f"delivery '{self.route.name}', column {name}"
                raise ConnectorError(where, str(error.args[0]), shown(value), fix, code="DELIVERY-007") from error
        return values

    def _was_other(self, connection: Connection, table: sa.Table) -> bool:
        """Whether the last delivery went into another table, or the output has a column that it did not have: rows that were delivered without it keep older values there."""
        row = self._row(connection)
        noted = {} if row is None else json.loads(row.position)
        further = _COLUMNS in noted and not self._types.keys() <= {*noted[_COLUMNS]}
        return further or _into(noted) not in {None, _full_name(connection, table)}

    def _note_claim(self, connection: Connection, table: sa.Table, lake: str) -> None:
        """Note the table of the next delivery: others look there."""
        positions, _ = self._declared(connection.dialect.name)
        row, full = self._row(connection), _full_name(connection, table)
        noted = {} if row is None else json.loads(row.position)
        is_noted = row is not None and _into(noted) in {None, full} and noted.get("lake", lake) == lake
        if is_noted and (row.number >= 0 or noted.get(claims.HOST) == host()):
            return
        row = self._row(connection, locked=True)
        claim = self._noted(connection, Delivered(name=self.route.output.table, lake=lake), {claims.HOST: host()})
        if row is None:
            connection.execute(sa.insert(positions).values(delivery=self.route.name, **claim))
        elif row.number < 0:
            connection.execute(sa.update(positions).where(positions.c.delivery == self.route.name).values(**claim))
        else:
            content = json.dumps({**json.loads(row.position), _COLUMNS: dict.fromkeys(self._types, full)})
            connection.execute(
                sa.update(positions)
                .where(positions.c.delivery == self.route.name)
                .values(position=content, table_id="")
            )

    def _forget_table(self, connection: Connection) -> None:
        """Let the next delivery be one of all results: what was delivered before is not in the table."""
        positions, _ = self._declared(connection.dialect.name)
        connection.execute(sa.update(positions).where(positions.c.delivery == self.route.name).values(table_id=""))

    def _check_owner(self, connection: Connection, table: sa.Table) -> None:
        """Refuse a table that another delivery fills: all results of one would replace those of the other.

        Raises:
            ConnectorError: DELIVERY-024.
        """
        for name, is_left in self._others(connection, table):
            if not is_left:
                fix = (
                    "Give each delivery a table of its own: ToSql(..., table=...). If the other one is gone: "
                    f"DELETE FROM {self._positions} WHERE delivery = '{name}'"
                )
                where = f"delivery '{self.route.name}', table {table.fullname}"
                got = f"that of delivery '{name}'"
                raise ConnectorError(where, "a table of its own", got, fix, code="DELIVERY-024")

    def _left_claims(self, connection: Connection, table: sa.Table) -> list[str]:
        """Other deliveries that have claimed a table, have delivered nothing, and are at work no more."""
        return [name for name, is_left in self._others(connection, table) if is_left]

    def _others(self, connection: Connection, table: sa.Table) -> Iterator[tuple[str, bool]]:
        """Other deliveries into a table, each with whether it is a claim that is left."""
        positions, _ = self._declared(connection.dialect.name)
        named = str.casefold if _ignores_case(connection) else str
        full = _full_name(connection, table)
        asked = sa.select(positions.c.delivery, positions.c.number, positions.c.position)
        for name, number, content in connection.execute(asked).all():
            into = _into(noted := json.loads(content))
            if name != self.route.name and into is not None and named(into) == named(full):
                yield name, _is_left(name, number, noted)

    def _check_lake(self, connection: Connection, lake: str) -> None:
        """Refuse a position of another lake: each would go on where the other one is.

        Raises:
            LifecycleError: LIFECYCLE-241.
        """
        row = self._row(connection)
        noted = {} if row is None else json.loads(row.position)
        if noted.get("lake", "") in {"", lake} or _is_left(self.route.name, row.number, noted):
            return
        into = _into(noted)
        other = f"{noted['lake']}{f', into table {into}' if into else ''}"
        raise claims.other_lake(self.route.name, lake, other, self.takeover)

    @property
    def takeover(self) -> str:
        """As ``Sink``."""
        return f"DELETE FROM {self._positions} WHERE delivery = '{self.route.name}', which delivers all anew"

    def _row(self, connection: Connection, *, locked: bool = False) -> Any:
        positions, _ = self._declared(connection.dialect.name)
        asked = sa.select(positions).where(positions.c.delivery == self.route.name)
        return connection.execute(asked.with_for_update() if locked else asked).one_or_none()

    def _move(self, connection: Connection, row: Any, position: Delivered) -> None:
        """Move the position; refuse to where another process has moved it meanwhile."""
        positions, _ = self._declared(connection.dialect.name)
        values = self._noted(connection, position)
        if row is None:
            connection.execute(sa.insert(positions).values(delivery=self.route.name, **values))
            return
        moved = connection.execute(
            sa.update(positions)
            .where(positions.c.delivery == self.route.name, positions.c.number == row.number)
            .values(**values)
        )
        if moved.rowcount != 1:
            raise self._taken_over(position.number, position.number)

    def _noted(
        self, connection: Connection, position: Delivered, further: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, Any]:
        """The columns of a position, with what is noted of it further."""
        _, results = self._declared(connection.dialect.name)
        columns = dict.fromkeys(self._types, _full_name(connection, results))
        return {
            "table_id": position.table,
            "version": position.version,
            "number": position.number,
            "position": json.dumps({**asdict(position), _COLUMNS: columns, **further}, separators=(",", ":")),
            "delivered_at": _now(),
        }

    def _taken_over(self, there: int, number: int) -> LifecycleError:
        fix = (
            "Only one lake may deliver to it under one name: give the other one a name of its own, deliver=[ToSql(..., name=...)], and a table of "
            f"its own. If the other one is gone: DELETE FROM {self._positions} WHERE delivery = '{self.route.name}', which delivers all anew."
        )
        where, got = f"delivery '{self.route.name}'", f"delivery {there}"
        return LifecycleError(where, f"delivery {number - 1} in {self._positions}", got, fix, code="LIFECYCLE-240")

    # ---- tables

    @property
    def _positions(self) -> str:
        """The full name of the table of positions."""
        return f"{self.settings.schema}.{POSITIONS}" if self.settings.schema else POSITIONS

    @property
    def _types(self) -> dict[str, Type]:
        return {name: parse_type(kind) for name, kind in self.route.output.schema.types.items()}

    def _declared(self, dialect: str) -> tuple[sa.Table, sa.Table]:
        """The tables of positions and of results, as they should be."""
        metadata = sa.MetaData(schema=self.settings.schema)
        options: dict[str, Any] = {}
        if dialect in {"mysql", "mariadb"}:  # texts that differ are two
            options = {
                f"{dialect}_charset": "utf8mb4",
                f"{dialect}_collate": "utf8mb4_bin",
                f"{dialect}_engine": "InnoDB",
            }
        positions = sa.Table(
            POSITIONS,
            metadata,
            sa.Column("delivery", sa.String(200), primary_key=True),
            sa.Column("table_id", sa.String(64), nullable=False),
            sa.Column("version", sa.BigInteger, nullable=False),
            sa.Column("number", sa.BigInteger, nullable=False),
            sa.Column("position", sa.Text, nullable=False),
            sa.Column("delivered_at", sa.DateTime, nullable=False),
            **options,
        )
        results = sa.Table(
            self.settings.table or self.route.output.table,
            metadata,
            sa.Column(KEY, sa.CHAR(32), primary_key=True),
            *(sa.Column(name, column_type(kind)) for name, kind in self._types.items()),
            **options,
        )
        return positions, results

    def _make(self, connection: Connection, table: sa.Table) -> bool:
        """Make a table, or add columns that it lacks. Returns True if it was made or altered.

        Raises:
            ConnectorError: as of ``_lacking``.
        """
        lacking = self._lacking(connection, table)
        if lacking is None:
            table.create(connection)
            return True
        for column in lacking:
            kind = column.type.compile(dialect=connection.dialect)
            full = ".".join(_quoted(connection, name) for name in (table.schema, table.name) if name)
            statement = f"ALTER TABLE {full} ADD COLUMN {_quoted(connection, column.name)} {kind}"
            connection.execute(sa.text(statement.replace(":", "\\:")))
        return bool(lacking)

    def _lacking(self, connection: Connection, table: sa.Table) -> list[sa.Column[Any]] | None:
        """The columns of the output that a table lacks; None if there is no such table.

        Raises:
            ConnectorError: DELIVERY-004, it is another table, or has columns of other types.
        """
        looked = sa.inspect(connection)
        if not looked.has_table(table.name, schema=table.schema):
            return None
        there = {column["name"]: column for column in looked.get_columns(table.name, schema=table.schema)}
        where = f"delivery '{self.route.name}', table {table.fullname}"
        if KEY not in there:
            fix = "Give the delivery a table of its own: ToSql(..., table=...), which is made where it is not there; or drop this one."
            raise ConnectorError(
                where, f"one with the key {KEY}", "one that floodmark has not made", fix, code="DELIVERY-004"
            )
        differ = [
            f"{column.name} {there[column.name]['type']}, not {column.type.compile(dialect=connection.dialect)}"
            for column in table.columns
            if column.name in there and not fits(column.type, there[column.name]["type"], connection.dialect)
        ]
        if differ:
            fix = (
                f"Change them back, or drop the table, which is then made and filled anew: DROP TABLE {table.fullname}"
            )
            expected = "the columns of the output"
            raise ConnectorError(where, expected, "; ".join(differ), fix, code="DELIVERY-004")
        return [column for column in table.columns if column.name not in there]

    # ---- the database

    @cached_property
    def _where(self) -> str:
        settings = self.settings
        return secret.described(settings.url) if not isinstance(settings.url, str) else settings.url

    def _connect(self) -> Engine:
        settings, where = self.settings, f"delivery '{self.route.name}'"
        try:
            engine = engine_of(settings.url, settings.password, where=where, setting="ToSql(...)", options=_options)
        except KeyError as error:
            fix = f"Deliver to one of these: {', '.join(DIALECTS)}."
            expected = "a database that deliveries know"
            raise ConnectorError(where, expected, str(error), fix, code="DELIVERY-003") from error
        if engine.dialect.name == "sqlite":
            _begin_immediately(engine)
        return engine

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        assert self._engine is not None
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Errors of the database as what a delivery does about them."""
        where = f"delivery '{self.route.name}'"
        try:
            yield
        except exc.IntegrityError as error:
            if _is_altered(error):
                raise Altered(f"{where}: {_message(error)}") from error
            fix = (
                "Nothing of this delivery is in the database. Drop the constraint, or mend what breaks it, and restart the delivery: "
                f"floodmark restart {self.route.name}"
            )
            got = _OTHER_UNIQUE if f"'{KEY}' cannot be null" in str(error.orig) else _message(error)
            raise ConnectorError(where, "rows that the table takes", got, fix, code="DELIVERY-006") from error
        except exc.DataError as error:
            fix = "Nothing of this delivery is in the database. Filter such results out in the operator, or widen the column."
            raise ConnectorError(
                where, "values that the table holds", _message(error), fix, code="DELIVERY-006"
            ) from error
        except exc.DBAPIError as error:
            if _is_altered(error):
                raise Altered(f"{where}: {_message(error)}") from error
            if (
                not isinstance(error, exc.OperationalError | exc.InterfaceError | exc.InternalError)
                and not error.connection_invalidated
            ):
                fix = f"See what the database says, and restart the delivery: floodmark restart {self.route.name}"
                raise ConnectorError(
                    where, "a database that takes it", _message(error), fix, code="DELIVERY-006"
                ) from error
            fix = "It goes on once the database can be reached and has room."
            raise Away(where, "a database that answers", _message(error), fix, code="DELIVERY-001") from error


def _position(row: Any) -> Delivered:
    noted = json.loads(row.position)
    names = {one.name for one in fields(Delivered)}
    position = Delivered(**{name: value for name, value in noted.items() if name in names})
    if position.number < 0:  # a claim
        return position
    return position if row.table_id else Delivered(number=position.number)


def _turn(positions: sa.Table, dialect: str) -> Any:
    """The statement that waits for claims by other deliveries, and makes them wait until the transaction ends: a row is locked, and made before if need be.

    Args:
        positions: the table of positions.
        dialect: of a server.
    """
    at = _now()
    values = {"delivery": _TURN, "table_id": "", "version": -1, "number": -1, "position": "{}", "delivered_at": at}
    if dialect in {"mysql", "mariadb"}:
        return mysql.insert(positions).values(values).on_duplicate_key_update(delivered_at=at)
    made = postgresql.insert(positions).values(values)
    return made.on_conflict_do_update(index_elements=["delivery"], set_={"delivered_at": at})


def _is_left(delivery: str, number: int, noted: Mapping[str, Any]) -> bool:
    """Whether what is noted of a delivery is a claim without a delivery behind it, and nobody's any more."""
    return (
        number < 0 and bool(noted.get("lake")) and claims.is_left(noted["lake"], delivery, noted.get(claims.HOST, ""))
    )


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def _into(noted: Mapping[str, Any]) -> str | None:
    """The table of the last delivery; None where an earlier release has not noted it."""
    columns = noted.get(_COLUMNS)
    return next(iter(columns.values()), None) if isinstance(columns, dict) else None


def _quoted(connection: Connection, name: str) -> str:
    """A name as SQL has it, for ``sqlalchemy.text``: SQLAlchemy's own has each percent sign twice for some drivers, which the text would double again."""
    quotes = connection.dialect.identifier_preparer
    escaped = name.replace(quotes.escape_quote, quotes.escape_to_quote)
    return f"{quotes.initial_quote}{escaped}{quotes.final_quote}"


def _full_name(connection: Connection, table: sa.Table) -> str:
    """Name of a table with its schema, also where that is the database's own."""
    schema = table.schema or connection.dialect.default_schema_name
    return f"{schema}.{table.name}" if schema else table.name


def _ignores_case(connection: Connection) -> bool:
    """Whether names of tables that differ in case are one."""
    if connection.dialect.name in {"mysql", "mariadb"}:
        return bool(connection.scalar(sa.text("SELECT @@lower_case_table_names")))
    return connection.dialect.name == "sqlite"


def _options(backend: str) -> dict[str, Any]:
    """Options of an engine. Raises KeyError for a database that deliveries do not know."""
    server: dict[str, Any] = {"connect_args": {"connect_timeout": 10}, "isolation_level": "READ COMMITTED"}
    return {
        "sqlite": {"connect_args": {"timeout": 10}},
        "postgresql": {**server, "connect_args": {"connect_timeout": 10, "options": "-c timezone=utc"}},
        "mariadb": server,
        "mysql": server,
    }[backend]


def _begin_immediately(engine: Engine) -> None:
    """Let SQLite begin transactions where SQLAlchemy does, also for DDL, and at once take the lock that writes need."""

    @event.listens_for(engine, "connect")
    def _(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _is_altered(error: exc.DBAPIError) -> bool:
    return type(error.orig).__name__ in _CODES or any(text in str(error.orig) for text in (*_GONE, *_MADE))


def _message(error: exc.DBAPIError) -> str:
    """What the database says: the first line, as PostgreSQL names values of rows in further ones."""
    return str(error.orig).strip().partition("\n")[0][:500]


def _upsert(table: sa.Table, dialect: str) -> Any:
    """The statement that inserts a row, or updates the one of its key."""
    names = [column.name for column in table.columns if column.name != KEY]
    if dialect in {"mysql", "mariadb"}:
        insert = mysql.insert(table)
        # a row that a unique index of somebody's own finds is another one: its key would be null, which is an error
        same = sa.case((table.c[KEY] == insert.inserted[KEY], table.c[KEY]), else_=sa.null())
        return insert.on_duplicate_key_update([(KEY, same), *((name, insert.inserted[name]) for name in names)])
    made = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    changed = {name: made.excluded[name] for name in names}
    return made.on_conflict_do_update(index_elements=[KEY], set_=changed) if changed else made.on_conflict_do_nothing()
