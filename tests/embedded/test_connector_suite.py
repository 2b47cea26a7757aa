"""Every connector passes the checks of ``floodmark.testing.connectors``."""

from __future__ import annotations

import importlib
import json
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mariadb as mariadb_server
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from postgres import data_folder, database
from postgres import serving as serving_postgres
from sqlalchemy import create_engine, text

from floodmark import Connector, DeltaTable, Files, Kafka, SqlTable
from floodmark.testing import connectors
from floodmark.testing.connectors import CHECKS, Input, Row

if TYPE_CHECKING:
    from kafka_broker import Broker

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("number", pa.int64()), ("text", pa.string())])
BROKEN = {"at": "2025-01-01T00:00:00Z", "number": None, "text": "broken"}


def written(row: Row) -> dict[str, Any]:
    """A row as texts and numbers."""
    return {"at": row.at.isoformat(), "number": row.number, "text": row.text}


class JsonFiles(Input):
    """Files of a few rows; of many rows one file."""

    files = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "inbox").mkdir()

    def connector(self) -> Connector:
        return Files(str(self.folder / "inbox"), format="json", min_age="0 s")

    def write(self, lines: Sequence[dict[str, Any]], file: Path) -> None:
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def put(self, lines: Sequence[dict[str, Any]]) -> None:
        self.files += 1
        made = self.folder / f"{self.files}.tmp"
        self.write(lines, made)
        made.rename(self.folder / "inbox" / f"{self.files:04}")

    def add(self, rows: Sequence[Row]) -> None:
        size = 9 if len(rows) < 1000 else len(rows)
        for begin in range(0, len(rows), size):
            self.put([written(row) for row in rows[begin : begin + size]])

    def add_broken(self, count: int) -> None:
        self.put([BROKEN] * count)

    def remove(self) -> None:
        (self.folder / "inbox").rmdir()


class ParquetFiles(JsonFiles):
    """Whole columns."""

    def connector(self) -> Connector:
        return Files(str(self.folder / "inbox"), format="parquet", min_age="0 s")

    def write(self, lines: Sequence[dict[str, Any]], file: Path) -> None:
        rows = [{**line, "at": datetime.fromisoformat(line["at"])} for line in lines]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file)


class DeltaCommits(Input):
    """A commit per portion."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        write_deltalake(str(folder / "table"), pa.table({name: [] for name in SCHEMA.names}, schema=SCHEMA))

    def connector(self) -> Connector:
        return DeltaTable(str(self.folder / "table"))

    def add(self, rows: Sequence[Row]) -> None:
        lines = [{"at": row.at, "number": row.number, "text": row.text} for row in rows]
        write_deltalake(str(self.folder / "table"), pa.Table.from_pylist(lines, SCHEMA), mode="append")

    def add_broken(self, count: int) -> None:
        lines = [{"at": connectors.BEGIN, "number": None, "text": "broken"}] * count
        write_deltalake(str(self.folder / "table"), pa.Table.from_pylist(lines, SCHEMA), mode="append")


class DatabaseRows(Input):
    """Rows of a table, by a number that counts up."""

    def __init__(self, folder: Path, url: str = "") -> None:
        super().__init__(folder)
        self.url, self.last = url or f"sqlite:///{folder}/shop.db", 0
        self.ask("CREATE TABLE orders (id BIGINT PRIMARY KEY, at VARCHAR(40), number BIGINT, text TEXT)")

    def ask(self, query: str, *rows: dict[str, Any]) -> None:
        engine = create_engine(self.url)
        with engine.begin() as connection:
            connection.execute(text(query), rows or None)
        engine.dispose()

    def connector(self) -> Connector:
        return SqlTable("orders", self.url, increasing="id", lag="0 s", rows_per_unit=9)

    def put(self, lines: Sequence[dict[str, Any]]) -> None:
        numbered = [{"id": self.last + place, **line} for place, line in enumerate(lines, 1)]
        self.last += len(lines)
        self.ask("INSERT INTO orders VALUES (:id, :at, :number, :text)", *numbered)

    def add(self, rows: Sequence[Row]) -> None:
        self.put([written(row) for row in rows])

    def add_broken(self, count: int) -> None:
        self.put([BROKEN] * count)

    def remove(self) -> None:
        self.ask("DROP TABLE orders")


class Messages(Input):
    """Messages of three partitions."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        super().__init__(folder)
        self.broker, self.topic = broker, broker.topic(3)

    def connector(self) -> Connector:
        return Kafka(self.topic, self.broker.servers, messages_per_unit=9)

    def add(self, rows: Sequence[Row]) -> None:
        self.broker.put(self.topic, ((row.number % 3, json.dumps(written(row)).encode()) for row in rows))

    def add_broken(self, count: int) -> None:
        self.broker.put(self.topic, [(0, b"poison")] * count)


class PageRows(DatabaseRows):
    """The connector of the page, which reads a table of SQLite."""

    def connector(self) -> Connector:
        defined: dict[str, Any] = sys.modules["page_connector"].__dict__
        connector: Connector = defined["SqliteTable"](str(self.folder / "shop.db"), "orders", rows_per_unit=9)
        return connector


@pytest.fixture(scope="module")
def page_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The code of the page as a module, which another process finds by its file."""
    code = next(
        code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "SqliteTable" in code
    )
    folder = tmp_path_factory.mktemp("page")
    (folder / "page_connector.py").write_text(code)
    sys.path.insert(0, str(folder))
    importlib.import_module("page_connector")
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def postgres() -> Iterator[Callable[[str], str]]:
    with data_folder() as folder, serving_postgres(folder) as server:
        yield partial(database, server)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Callable[[str], str]]:
    with mariadb_server.serving() as server:
        yield server.database


INPUTS: dict[str, tuple[type[Input], type[Connector]]] = {
    "json": (JsonFiles, Files),
    "parquet": (ParquetFiles, Files),
    "delta": (DeltaCommits, DeltaTable),
    "sqlite": (DatabaseRows, SqlTable),
    "page": (PageRows, Connector),
    "kafka": (Messages, Kafka),
    "postgres": (DatabaseRows, SqlTable),
    "mariadb": (DatabaseRows, SqlTable),
}
"""Name -> the input, and the connector that reads it."""
SERVED = {"kafka": "broker", "postgres": "postgres", "mariadb": "mariadb", "page": "page_module"}
"""Inputs that need a server, or a module: its fixture."""
ALWAYS: dict[Callable[..., None], str] = {
    connectors.killed_beside_any_write_it_ends_exactly_right: "page",
    connectors.many_rows_land: "json",
}
"""Of the other inputs these checks run in ``make soak``."""


@pytest.mark.feature("X16")
@pytest.mark.parametrize(
    ("kind", "check"),
    [
        pytest.param(
            kind,
            check,
            id=f"{kind}-{check.__name__}",
            marks=[pytest.mark.soak] if ALWAYS.get(check, kind) != kind else [],
        )
        for kind in INPUTS
        for check in CHECKS
    ],
)
@pytest.mark.few(20)
def test_a_connector_passes(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, check: Callable[[connectors.Make, Path], None]
) -> None:
    served = request.getfixturevalue(SERVED[kind]) if kind in SERVED else None

    def make(folder: Path) -> Input:
        if kind == "kafka":
            return Messages(folder, served)
        if kind in {"postgres", "mariadb"}:
            return DatabaseRows(folder, served(f"of_{uuid.uuid4().hex}"))
        return INPUTS[kind][0](folder)

    check(make, tmp_path)
    (tmp_path / "other").mkdir()
    assert isinstance(make(tmp_path / "other").connector(), INPUTS[kind][1])
