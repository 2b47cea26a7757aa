"""SQL: settings of a delivery into a table of a database. Frozen, without I/O."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from floodmark.core.errors import DefinitionError
from floodmark.spec.assets.delivery import Guarantee, Mirror
from floodmark.spec.values.database import dialect_of
from floodmark.spec.values.secret import Secret

DIALECTS = ("sqlite", "postgresql", "mariadb", "mysql")
"""Databases with transactions and upserts, by SQLAlchemy's name."""


@dataclass(frozen=True, slots=True)
class ToSql(Mirror):
    """The last value of each result in a table of a database, exactly once: rows and position change in one transaction.

    A result that is revised is updated; one that is taken back is deleted. Results that are final are inserted. The table is made where it is not
    there. Beside the output's columns it has ``_floodmark_key``, its primary key, a digest of the columns by which a result is one. The table
    ``_floodmark_positions`` says how far each delivery has got.

    Args:
        url: of the database, for SQLAlchemy: ``"sqlite:////data/shop.db"``, ``"postgresql+psycopg://lander@db/shop"``; or a reference to one
            that has a password: ``Env("SHOP_DATABASE")``.
        table: name of the table; by default that of the output's.
        password: where it is, if the URL has none.
        schema: of the table, for databases that have schemas.
        nan: what becomes of NaN and infinities in a database without them (SQLite has no NaN, MariaDB neither): ``"stop"`` the delivery, or ``"null"``.

    Raises:
        DefinitionError: DEFINITION-335, a setting; 338 and 339, url and password; 298, a password that is written out.
    """

    implementation: ClassVar[str] = "floodmark.deliveries.sql:SqlSink"
    kind: ClassVar[str] = "sql"
    guarantee: ClassVar[Guarantee] = "transaction"

    url: str | Secret
    table: str = ""
    _: KW_ONLY
    password: Secret | None = None
    schema: str | None = None
    nan: Literal["stop", "null"] = "stop"

    def __post_init__(self) -> None:
        """Check the settings."""
        where = f"ToSql({self.table!r})" if self.table else "ToSql"
        dialect = dialect_of(self.url, self.password, where)
        checks: dict[str, tuple[bool, str, str]] = {
            "url": (dialect in {"", *DIALECTS}, f"a URL of {', '.join(DIALECTS)}", dialect),
            "table": (isinstance(self.table, str), "the name of a table", repr(self.table)),
            "schema": (self.schema is None or isinstance(self.schema, str), "a name or None", repr(self.schema)),
            "nan": (self.nan in {"stop", "null"}, '"stop" or "null"', repr(self.nan)),
        }
        for name, (fits, expected, got) in checks.items():
            if not fits:
                raise DefinitionError(f"{where}, {name}", expected, got, f"Correct {name}.", code="DEFINITION-335")
