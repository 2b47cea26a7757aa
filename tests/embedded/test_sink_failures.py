"""What fails where results are delivered: servers that end, disks that are full, tables that others change, tokens that expire. The delivery waits and goes on, or says what to do."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import confluent_kafka
import mariadb
import postgres
import psutil
import pytest
import small_disk
import small_lake
import sqlalchemy as sa
from hooks import Hook
from kafka_topic import committed
from small_lake import TOTALS, row

from floodmark import Delivery as Settings
from floodmark import Env, SecretFile, ToFiles, ToKafka, ToSql, ToWebhook
from floodmark.core.errors import ConnectorError
from floodmark.deliveries import kafka
from floodmark.deliveries.files import MANIFEST
from floodmark.deliveries.run import Delivery, deliver
from floodmark.deliveries.sql import POSITIONS
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import Route, routes

if TYPE_CHECKING:
    from kafka_broker import Broker


class Database(Protocol):
    """A server with one database, which a test ends."""

    url: str

    def kill(self) -> None:
        """SIGKILL to all of its processes."""

    def start(self) -> None:
        """Start it again over its data."""


class Postgres:
    """PostgreSQL."""

    def __init__(self, stack: ExitStack) -> None:
        self.folder = stack.enter_context(postgres.data_folder())
        self._stack = stack
        self.start()
        self.url = postgres.database(self.server, "sink")

    def start(self) -> None:
        self.server = self._stack.enter_context(postgres.serving(self.folder))

    def kill(self) -> None:
        head = psutil.Process(self.server.get_pid())
        for process in [head, *head.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # it has ended with the head
                process.kill()
        head.wait(postgres.PATIENCE_SECONDS)


class Maria:
    """MariaDB."""

    def __init__(self, stack: ExitStack) -> None:
        self.server = mariadb.Server(Path(stack.enter_context(TemporaryDirectory(prefix="maria-"))))
        self.start()
        stack.callback(self.server.stop)
        self.url = self.server.database("sink")

    def start(self) -> None:
        self.server.start()

    def kill(self) -> None:
        self.server.stop(kill=True)


@pytest.fixture(scope="module")
def servers_of() -> Iterator[Callable[[str], Database]]:
    with ExitStack() as stack:
        servers: dict[str, Database] = {}

        def of(kind: str) -> Database:
            if kind not in servers:
                servers[kind] = Postgres(stack) if kind == "postgresql" else Maria(stack)
            return servers[kind]

        yield of


@pytest.fixture(params=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, servers_of: Callable[[str], Database]) -> Database:
    """A server, without tables."""
    server = servers_of(request.param)
    asked(server.url, *(f"DROP TABLE IF EXISTS {table}" for table in ("totals", POSITIONS)))
    return server


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two micro-batches: 'a' is 10, 'b' is 2, 'c' was retracted."""
    return small_lake.make(tmp_path / "lake")


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A program that is called."""
    with Hook.serving() as made:
        yield made


def bound(settings: Settings) -> Route:
    """The delivery of the results."""
    return routes(TOTALS, [settings], "test")[0]


def asked(url: str, *statements: str) -> list[Any]:
    """The rows of the last of some statements."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        results = [connection.execute(sa.text(statement)) for statement in statements]
        rows = [tuple(found) for found in results[-1]] if results[-1].returns_rows else []
    engine.dispose()
    return rows


def totals(url: str) -> dict[str | None, int]:
    """Key -> total in the table."""
    key = "`key`" if url.startswith("mysql") else '"key"'
    return dict(asked(url, f"SELECT {key}, total FROM totals"))


def followed(route: Route, lake: Lake, *, fail: Callable[[], object], mend: Callable[[], object]) -> list[str]:
    """What a delivery says that goes on while its sink fails behind the first delivery, until a further micro-batch is delivered."""
    stop, said, seen = threading.Event(), list[str](), list[Delivery]()

    def then(delivery: Delivery) -> None:
        seen.append(delivery)
        if len(seen) == 1:
            fail()
            small_lake.batch(lake, 2, [row("d", 4, 8)])
        if delivery.waiting == 0 and len(seen) > 1:
            stop.set()

    def wait(text: str) -> None:
        said.append(text)
        if text:
            mend()

    deliver(route, lake, stop=stop, on_delivery=then, on_wait=wait)
    return said


def nothing() -> None:
    """Nothing is to be mended."""


# ---- servers


@pytest.mark.feature("Z28")
def test_a_database_that_ends_in_the_middle_is_waited_for(lake: Lake, database: Database) -> None:
    said = followed(bound(ToSql(database.url)), lake, fail=database.kill, mend=database.start)
    assert said[0].startswith("waiting: delivery 'totals_to_sql': expected a database that answers, got ")
    assert said[-1] == ""
    assert totals(database.url) == small_lake.totals(lake) == {"a": 10, "b": 2, "d": 4}


@pytest.mark.parametrize(
    "alter", ["DROP TABLE totals", "ALTER TABLE totals DROP COLUMN total", f"DROP TABLE {POSITIONS}"]
)
@pytest.mark.few(2)
def test_a_table_that_is_dropped_or_loses_a_column_is_filled_anew(lake: Lake, database: Database, alter: str) -> None:
    followed(bound(ToSql(database.url)), lake, fail=lambda: asked(database.url, alter), mend=nothing)
    assert totals(database.url) == small_lake.totals(lake) == {"a": 10, "b": 2, "d": 4}


def test_a_column_of_another_type_is_refused(lake: Lake, database: Database) -> None:
    route = bound(ToSql(database.url))
    deliver(route, lake, until_caught_up=True)
    kind = "TYPE TEXT USING total::text" if database.url.startswith("postgresql") else "TEXT"
    change = f"ALTER TABLE totals {'ALTER' if database.url.startswith('postgresql') else 'MODIFY'} COLUMN total {kind}"
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    asked(database.url, change)
    with pytest.raises(ConnectorError, match="DELIVERY-004 .*total TEXT, not BIGINT.*DROP TABLE totals"):
        deliver(route, lake, until_caught_up=True)
    asked(database.url, "DROP TABLE totals")
    deliver(route, lake, until_caught_up=True)
    assert totals(database.url) == small_lake.totals(lake)


def test_a_unique_constraint_that_is_violated_stops_the_delivery(lake: Lake, database: Database) -> None:
    route = bound(ToSql(database.url))
    deliver(route, lake, until_caught_up=True)
    asked(database.url, "CREATE UNIQUE INDEX one_of_each ON totals (total)")
    small_lake.batch(lake, 2, [row("d", 4, 8), row("e", 10, 9)])
    with pytest.raises(
        ConnectorError, match="DELIVERY-006 .*(one_of_each|unique index).*floodmark restart totals_to_sql"
    ):
        deliver(route, lake, until_caught_up=True)
    assert totals(database.url) == {"a": 10, "b": 2}, "nothing of the transaction is there"
    drop = "DROP INDEX one_of_each"
    asked(database.url, drop if database.url.startswith("postgresql") else f"{drop} ON totals")
    deliver(route, lake, until_caught_up=True)
    assert totals(database.url) == small_lake.totals(lake)


# ---- disks


def delivered_beside_a_full(disk: Path, url: str, lake: Lake) -> list[str]:
    """What a delivery into a database says whose disk is full, until it is emptied."""
    rows = [row(f"{number}", number, number + 10) for number in range(4000)]
    return followed(
        bound(ToSql(url)),
        lake,
        fail=lambda: (small_disk.fill(disk), small_lake.batch(lake, 2, rows)),
        mend=lambda: small_disk.empty(disk),
    )


def test_a_full_disk_of_a_database_is_waited_for(lake: Lake, servers_of: Callable[[str], Database]) -> None:
    server = servers_of("postgresql")
    assert isinstance(server, Postgres)
    url = postgres.database(server.server, "small")
    with TemporaryDirectory(prefix="disk-") as folder:
        Path(folder).chmod(0o755)
        with small_disk.mounted(Path(folder) / "disk", "1m", owner=server.folder / "PG_VERSION") as disk:
            server.server.psql(f"CREATE TABLESPACE small LOCATION '{disk}';")
            server.server.psql("ALTER DATABASE small SET default_tablespace = small;")
            said = delivered_beside_a_full(disk, url, lake)
            assert "No space left on device" in said[0]
            assert totals(url) == small_lake.totals(lake)
            server.server.psql("DROP DATABASE small WITH (FORCE);")
            server.server.psql("DROP TABLESPACE small;")


def test_a_full_disk_of_a_mariadb_is_waited_for(lake: Lake, servers_of: Callable[[str], Database]) -> None:
    server = servers_of("mariadb")
    assert isinstance(server, Maria)
    url = server.server.database("small")
    tables = server.server.folder / "data" / "small"
    (tables / "db.opt").unlink()
    tables.rmdir()
    # once it is emptied there is room for the megabytes by which InnoDB makes a table larger
    with small_disk.mounted(tables, "16m", owner=server.server.folder / "data" / "ibdata1") as disk:
        said = delivered_beside_a_full(disk, url, lake)
        assert "is full" in said[0]
        assert totals(url) == small_lake.totals(lake)
        asked(url, "DROP TABLE totals", f"DROP TABLE {POSITIONS}")


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_full_disk_is_waited_for(lake: Lake, tmp_path: Path, kind: str) -> None:
    with small_disk.mounted(tmp_path / "disk", "512k") as disk:
        url = f"sqlite:///{disk}/sink.db"
        sink = ToSql(url) if kind == "sqlite" else ToFiles(str(disk / "out"), format="json", changes=True)
        said = followed(bound(sink), lake, fail=lambda: small_disk.fill(disk), mend=lambda: small_disk.empty(disk))
        assert "disk is full" in said[0] or "No space left on device" in said[0]
        if kind == "sqlite":
            assert totals(url) == small_lake.totals(lake)
        else:
            names = sorted(file.name for file in (disk / "out").iterdir())
            assert names == ["0000000000-1.json", "0000000001-2.json", MANIFEST]


def test_a_folder_that_is_removed_is_filled_anew(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = bound(ToFiles(str(out), format="json", changes=True))
    said = followed(written, lake, fail=lambda: shutil.rmtree(out), mend=nothing)
    assert said == [f"waiting: delivery 'totals_to_files': the folder {out} was removed", ""]
    (first,) = out.glob("0000000000-*.json")
    assert [line.count('"_change":"upsert"') for line in first.read_text().splitlines()] == [1, 1, 1]


# ---- tokens and passwords


def test_a_token_that_expires_is_read_again_from_its_file(lake: Lake, hook: Hook, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    route = bound(ToWebhook(hook.url, headers={"X-Token": SecretFile(str(token))}, start="earliest"))
    said = followed(route, lake, fail=lambda: hook.answers.append(401), mend=lambda: token.write_text("new\n"))
    where = f"waiting: delivery 'totals_to_webhook', file {token}"
    assert said == [f"{where}: expected a token that the receiver takes, got answer 401: ", ""]
    assert [token for _, _, token in hook.requests] == ["old", "old", "old", "new"]


def test_a_token_of_a_variable_that_expires_stops_the_delivery(
    lake: Lake, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "old")
    hook.answers.append(403)
    refused = "DELIVERY-010 .*variable HOOK_TOKEN: expected a token .*answer 403.*floodmark restart totals_to_webhook"
    with pytest.raises(ConnectorError, match=refused):
        deliver(
            bound(ToWebhook(hook.url, headers={"X-Token": Env("HOOK_TOKEN")}, start="earliest")),
            lake,
            until_caught_up=True,
        )


def test_a_password_of_a_database_that_expires_is_read_again_from_its_file(
    lake: Lake, servers_of: Callable[[str], Database], tmp_path: Path
) -> None:
    server = servers_of("postgresql")
    assert isinstance(server, Postgres)
    url, password = postgres.database(server.server, "guarded"), tmp_path / "password"
    password.write_text("old")
    server.server.psql("CREATE ROLE lander LOGIN PASSWORD 'old';")
    server.server.psql("ALTER DATABASE guarded OWNER TO lander;")
    access = server.folder / "pg_hba.conf"
    access.write_text(f"local all lander scram-sha-256\n{access.read_text()}")
    server.server.psql("SELECT pg_reload_conf();")
    guarded = url.replace("//postgres:@", "//lander@")

    def expire() -> None:
        server.server.psql("ALTER ROLE lander PASSWORD 'new';")
        server.server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'lander';")

    route = bound(ToSql(guarded, password=SecretFile(str(password))))
    said = followed(route, lake, fail=expire, mend=lambda: password.write_text("new"))
    assert "password authentication failed" in "".join(said)
    assert said[-1] == ""
    assert totals(url) == small_lake.totals(lake)


def test_a_password_of_brokers_that_is_wrong_is_read_again_from_its_file(
    lake: Lake, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_ANSWER_SECONDS", 8.0)
    password = tmp_path / "password"
    password.write_text("another")
    secure = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.folder / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "lander",
        "sasl.password": SecretFile(str(password)),
    }
    stop, said = threading.Event(), list[str]()

    def wait(text: str) -> None:
        said.append(text)
        password.write_text("word")

    sent = bound(ToKafka(broker.topic(1), f"127.0.0.1:{broker.secure}", properties=secure))
    deliver(sent, lake, stop=stop, on_wait=wait, on_delivery=lambda _: stop.set())
    assert "uthentication failed" in said[0]
    assert said[-1] == ""


def test_a_topic_that_was_made_anew_has_all_results_again(lake: Lake, broker: Broker) -> None:
    topic = broker.topic(1)
    sent = bound(ToKafka(topic, broker.servers))
    deliver(sent, lake, until_caught_up=True)
    broker.remove(topic)
    with pytest.raises(ConnectorError, match=f"DELIVERY-009 .*the topic '{topic}'"):
        deliver(sent, lake, until_caught_up=True)
    broker.make(topic, 1)
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    deliver(sent, lake, until_caught_up=True)
    last = {message.key(): json.loads(message.value()) for message in committed(broker, topic)}
    assert {value["key"]: value["total"] for value in last.values()} == small_lake.totals(lake)


class _Silent(confluent_kafka.Producer):
    """A producer of the library whose first call about a position never ends, as where brokers are killed meanwhile."""

    calls: ClassVar[list[int]] = []

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.calls.append(1)
        if len(self.calls) == 1:
            threading.Event().wait()
        super().send_offsets_to_transaction(*arguments)


@pytest.mark.feature("Z15")
def test_a_call_of_the_library_that_never_ends_is_left_alone(
    lake: Lake, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(kafka, "_SPARE_SECONDS", 0.1)
    names = {**vars(confluent_kafka), "Producer": _Silent}
    monkeypatch.setattr(kafka, "library", lambda: SimpleNamespace(**names))
    monkeypatch.setattr(_Silent, "calls", [])
    topic, stop, said = broker.topic(1), threading.Event(), list[str]()
    deliver(
        bound(ToKafka(topic, broker.servers)),
        lake,
        stop=stop,
        on_wait=said.append,
        on_delivery=lambda _: stop.set(),
    )
    assert "an answer of the brokers, got " in said[0]
    assert said[-1] == ""
    values = [json.loads(message.value()) for message in committed(broker, topic) if message.value()]
    assert sorted((value["key"], value["total"]) for value in values) == sorted(small_lake.totals(lake).items())


class _Told(confluent_kafka.Producer):
    """A producer of the library that records its properties."""

    properties: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, properties: dict[str, Any]) -> None:
        self.properties.append(properties)
        super().__init__(properties)


def test_properties_of_the_settings_are_those_of_the_library(
    lake: Lake, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {**vars(confluent_kafka), "Producer": _Told}
    monkeypatch.setattr(kafka, "library", lambda: SimpleNamespace(**names))
    monkeypatch.setattr(_Told, "properties", [])
    for properties in ({}, {"linger.ms": 7, "compression.type": "lz4"}):
        deliver(bound(ToKafka(broker.topic(1), broker.servers, properties=properties)), lake, until_caught_up=True)
    default, own = _Told.properties
    assert (default["linger.ms"], own["linger.ms"]) == (20, 7)
    assert {**own}.keys() - {**default}.keys() == {"compression.type"}
