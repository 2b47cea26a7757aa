"""Tables of databases: settings of a source that lands the rows of a table in SQL. Frozen, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span
from floodmark.spec.rows.checks import not_negative
from floodmark.spec.rows.connector import Connector
from floodmark.spec.values.database import dialect_of
from floodmark.spec.values.secret import Secret


@dataclass(frozen=True, slots=True)
class SqlTable(Connector):
    """A table of a database to which rows are added, landed in the order of a column that increases: each row once.

    All rows that are there land first, range by range, then those with a larger value than the last one. A row that is changed lands again
    if the column changes with it, as a time of the last change does; as a row of its own, as a database cannot say what a row was before. A row
    that is deleted is not noticed.

    Time: values may become visible in another order than theirs, as transactions end in any order. So a range ends at the largest value
    that was seen ``lag`` ago; on PostgreSQL also not before every transaction that was at work then has ended. Elsewhere a transaction that takes
    longer than ``lag`` is missed where another one has gone past it.

    Args:
        name: of the table or view: ``"orders"``, ``"shop.orders"``.
        url: of the database, as SQLAlchemy writes it, without a password: ``"postgresql+psycopg://reader@db/shop"``; or a reference to one that
            has it, ``Env("SHOP_URL")``.
        increasing: the column: of whole numbers, decimals, times or dates. It needs an index. Rows without a value are refused.
        password: where it is, if ``url`` has none.
        lag: for how long a value must have been seen before the rows up to it land. ``floodmark land`` by itself waits for that long, once.
        rows_per_unit: about as many rows are in one unit, which a worker reads in one query; rows of one value are not parted.
            ``files_per_commit`` of the source limits the units of a commit.

    Raises:
        DefinitionError: DEFINITION-350, a setting; 338 and 339, url and password; 298, a password that is written out; 001 and 004, ``lag`` is no duration.

    Source: Kafka Connect, JDBC source, modes incrementing and timestamp; PostgreSQL, pg_current_snapshot.
    """

    implementation: ClassVar[str] = "floodmark.connectors.readers.sql:reader"
    unit: ClassVar[str] = "a range of values of the column"
    order: ClassVar[str] = "the column that increases"

    name: str
    url: str | Secret
    increasing: str
    password: Secret | None = None
    lag: str | timedelta = "10 seconds"
    rows_per_unit: int = 50_000

    def __post_init__(self) -> None:
        """Check the settings."""
        where = f"SqlTable({self.name!r})"
        checks: dict[str, tuple[bool, str]] = {
            "name": (_is_text(self.name), "the name of a table"),
            "increasing": (_is_text(self.increasing), "the name of a column"),
            "rows_per_unit": (isinstance(self.rows_per_unit, int) and self.rows_per_unit >= 1, "at least 1"),
        }
        for name, (fits, expected) in checks.items():
            if not fits:
                got = f"{name}={getattr(self, name)!r}"
                raise DefinitionError(where, expected, got, f"Correct {name}.", code="DEFINITION-350")
        dialect_of(self.url, self.password, where)
        not_negative(self.lag, f"{where}, lag")

    @property
    def lag_ms(self) -> int:
        """``lag``, ms."""
        return span(self.lag)


def _is_text(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())
