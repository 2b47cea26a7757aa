"""The sink of databases: values of every type come back as they left, on each database."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
import sinks
import sqlalchemy as sa
from small_lake import TOTALS

from floodmark import ToSql
from floodmark.core.errors import ConnectorError
from floodmark.core.types import parse
from floodmark.deliveries.sink import Change, Changes
from floodmark.deliveries.sql import KEY, POSITIONS, SqlSink
from floodmark.deliveries.sql_columns import plain_of
from floodmark.lake.stream.delivered import Delivered
from floodmark.spec.assets.delivery import Route
from floodmark.spec.graph.operator import Output
from floodmark.spec.values.schema import Column, Schema

TYPES = {
    "key": "string",
    "small": "tinyint",
    "large": "bigint",
    "real": "float",
    "number": "double",
    "exact": "decimal(38,10)",
    "whole": "decimal(38,0)",
    "flag": "boolean",
    "bytes": "binary",
    "day": "date",
    "at": "timestamp",
    "many": "array<bigint>",
    "named": "map<string,double>",
    "parts": "struct<a:bigint,b:timestamp>",
}
OUTPUT = Output(
    name="",
    table="typed",
    schema=Schema(tuple(Column(name=name, type=kind) for name, kind in TYPES.items())),
    revisable=True,
    keys=("key",),
)
NOON = datetime(2025, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)
ROW: dict[str, Any] = {
    "key": "a 'quoted' 😀 \\ text ",
    "small": -128,
    "large": 2**63 - 1,
    "real": 0.5,
    "number": -1.7976931348623157e308,
    "exact": Decimal("1234567890123456789012345678.0123456789"),
    "whole": Decimal("-99999999999999999999999999999999999999"),
    "flag": True,
    "bytes": bytes(range(256)),
    "day": date(1, 1, 1),
    "at": NOON,
    "many": [1, None, -(2**63)],
    "named": {"x": 1.5},
    "parts": {"a": 1, "b": NOON},
}
NULLS = dict.fromkeys(TYPES)


@pytest.fixture(scope="module", params=["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.soak)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a new database of each kind."""
    with sinks.database(request.param) as address:
        yield address


def deliver(url: str, *changes: Change, number: int = 0, **settings: Any) -> None:
    """One delivery."""
    delivery = ToSql(url, **settings)
    sink = delivery.sink(Route(name="typed_to_sql", operator=TOTALS, output=OUTPUT, delivery=delivery))
    sink.prepare()
    sink.claim("/lake")
    at = sink.position()
    number = 0 if at is None else at.number + 1
    position = Delivered(table="t", version=number, number=number, lake="/lake")
    sink.deliver(Changes(batches=iter([list(changes)]), documents=iter(()), position=position, before=at), number)
    assert sink.position() == position
    sink.close()


def sink_of(url: str, name: str) -> SqlSink:
    """A sink of a delivery that has a table of its own."""
    delivery = ToSql(url, table=name)
    sink = delivery.sink(Route(name=f"{name}_to_sql", operator=TOTALS, output=OUTPUT, delivery=delivery))
    assert isinstance(sink, SqlSink)
    sink.prepare()
    return sink


def drop_column(url: str, table: str) -> None:
    """Drop a column of a table by hand."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN large"))
    engine.dispose()


def at_alter(sink: SqlSink, moment: str, do: Callable[[], None]) -> None:
    """Do something at the sink's statements that alter a table.

    Args:
        sink: of a database.
        moment: "before_cursor_execute" or "after_cursor_execute".
        do: what is done.
    """

    def look(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("ALTER TABLE"):
            do()

    assert sink._engine is not None
    sa.event.listen(sink._engine, moment, look)


def change(key: str, row: dict[str, Any] | None) -> Change:
    """Of the result of a key."""
    return Change(key * 32, row, {}, 0)


def test_values_of_every_type_come_back(url: str) -> None:
    deliver(url, change("a", ROW), change("b", NULLS))
    there = {row.pop(KEY): row for row in sinks.rows(url, "typed")}
    assert there["b" * 32] == NULLS
    found = there["a" * 32]
    decimals = {name: Decimal(str(found.pop(name))) for name in ("exact", "whole")}
    assert decimals == {name: ROW[name] for name in decimals}
    at = found.pop("at")
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    assert isinstance(at, datetime)
    assert (at if at.tzinfo else at.replace(tzinfo=UTC)) == NOON
    assert f"{found.pop('day')}" == "0001-01-01"
    texts = {name: json.loads(str(found.pop(name))) for name in ("many", "named", "parts")}
    assert texts == {"many": ROW["many"], "named": ROW["named"], "parts": {"a": 1, "b": NOON.isoformat()}}
    assert found == {name: ROW[name] for name in found}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("map<date,double>", {date(2020, 1, 1): math.nan}, '{"2020-01-01": "nan"}'),
        ("map<timestamp,bigint>", {NOON: 1}, '{"2025-02-28T23:59:59.999999Z": 1}'),
        ("map<boolean,bigint>", {True: 1}, '{"true": 1}'),
        ("array<double>", [math.inf, 1.5], '["inf", 1.5]'),
        ("array<decimal(38,10)>", [Decimal("0E-10")], '["0.0000000000"]'),
        ("decimal(38,10)", Decimal("0E-10"), "0.0000000000"),
    ],
)
def test_a_value_that_json_lacks_is_a_text(kind: str, value: Any, text: str) -> None:
    assert plain_of(parse(kind), "stop", "sqlite")(value) == text


def test_a_column_of_an_odd_name_is_added_under_that_name(url: str) -> None:
    name = 'a :b%c%%"d`e ключ'
    if url.startswith(
        "mysql"
    ):  # PyMySQL doubles percent signs where it inserts many rows, SQLAlchemy backticks where it looks
        name = name.replace("%", "").replace("`", "")
    columns = (Column(name="key", type="string"), Column(name=name, type="bigint"))
    delivery = ToSql(url, table="odd")
    output = Output(name="", table="odd", schema=Schema(columns), revisable=True, keys=("key",))
    route = Route(name="odd_to_sql", operator=TOTALS, output=output, delivery=delivery)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        sa.Table(
            "odd", sa.MetaData(), sa.Column(KEY, sa.CHAR(32), primary_key=True), sa.Column("key", sa.Text())
        ).create(connection)
    engine.dispose()
    with closing(delivery.sink(route)) as sink:
        assert isinstance(sink, SqlSink)
        sink.prepare()
        sink.claim("/lake")
        position = Delivered(table="t", version=0, number=0, lake="/lake")
        row = {"key": "k", name: 7}
        batch = [Change("a" * 32, row, {"key": "k"}, 0)]
        sink.deliver(Changes(batches=iter([batch]), documents=iter(()), position=position, before=None), 0)
    assert sinks.rows(url, "odd") == [{KEY: "a" * 32, **row}]


def test_a_result_is_updated_deleted_and_there_once(url: str) -> None:
    deliver(url, change("c", ROW), change("d", ROW))
    deliver(url, change("c", ROW | {"large": 7}), change("d", None), change("e", None))
    there = {row[KEY]: row["large"] for row in sinks.rows(url, "typed")}
    assert (there["c" * 32], there.get("d" * 32), there.get("e" * 32)) == (7, None, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_a_database_lacks_are_refused_or_null(url: str, value: float) -> None:
    lacking = url.startswith("mysql") or (url.startswith("sqlite") and math.isnan(value))
    wanted = change("f", ROW | {"number": value})
    if lacking:
        with pytest.raises(ConnectorError, match='DELIVERY-007 .*column number: .*nan="null"'):
            deliver(url, wanted)
        assert "f" * 32 not in {row[KEY] for row in sinks.rows(url, "typed")}
        deliver(url, wanted, nan="null")
    else:
        deliver(url, wanted)
    (found,) = (row["number"] for row in sinks.rows(url, "typed") if row[KEY] == "f" * 32)
    assert found is None if lacking else found == value or math.isnan(value)
    deliver(url, change("f", None))


def test_a_text_that_postgresql_lacks_is_refused(url: str) -> None:
    wanted = change("g", ROW | {"key": "a\x00b"})
    if url.startswith("postgresql"):
        with pytest.raises(ConnectorError, match="DELIVERY-007 .*column key: .*character 0"):
            deliver(url, wanted)
    else:
        deliver(url, wanted)
        assert "a\x00b" in {row["key"] for row in sinks.rows(url, "typed")}


@pytest.mark.parametrize(
    "url",
    ["postgresql", pytest.param("mariadb", marks=pytest.mark.soak)],  # SQLite has one writer at a time
    indirect=True,
)
def test_a_table_that_is_being_altered_stops_no_other_delivery(url: str) -> None:
    for name in ("ta", "tb"):
        made = sink_of(url, name)
        made.claim("/lake")
        made.close()
    drop_column(url, "ta")
    altering, other, claimed = sink_of(url, "ta"), sink_of(url, "tb"), list[str]()

    def beside() -> None:
        assert other._engine is not None
        with other._engine.begin() as connection:  # an error if a row is locked
            names = connection.execute(sa.text(f"SELECT delivery FROM {POSITIONS} FOR UPDATE NOWAIT")).scalars()
            assert {"(claims)", "ta_to_sql", "tb_to_sql"} <= {*names}
        other.claim("/lake")
        claimed.append("tb")

    at_alter(altering, "before_cursor_execute", beside)
    altering.claim("/lake")
    assert claimed == ["tb"]
    altering.close()
    other.close()


@pytest.mark.parametrize("moment", ["before_cursor_execute", "after_cursor_execute"])
def test_a_kill_while_a_table_is_altered_delivers_all_results_anew(url: str, moment: str) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    table = f"killed_{moment.partition('_')[0]}"
    first = sink_of(url, table)
    first.claim("/lake")
    position = Delivered(table="t", version=0, number=0, lake="/lake")
    changes = Changes(batches=iter([[change("a", ROW)]]), documents=iter(()), position=position, before=None)
    first.deliver(changes, 0)
    first.close()
    drop_column(url, table)
    killed = sink_of(url, table)
    at_alter(killed, moment, kill)
    with pytest.raises(Killed):
        killed.claim("/lake")
    killed.close()
    again = sink_of(url, table)
    again.claim("/lake")
    assert again.position() == Delivered(number=0)  # of no table: the next delivery is of all results
    again.close()
    assert "large" in sinks.rows(url, table)[0]


def test_a_table_of_somebody_else_is_refused_without_a_claim(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE somebodys (x integer)"))
    sink = sink_of(url, "somebodys")
    with pytest.raises(ConnectorError, match="DELIVERY-004"):
        sink.claim("/lake")
    assert sink.position() is None
    sink.close()
    engine.dispose()
