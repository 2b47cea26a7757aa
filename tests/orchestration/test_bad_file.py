"""A stranger's day: a file with bad rows is dropped in, what breaks the contract is set aside, a check fails, its readers wait, and a person lets them go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forked
import pytest
from browser import BLANK, launch, picture, visit
from dagster_server import Server, serving, until
from deltalake import DeltaTable

from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates
from floodmark.spec.values.schema import ROW

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 300
DAYS = ("2025-03-01", "2025-03-02", "2025-03-03", "2025-03-04", "2025-03-05")
WINDFALL = 100_000
"""Cents that the check lets an hour have at most."""
OPERATORS = '''

@operator(inputs={"hours": hourly_sales})
def daily_sales(hours: Stream) -> Stream:
    """Revenue per country and day."""
    return hours.key_by("country").window(Tumbling("1 day")).aggregate(hours=count(), cents=sum("cents"))
'''
ASSETS = f"""
daily_sales = operator_asset(operators.daily_sales, partitions=Daily("2025-03-01", end="{DAYS[-1]}"))
"""
CHECK = f"""[
        Expectation("column_values_to_be_between", column="cents", max_value={WINDFALL}, name="no_windfall", blocking=True, strict=True)
    ]"""


def edited(file: Path, *changes: tuple[str, str], more: str) -> None:
    text = file.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    file.write_text(text + more)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Path, Server]]:
    """What ``floodmark init`` makes, with a strict check and an operator that reads what is checked."""
    done = forked.run([sys.executable, "-m", "floodmark.cli.main", "init", "shop"], cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "shop"
    edited(folder / "operators" / "orders.py", (', allowed_lateness="1 hour", late="side_output"', ""), more=OPERATORS)
    edited(
        folder / "assets" / "orders.py",
        ('end="2025-03-02"', f'end="{DAYS[-1]}"'),
        ('[Expectation("column_values_to_be_between", column="orders", min_value=1)]', CHECK),
        more=ASSETS,
    )
    with serving(folder, folder / ".floodmark" / "dagster", supervise=True, FLOODMARK_ENGINE="embedded") as server:
        yield folder, server


def put(folder: Path, day: str, *, cents: int = 100, countries: tuple[str, ...] = ("DE", "NL")) -> None:
    """A file with an order per hour, which appears whole."""
    lines = "".join(
        f"{day}T{hour:02}:30:00Z,{hour},{countries[hour % len(countries)]},1,{cents},\n" for hour in range(12)
    )
    file = folder / "inbox" / "orders" / f"orders_{day}_00.csv"
    file.with_suffix(".part").write_text("ordered_at,order_id,country,items,cents,voucher\n" + lines)
    file.with_suffix(".part").replace(file)


def days_of(lake: Lake, table: str) -> set[str]:
    path = lake.output(table)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []
    return {f"{one['window_start']:%Y-%m-%d}" for one in rows if one["_kind"] == ROW}


def state(server: Server, asset: str) -> str:
    """Of the stream of an asset, as its check says."""
    query = """query ($k: AssetKeyInput!) { assetCheckExecutions(assetKey: $k, checkName: "stream", limit: 1) {
        evaluation { metadataEntries { label ... on TextMetadataEntry { text } } } } }"""
    executions: list[Any] = server.ask(query, k={"path": [asset]})["assetCheckExecutions"]
    entries = (entry for one in executions if one["evaluation"] for entry in one["evaluation"]["metadataEntries"])
    return next((entry["text"] for entry in entries if entry["label"] == "state"), "")


@pytest.mark.soak
@pytest.mark.browser
@pytest.mark.feature("Z8")
@pytest.mark.timeout(1500)
def test_bad_rows_are_set_aside_and_a_bad_day_reaches_no_reader_until_a_person_releases_it(
    page: Page, shop: tuple[Path, Server]
) -> None:
    folder, server = shop
    lake = Lake(str(folder / "lake"))
    run = launch(page, server, "start")
    assert server.ended(run) == "SUCCESS"
    put(folder, DAYS[1])
    until(lambda: days_of(lake, "daily_sales") == {DAYS[0]}, SECONDS)
    put(folder, DAYS[2], cents=WINDFALL + 1, countries=("DE", "Nowhere"))
    put(folder, DAYS[3])
    closed = until(lambda: gates.closed(lake.output("hourly_sales")), SECONDS)
    assert [(one.partition, one.check) for one in closed] == [(DAYS[2], "no_windfall")]
    until(lambda: state(server, "daily_sales") == "gated", SECONDS)
    assert days_of(lake, "daily_sales") == set(DAYS[:2]), "the bad day was not read"
    aside = DeltaTable(lake.quarantine("orders")).to_pyarrow_table().to_pylist()
    assert len([one for one in aside if (one["reason"] or "").startswith("country: ")]) == 6
    visit(page, f"{server.url}/assets/daily_sales?view=checks&checkDetail=stream", "gated", "no_windfall")
    picture(page, "gated-stream")
    visit(page, f"{server.url}/assets/hourly_sales?view=checks&checkDetail=no_windfall", "Failed")
    page.goto(BLANK)
    config = f"ops:\n  release_gate_of:\n    config:\n      partition: {DAYS[2]}\n      reason: it was a sale\n"
    run = launch(page, server, "release_gate", partition="hourly_sales", config=config)
    assert server.ended(run) == "SUCCESS"
    until(lambda: DAYS[2] in days_of(lake, "daily_sales"), SECONDS)
    until(lambda: state(server, "daily_sales") in {"running", "gated"}, SECONDS)
