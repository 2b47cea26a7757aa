"""Databases of tests that deliveries write to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import sqlalchemy as sa

KINDS = ("sqlite", "postgresql", "mariadb")


@contextmanager
def database(kind: str) -> Iterator[str]:
    """The URL of a new database of a kind; it goes with the block, and its server with it."""
    name = f"sink_{uuid4().hex[:12]}"
    if kind == "postgresql":
        from postgres import data_folder, serving
        from postgres import database as of_postgres

        with data_folder() as folder, serving(folder) as server:
            yield of_postgres(server, name)
    elif kind == "mariadb":
        from mariadb import Server

        with TemporaryDirectory(prefix="maria-") as path:
            maria = Server(Path(path))
            maria.start()
            try:
                yield maria.database(name)
            finally:
                maria.stop()
    else:
        with TemporaryDirectory(prefix="sqlite-") as path:
            yield f"sqlite:///{path}/sink.db"


def rows(url: str, table: str) -> list[dict[str, object]]:
    """All rows of a table, as the driver has their values."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        columns = [column["name"] for column in sa.inspect(connection).get_columns(table)]
        selected = sa.select(sa.table(table, *map(sa.column, columns)))
        found = [dict(row) for row in connection.execute(selected).mappings()]
    engine.dispose()
    return found
