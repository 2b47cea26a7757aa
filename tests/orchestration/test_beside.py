"""A backfill of a chain by clicks while the streams of the chain write: killed in between, launched again, rows as of an undisturbed run."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forked
import psutil
import pytest
from browser import backfill, launch, picture, visit
from dagster_server import LOCATION, Server, serving, until
from deltalake import DeltaTable

from floodmark.control.state.store import Store
from floodmark.lake.folder.locks import BOUNDED
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import MARKER, STAMPS

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 240
FIRST = date(2025, 3, 1)
CHAIN = ("hourly_sales", "daily_sales")
_DAILY = '''

@operator(inputs={"hours": hourly_sales})
def daily_sales(hours: Stream) -> Stream:
    """Revenue per country and day."""
    return hours.key_by("country").window(Tumbling("1 day")).aggregate(hours=count(), cents=sum("cents"))
'''
_ASSET = """
daily_sales = operator_asset(operators.daily_sales, partitions=Daily("2025-03-01", end="{end}"))
"""


def day(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


def edited(file: Path, *changes: tuple[str, str], more: str) -> None:
    text = file.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    file.write_text(text + more)


@pytest.fixture
def shop(tmp_path: Path, count: int) -> Path:
    """What ``floodmark init`` makes, with a second operator that reads the first."""
    done = forked.run([sys.executable, "-m", "floodmark.cli.main", "init", "shop"], cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    shop = tmp_path / "shop"
    edited(
        shop / "operators" / "orders.py",
        (', allowed_lateness="1 hour", late="side_output"', ""),
        more=_DAILY,
    )
    edited(
        shop / "assets" / "orders.py",
        ('end="2025-03-02"', f'end="{day(count + 1)}"'),
        more=_ASSET.format(end=day(count + 1)),
    )
    return shop


@pytest.fixture
def server(shop: Path) -> Iterator[Server]:
    with serving(shop, shop / ".floodmark" / "dagster", supervise=True, FLOODMARK_ENGINE="embedded") as found:
        yield found


def put(shop: Path, named: str, hours: range = range(24)) -> None:
    """A file with orders of a day, which appears whole."""
    file = shop / "inbox" / "orders" / f"orders_{named}_{hours.start:02}.csv"
    lines = "".join(f"{named}T{n:02}:30:00Z,{n},{'DE' if n % 2 else 'NL'},1,{n * 100},\n" for n in hours)
    file.with_suffix(".part").write_text("ordered_at,order_id,country,items,cents,voucher\n" + lines)
    file.with_suffix(".part").replace(file)


def results(lake: Lake, table: str, count: int) -> Counter[Any]:
    """The rows of the complete days."""
    days = {day(number) for number in range(count)}
    rows = DeltaTable(lake.output(table)).to_pyarrow_table().to_pylist()
    names = [name for name in rows[0] if name not in STAMPS or name == "_event_time"]
    wanted = [row for row in rows if row["_kind"] != MARKER and f"{row['_event_time']:%Y-%m-%d}" in days]
    return Counter(tuple(str(row[name]) for name in sorted(names)) for row in wanted)


def green(server: Server, asset: str) -> int:
    query = "{ assetNodes { assetKey { path } partitionStats { numMaterialized } } }"
    nodes = {"/".join(node["assetKey"]["path"]): node for node in server.ask(query)["assetNodes"]}
    return int(nodes[asset]["partitionStats"]["numMaterialized"])


def kill_writer(lake: Lake, operator: str, killed: list[int]) -> None:
    """SIGKILL to the process of the first bounded run of an operator, once it holds its lock."""
    holder = Path(lake.internal("operators", operator, f"{BOUNDED}.holder"))

    def look() -> bool:
        with suppress(FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
            process = psutil.Process(int(holder.read_text().split()[0]))
            process.kill()
            killed.append(process.pid)
        return bool(killed)

    until(look, SECONDS, 0.02)


@pytest.mark.feature("Z2")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [3, pytest.param(90, marks=pytest.mark.soak)])
def test_a_chain_is_backfilled_by_clicks_beside_its_streams_and_resumed_after_a_kill(
    page: Page, server: Server, shop: Path, tmp_path: Path, count: int
) -> None:
    """Of ``count`` complete days; one more has begun."""
    lake, killed = Lake(str(shop / "lake")), list[int]()
    for shipped in (shop / "inbox" / "orders").iterdir():
        shipped.unlink()
    for number in range(count + 1):
        put(shop, day(number), range(12))
    assert server.ended(launch(page, server, "start")) == "SUCCESS"
    until(lambda: green(server, "daily_sales") == count, SECONDS)
    store = Store(f"sqlite:///{shop}/.floodmark/control/control.db")
    drivers = {one.operator: store.drivers(one.stream)[0].id for one in store.deployments()}

    lineage = f"{server.url}/locations/{LOCATION}/asset-groups/operators/lineage"
    killing = threading.Thread(target=kill_writer, args=(lake, "daily_sales", killed))
    killing.start()
    done = backfill(page, server, lineage, "daily_sales", day(0), day(count - 1), name="beside")
    killing.join()
    assert killed
    assert done["status"] != "COMPLETED_SUCCESS"
    put(shop, day(count), range(12, 18))  # the streams go on
    done = backfill(page, server, lineage, "daily_sales", day(0), day(count - 1))
    assert done["status"] == "COMPLETED_SUCCESS"
    visit(page, f"{server.url}/assets/hourly_sales?view=partitions&partition={day(count - 1)}", "preview")
    picture(page, "preview")
    assert {one.operator: store.drivers(one.stream)[0].id for one in store.deployments()} == drivers

    other = Lake(str(tmp_path / "other"))
    variables = dict(os.environ) | {"FLOODMARK_LAKE": other.root, "FLOODMARK_LOGS": lake.root}
    ran = forked.run([sys.executable, "-m", "floodmark.cli.main", "run", *CHAIN], cwd=shop, env=variables)
    assert ran.returncode == 0, ran.stderr
    for table in CHAIN:
        assert results(lake, table, count) == results(other, table, count)
        assert results(other, table, count)
