"""Pieces of Python and YAML that pages show by the way: each runs as it stands, after the names that its page takes for granted, and does what the page says of it.

Pages whose programs have a test of their own (``blocks.toml``) are not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from console_pages import ran
from page_programs import module_of, pieces

from floodmark import Env, SecretFile
from floodmark.control.serving.server import PORT
from floodmark.testing import IN_MEMORY
from floodmark.testing.connectors import portions_change_nothing
from floodmark.testing.transcripts import main as transcripts

ROOT = Path(__file__).parents[2]
START = datetime(2025, 3, 1, 9, tzinfo=UTC)
NAMES = """
from datetime import UTC, datetime, timedelta

from pydantic import Field

from floodmark import *
from floodmark.testing import IN_MEMORY, Case
from operators.flights import Flight, hourly_departures
"""
"""What pages take for granted; each test adds what its page alone does."""
CHANGES = """
customer_changes = Source(
    "customer_changes",
    contract=CustomerChange,
    watermark=BoundedOutOfOrderness("1 hour"),
    connector=DeltaTable("/data/customers", read="events"),
)
"""
Program = Callable[..., Any]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The module that some code is, after :data:`NAMES`."""
    return lambda name, *code: module_of(tmp_path / f"{name}_piece.py", "\n".join([NAMES, *code]), monkeypatch)


def python(page: str) -> list[str]:
    return pieces(ROOT / "docs" / f"{page}.md")


def returned(piece: str, declaration: str) -> str:
    """A function whose body is a piece of a page, of which the last statement is what the function returns."""
    begins = [found.start() for found in re.finditer(r"^[\w(]", piece, re.MULTILINE)]
    return f"{declaration}\n" + indent(f"{piece[: begins[-1]]}return {piece[begins[-1] :]}", "    ")


def declared_before(piece: str, declaration: str) -> tuple[str, str, str]:
    """A piece whose operator is declared over something that the page leaves out."""
    contract, operator = piece.split("\n\n\n", 1)
    return contract, declaration, operator


def flight(minutes: int, **values: object) -> dict[str, object]:
    common = {"origin": "JFK", "dest": "BOS", "carrier": "B6", "flight": 1, "tailnum": "N1", "dep_delay": 5}
    return common | {"scheduled": START + timedelta(minutes=minutes), "distance": 10} | values


def results(operator: Any, **inputs: object) -> list[dict[str, Any]]:
    """The results of an operator, of which each way to run it in memory gives the same."""
    first, *others = (one(operator, inputs, delay="1 hour")[""] for one in IN_MEMORY)
    assert all(other == first for other in others)
    return first


def test_windows(program: Program) -> None:
    (session,) = python("windows")
    page = program("windows", returned(session, "@operator\ndef spells(flights: Stream[Flight]) -> Stream:"))
    rows = [flight(0), flight(90, flight=2, dep_delay=40), flight(400, flight=3)]
    assert [(one["delayed"], one["worst"], one["first"]) for one in results(page.spells, flights=rows)] == [
        (2, 40, 1),
        (1, 5, 3),
    ]


def test_concepts(program: Program) -> None:
    page = program("concepts", *python("concepts"))
    rows = [flight(0), flight(5, flight=2), flight(70, flight=3), flight(24 * 60, flight=4)]
    assert [one["most"] for one in results(page.busiest, flights=rows)] == [2, 1]
    assert [given.name for given in page.busiest_hour.inputs] == ["departures"]
    assert page.busiest_hour.output("").schema.types["most"] == "bigint"


def test_process(program: Program) -> None:
    stranded, customers, history, joined, converted = python("process")
    page = program(
        "process",
        "HOUR = 3_600_000\nclass Idle(Contract):\n    since: datetime",
        *stranded.rsplit("\n\n\n", 1)[:1],
        returned(stranded.rsplit("\n\n\n", 1)[1], "@operator\ndef idle(flights: Stream[Flight]) -> Stream:"),
        "class Customer(Contract, key='id'):\n    at: EventTime\n    id: int\n    city: str",
        customers,
        "class Order(Contract):\n    at: EventTime\n    customer: int",
        *declared_before(history, CHANGES),
        returned(joined, "@operator\ndef where_to(orders: Stream[Order], changes: Stream[CustomerChange]) -> Stream:"),
        converted,
    )
    left = [flight(0), flight(60), flight(16 * 60, tailnum="N2"), flight(17 * 60)]
    assert sorted(one["since"] for one in results(page.idle, flights=left)) == [row["scheduled"] for row in left[1:]]
    assert page.customers.connector.read == "changes"
    changes = [
        (0, "insert", "Rome"),
        (10, "update_preimage", "Rome"),
        (10, "update_postimage", "Oslo"),
        (30, "delete", "Oslo"),
    ]
    log = [
        {"at": START + timedelta(minutes=minutes), "change": change, "id": 1, "city": city}
        for minutes, change, city in changes
    ]
    orders = [{"at": START + timedelta(minutes=minutes), "customer": 1} for minutes in (5, 20, 40)]
    cities = [one["customer_city"] for one in results(page.where_to, orders=orders, changes=log)]
    assert cities == ["Rome", "Oslo", None]
    assert page.last.migrate(100.0) == 212


def test_expectations_and_dagster(program: Program) -> None:
    judged, drift = python("expectations")
    page = program("expectations", judged, "drifting = " + drift)
    assert [one.on_fail for one in page.hourly.expectations[""][:3]] == ["stop", "quarantine", "warn"]
    assert page.hourly.expectations[""][3].blocking
    assert [one.kind for one in page.drifting.expectations[""]] == ["column_drift", "table_row_count_drift"]
    whole, fresh = python("dagster")
    scaffold = "from pathlib import Path\nfrom floodmark.orchestration import build_definitions\nfrom resources.settings import environment, settings\n"
    defs = program(
        "dagster",
        scaffold,
        whole.replace('root=Path(__file__).parent.parent, others="definitions/others"', f"root=Path({str(ROOT)!r})"),
    )
    assert {"flights", "hourly_departures"} <= {key.to_user_string() for key in defs.defs.resolve_all_asset_keys()}
    ran(whole, fresh)
    first, second = fresh.splitlines()
    ages = program(
        "freshness",
        f"from assets.flights import flights\na = {first.replace('(flights,', '(flights.source,')}\nb = {second}",
    )
    assert (ages.a.freshness, ages.b.freshness) == (300_000, 7_200_000)


def test_savepoints(program: Program) -> None:
    (alerts,) = python("savepoints")
    shop = """
orders = Source("orders", contract=Flight, watermark=BoundedOutOfOrderness("1 hour"), connector=Files("inbox"))

@operator
def hourly_sales(orders: Stream[Flight]) -> Stream:
    return orders.key_by("origin").window(Tumbling("1 hour")).aggregate(orders=count())
"""
    page = program("savepoints", shop, alerts)
    assert [one.on for one in page.workspace.alerts] == ["error", "warning", "error"]
    assert page.workspace.alerts[2].deadline == "30 seconds"


def test_testing(program: Program, tmp_path: Path) -> None:
    by_hand, table, everywhere, drawn = python("testing")
    names = """
from zoneinfo import ZoneInfo
from hypothesis import given, settings, strategies as st
from floodmark.testing.strategies import streams

def at(text):
    return datetime.fromisoformat(f"2025-03-01T{text}+00:00")

def flight(text):
    return dict(scheduled=at(text), origin="JFK", dest="BOS", carrier="B6", flight=int(text[3:]), tailnum="N1", dep_delay=5, distance=10)

ROWS = [flight("09:05"), flight("09:50")]
EXPECTED = [{"origin": "JFK", "window_start": at("09:00"), "window_end": at("10:00"), "departures": 2, "mean_delay": 5.0}]

class Reading(Contract):
    at: EventTime
    key: str
    value: int

@operator
def sums(readings: Stream[Reading]) -> Stream:
    return readings.key_by("key").window(Tumbling("1 minute")).aggregate(sum=sum("value"))

@operator
def delays(flights: Stream[Delay]) -> Stream:
    return flights.window(Global()).aggregate(known=count("dep_delay"), all=count())
"""
    contract = "class Delay(Contract):\n    scheduled: EventTime\n    origin: str\n    dep_delay: int | None = None\n"
    drawn = drawn.replace("@given", "@settings(max_examples=3, database=None, deadline=None)\n@given")
    page = program("testing", contract, names, by_hand, everywhere, drawn, "case = Case(delays)", table)
    page.test_a_late_flight_revises_its_hour()
    page.case.end()
    page.case.expect([{"known": 1, "all": 2}])
    for run in IN_MEMORY:
        page.test_departures(run)
    page.test_bounded_is_unbounded()
    (transcript,) = pieces(ROOT / "docs" / "testing.md", "yaml")
    (tmp_path / "page.yaml").write_text(transcript)
    (command, _) = pieces(ROOT / "docs" / "testing.md", "bash")
    words = re.sub(r"FILE\.\.\.", str(tmp_path / "page.yaml"), re.sub(r" \[[^]]*\]", "", command)).split()
    assert words[:3] == ["python", "-m", "floodmark.testing.transcripts"]
    done = CliRunner().invoke(transcripts, [*words[3:], "--engine", "memory"])
    assert done.exit_code == 0, done.output
    assert "pass" in done.output
    ran(transcript, command)


def test_settings_of_buckets_and_clusters(program: Program) -> None:
    (store,) = python("buckets")
    on_yarn, secured = python("clusters")
    page = program("settings", "lake = " + store, secured, "settings = Settings(spark=spark)")
    assert page.lake.store.access_key == Env("LAKE_KEY")
    assert page.lake.store.secret_key == SecretFile("/run/secrets/lake_key")
    assert dict(page.settings.spark)["spark.authenticate.secret"] == Env("SPARK_SECRET")
    page = program("on_yarn", on_yarn, 'settings = Settings(master="yarn", spark=spark)')
    assert dict(page.settings.spark)["spark.executor.instances"] == "4"


def test_observing(program: Program) -> None:
    (counting,) = python("observing")
    text = """
class Reading(Contract):
    at: EventTime
    key: str
    value: float

class Rise(Contract):
    rise: float
"""
    operator = "@operator\ndef rises(readings: Stream[Reading]) -> Stream:\n    return readings.key_by('key').process(Rises(), schema=Rise)"
    page = program("observing", text, counting, operator)
    rows = [
        {"at": START + timedelta(minutes=minute), "key": "a", "value": value}
        for minute, value in enumerate([1.0, 5.0, 40.0, 41.0])
    ]
    assert [row["rise"] for row in results(page.rises, readings=rows)] == [35.0]
    (scraped,) = pieces(ROOT / "docs" / "observing.md", "yaml")
    scrape = yaml.safe_load(scraped)
    (job,) = scrape["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{PORT}"]}]
    assert scrape["rule_files"] == ["rules.yaml"]
    ran(scraped)


def test_a_rollout_is_declared(program: Program) -> None:
    (declared,) = python("rollouts")
    page = program("rollouts", "class operators:\n    hourly_sales = hourly_departures", declared)
    rollout = page.hourly_sales.rollout
    assert rollout.schedule == "0 3 * * sun"
    assert rollout.promote.approve
    assert rollout.promote.match == 0.999


EXECUTE = """

def execute(database, statement, *values):
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(statement, values)
"""
"""What the module of the page's connector has beside it."""


def test_connectors(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks, registry, changes, table, own, checked = python("connectors")
    declared = [program(f"connectors_{n}", code) for n, code in enumerate((clicks, changes, table))]
    assert [one.__dict__.get("clicks", one.__dict__.get("orders")).name for one in declared] == [
        "clicks",
        "orders",
        "orders",
    ]
    formats = program("connectors_3", registry)
    (tmp_path / "order.avsc").write_text(
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    )
    assert (formats.by_registry.format, formats.by_one_schema(tmp_path).format) == ("avro", "avro")
    (tmp_path / "order.desc").write_bytes(_order())
    assert formats.by_descriptors(tmp_path).format == "protobuf"
    module_of(tmp_path / "my_connectors.py", own + EXECUTE, monkeypatch)
    (tmp_path / "checked").mkdir()
    program("test_of_the_page", checked).test_orders(portions_change_nothing, tmp_path / "checked")


def _order() -> bytes:
    """What ``protoc`` writes of ``message Order { int64 id = 1; }`` in the package ``shop``."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    return FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.parametrize(("page", "file"), [("taxis", "workspace.py"), ("wikipedia", "workspace.py")])
def test_contracts_that_tutorials_quote_are_in_their_examples(page: str, file: str) -> None:
    code = " ".join(
        (ROOT / "examples" / page / file)
        .read_text("utf-8")
        .replace("LocalTime(NEW_YORK)", 'LocalTime("America/New_York")')
        .split()
    )
    lines = [
        line.strip() for piece in pieces(ROOT / "docs" / "tutorials" / f"{page}.md") for line in piece.splitlines()
    ]
    assert lines
    ran(*lines)
    assert [line for line in lines if line not in {"...", ""} and " ".join(line.split()) not in code] == []
