"""The verb watermark on a log landed without Spark."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from logs import land

from floodmark.cli.shell.invocation import Invocation
from floodmark.cli.shell.loading import open_workspace
from floodmark.core.errors import DefinitionError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.commits import Landing
from floodmark.spec.rows.source import Learned, Source
from floodmark.spec.values.schema import ROW

from .conftest import WORKSPACE_MODULES, Verb

HOUR = 3_600_000
NOON = 1_740_830_400_000
"""2025-03-01T12:00:00Z"""
ORDERS = [(NOON + n * HOUR, "DE") for n in range(20)]
BEHIND = [(NOON + 18 * HOUR + 1_800_000, "FR"), (NOON + 10 * HOUR, "FR")]


def write(shop: Path, strategy: str) -> Source:
    """Put a strategy into the workspace; the source as it is then."""
    file = shop / "assets" / "orders.py"
    text = file.read_text("utf-8")
    before = text[text.index("watermark=") : text.index(",  # an order further behind")]
    text = text.replace(before, f"watermark={strategy}").replace(
        "import BoundedOutOfOrderness,", "import Learned, BoundedOutOfOrderness,"
    )
    file.write_text(text, "utf-8")
    for name in [name for name in sys.modules if name.split(".", maxsplit=1)[0] in WORKSPACE_MODULES]:
        del sys.modules[name]
    return open_workspace(Invocation(), shop).workspace.source("orders")


def orders(rows: list[tuple[int, str]]) -> str:
    """A file of orders."""
    lines = [f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ},1,{country},1,100," for at, country in rows]
    return "\n".join(["ordered_at,order_id,country,items,cents,voucher", *lines, ""])


def put(shop: Path, source: Source, rows: list[tuple[int, str]], last: Landing | None = None) -> Landing:
    return land(source, Lake(str(shop / "lake")), rows, last)


@pytest.mark.feature("T16")
def test_a_fixed_bound_is_weighed_against_quantiles(verb: Verb, shop: Path) -> None:
    put(shop, open_workspace(Invocation(), shop).workspace.source("orders"), ORDERS + BEHIND)
    result = verb("watermark", "orders")
    assert result.exit_code == 0
    assert result.stdout == (
        f"lake {shop / 'lake'} (dev)\n"
        "orders: bound in force 30 minutes; 22 rows weighed\n"
        'it does not learn; to let it, and to be free to change its bound: watermark=Learned(0.999, bound="30 minutes")\n'
        "  bound                  results come              rows late  share late\n"
        "  0 s                    30 minutes sooner                 2  9.09%       50%, 75%, 90%\n"
        "  30 minutes             as now                            1  4.55%       in force\n"
        "  30 minutes 36 seconds  36 seconds later                  1  4.55%       95%\n"
        "  9 hours                8 hours 30 minutes later          0  0%          99%, 99.5%, 99.9%, 99.99%\n"
    )


@pytest.mark.feature("T13")
def test_a_learned_bound_is_proposed_and_stays_as_declared_until_it_is_written(verb: Verb, shop: Path) -> None:
    source = write(shop, 'Learned(0.95, bound="30 minutes")')
    last = put(shop, source, ORDERS + BEHIND)
    said = verb("watermark", "orders").stdout
    assert "orders: bound in force 30 minutes; 22 rows weighed\n" in said
    assert "learned from 22 rows: the furthest came 9 hours behind\n" in said
    line = 'watermark=Learned(0.95, bound="30 minutes 36 seconds")'
    assert f"proposed for 95% on time: 30 minutes 36 seconds; to accept it, write: {line}\n" in said
    accepted = write(shop, line.removeprefix("watermark="))
    assert (
        "the source says 30 minutes 36 seconds: in force from its next landing on" in verb("watermark", "orders").stdout
    )
    put(shop, accepted, [(NOON + 21 * HOUR, "DE"), (NOON + 22 * HOUR, "DE")], last)
    result = verb("watermark", "orders", "--json")
    document = json.loads(result.stdout)
    assert document["learned"]["decisions"] == [
        {"sequence": 0, "bound_ms": 1_800_000},
        {"sequence": 23, "bound_ms": 1_836_000},
    ]
    assert (document["in_force_ms"], document["rows"], document["left_out"]) == (1_836_000, 23, 1)


@pytest.mark.feature("T13")
def test_a_bound_is_adopted_by_the_next_landing_where_the_source_says_so(verb: Verb, shop: Path) -> None:
    strategy = 'Learned(0.95, bound="30 minutes", adopt_after={})'
    for inbox in (shop / "inbox" / "orders").iterdir():
        inbox.unlink()
    (shop / "inbox" / "orders" / "1.csv").write_text(orders(ORDERS + BEHIND), "utf-8")
    write(shop, strategy.format(23))
    landed = verb("land", "orders")
    assert landed.exit_code == 0, landed.stderr
    text = verb("watermark", "orders").stdout
    assert "proposed for 95% on time: 30 minutes 36 seconds; adopted once 23 rows are measured\n" in text
    write(shop, strategy.format(22))
    text = verb("watermark", "orders").stdout
    assert "the source adopts 30 minutes 36 seconds: in force from its next landing on\n" in text
    assert "proposed for 95% on time: 30 minutes 36 seconds; adopted\n" in text
    newest = NOON + 22 * HOUR
    more = [(newest, "DE"), (newest - 1_830_000, "DE"), (newest - 1_837_000, "DE")]
    (shop / "inbox" / "orders" / "2.csv").write_text(orders(more), "utf-8")
    assert verb("land", "orders").exit_code == 0
    rows = DeltaTable(Lake(str(shop / "lake")).log("orders")).to_pyarrow_table().to_pylist()
    rows = sorted((row for row in rows if row["_kind"] == ROW), key=lambda row: row["_sequence"])
    late = [row["_event_time"].timestamp() * 1000 <= row["_watermark"] for row in rows[-3:]]
    assert late == [False, False, True], "30 minutes 30 seconds is on time by the adopted bound"
    document = json.loads(verb("watermark", "orders", "--json").stdout)
    assert document["learned"]["decisions"] == [
        {"sequence": 0, "bound_ms": 1_800_000},
        {"sequence": 23, "bound_ms": 1_836_000},
    ]
    assert verb("land", "orders").exit_code == 0
    assert json.loads(verb("watermark", "orders", "--json").stdout)["rows"] == document["rows"], "no row was left"


@pytest.mark.parametrize("rows", [0, -1, True, "many"])
def test_an_adoption_after_no_number_of_rows_is_refused(rows: object) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-018 Learned, adopt_after"):
        Learned(0.999, bound="1 hour", adopt_after=rows)  # type: ignore[arg-type]  # what is refused


@pytest.mark.feature("T16")
def test_rows_dropped_by_windows_are_counted_for_each_bound(verb: Verb, shop: Path) -> None:
    put(shop, open_workspace(Invocation(), shop).workspace.source("orders"), ORDERS + BEHIND)
    given = ("watermark", "orders", "--bound", "1 minute", "--bound", "8h", "--window", "1h")
    said = verb(*given).stdout
    assert "  bound       results come              rows late  share late  rows dropped  from windows\n" in said
    assert "  1 minute    29 minutes sooner                 2  9.09%                  1             1\n" in said
    assert "  8 hours     7 hours 30 minutes later          1  4.55%                  1             1\n" in said
    assert said.endswith(
        "windows that lose most with 30 minutes, the bound in force:\n"
        "  window                rows dropped\n"
        "  2025-03-01T22:00:00Z             1\n"
    )
    assert (
        "no window loses a row with 30 minutes, the bound in force" in verb(*given, "--allowed-lateness", "9h").stdout
    )
    document = json.loads(verb(*given, "--json").stdout)
    assert document["windows"] == [{"start": "2025-03-01T22:00:00Z", "dropped": [1, 1, 1]}]
    assert [one["against_in_force_ms"] for one in document["bounds"]] == [-1_740_000, 0, 27_000_000]


@pytest.mark.feature("T16")
def test_a_picture_is_written_where_it_is_asked_for(verb: Verb, shop: Path) -> None:
    put(shop, open_workspace(Invocation(), shop).workspace.source("orders"), ORDERS + BEHIND)
    assert "picture: bounds.svg" in verb("watermark", "orders", "--svg", "bounds.svg").stdout
    assert (shop / "bounds.svg").read_text("utf-8").startswith("<svg ")


def test_nothing_landed_says_how_to_land(verb: Verb, shop: Path) -> None:
    result = verb("watermark", "orders")
    assert result.exit_code == 1
    assert "EXECUTION-002 source 'orders'" in result.stderr
    assert "Land it first: floodmark land orders" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--bound", "-1 hour", "DEFINITION-004 --bound\n  expected: zero or more\n  got:      -1 hour"),
        ("--window", "0 s", "DEFINITION-004 --window\n  expected: more than zero\n  got:      0 s"),
        ("--bound", "soon", "DEFINITION-001 --bound"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused(verb: Verb, shop: Path, option: str, value: str, message: str) -> None:
    result = verb("watermark", "orders", option, value)
    assert (result.exit_code, message in result.stderr) == (1, True)
