"""A workspace comes alive by two clicks: sources land, operators run, and asset partitions turn green as the watermark passes; what dies is red meanwhile.

A chain of it is backfilled by clicks while its streams write: killed in between, launched again, rows as of an undisturbed run.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forked
import pytest
from browser import BLANK, backfill, launch, picture, visit
from dagster_server import LOCATION, Server, serving, until
from deltalake import DeltaTable

from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store
from floodmark.lake.folder.locks import BOUNDED
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import MARKER, STAMPS

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 240
"""For one step on a busy machine."""
FIRST = date(2025, 3, 1)
"""Of the orders that ``floodmark init`` puts into the inbox."""
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

_AMBUSH = """
import os
import signal
from pathlib import Path

from floodmark.core import crash


def _ambushed(name: str) -> None:
    ambush, holder = Path({ambush!r}), Path({holder!r})
    if name == "bounded.before_main" and ambush.exists() and holder.exists() and holder.read_text().split()[0] == f"{{os.getpid()}}":
        ambush.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


crash.point = _ambushed
"""
"""A process that holds the lock of ``holder`` and is about to commit what it has computed kills itself, once, where the file ``ambush`` is there."""


def day(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


def edited(file: Path, *changes: tuple[str, str], more: str) -> None:
    text = file.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    file.write_text(text + more)


@dataclass
class Shop:
    """What ``floodmark init`` makes, with a second operator that reads the first, and its Dagster with a supervisor."""

    folder: Path
    server: Server

    @property
    def lake(self) -> Lake:
        return Lake(str(self.folder / "lake"))

    @property
    def store(self) -> Store:
        return Store(f"sqlite:///{self.folder}/.floodmark/control/control.db")

    @property
    def ambush(self) -> Path:
        """A file that costs the next bounded run of ``daily_sales`` its process."""
        return self.folder / "ambush"

    def next_day(self) -> int:
        """The number of the first day of which no orders have come."""
        days = (file.name.removeprefix("orders_")[:10] for file in (self.folder / "inbox" / "orders").iterdir())
        return (max(map(date.fromisoformat, days)) - FIRST).days + 1

    def put(self, number: int, hours: range = range(12)) -> None:
        """A file with orders of a day, which appears whole."""
        file = self.folder / "inbox" / "orders" / f"orders_{day(number)}_{hours.start:02}.csv"
        lines = "".join(f"{day(number)}T{n:02}:30:00Z,{n},{'DE' if n % 2 else 'NL'},1,{n * 100},\n" for n in hours)
        file.with_suffix(".part").write_text("ordered_at,order_id,country,items,cents,voucher\n" + lines)
        file.with_suffix(".part").replace(file)

    def driver(self, name: str) -> Driver:
        """The newest of a stream."""
        store = self.store
        return next(store.drivers(one.stream)[0] for one in store.deployments() if one.operator == name)

    def read(self, name: str) -> bool:
        """Whether a driver of a stream has ended a micro-batch. The newest may have nothing to do: a stream joins the process of the others again."""
        store = self.store
        streams = [one.stream for one in store.deployments() if one.operator == name]
        return any(driver.batch is not None for stream in streams for driver in store.drivers(stream))

    def crashed(self) -> dict[str, int]:
        """Operator or source -> how many of its drivers have died. One that is stopped, to join the process of the others again, is none of them."""
        store = self.store
        return {
            one.operator: sum(driver.state == "crashed" for driver in store.drivers(one.stream))
            for one in store.deployments()
        }

    def green(self, asset: str) -> int:
        """How many partitions of an asset are materialized; for one that is not divided, whether it is."""
        query = "{ assetNodes { assetKey { path } partitionStats { numMaterialized } assetMaterializations(limit: 1) { runId } } }"
        nodes = {"/".join(node["assetKey"]["path"]): node for node in self.server.ask(query)["assetNodes"]}
        divided = nodes[asset]["partitionStats"]
        return int(divided["numMaterialized"]) if divided else len(nodes[asset]["assetMaterializations"])

    def judged(self, name: str) -> list[tuple[bool, str]]:
        """The evaluations of the check of a stream, newest first: whether it is passed, and its state with the reason."""
        query = """query ($k: AssetKeyInput!) { assetCheckExecutions(assetKey: $k, checkName: "stream", limit: 20) {
            evaluation { success metadataEntries { label ... on TextMetadataEntry { text } } } } }"""
        found = []
        for execution in self.server.ask(query, k={"path": [name]})["assetCheckExecutions"]:
            if evaluation := execution["evaluation"]:
                texts = {entry["label"]: entry.get("text", "") for entry in evaluation["metadataEntries"]}
                found.append((evaluation["success"], f"{texts['state']}: {texts['reason']}"))
        return found

    def started(self, page: Page) -> None:
        """Everything runs, by one launch, and the source has landed something."""
        if not self.store.deployments():
            run = launch(page, self.server, "start", name="start")
            assert self.server.ended(run) == "SUCCESS", "its launchpad needs no word"
        until(lambda: self.read("orders"), SECONDS)


@contextmanager
def opened(folder: Path, days: int) -> Iterator[Shop]:
    """A shop whose assets have partitions of so many days."""
    done = forked.run([sys.executable, "-m", "floodmark.cli.main", "init", "shop"], cwd=folder, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    folder /= "shop"
    holder = Path(Lake(str(folder / "lake")).internal("operators", "daily_sales", f"{BOUNDED}.holder"))
    edited(
        folder / "operators" / "orders.py",
        (', allowed_lateness="1 hour", late="side_output"', ""),
        more=_DAILY,
    )
    edited(
        folder / "assets" / "orders.py",
        ('end="2025-03-02"', f'end="{day(days)}"'),
        more=_ASSET.format(end=day(days)) + _AMBUSH.format(ambush=str(folder / "ambush"), holder=str(holder)),
    )
    state = folder / ".floodmark" / "dagster"
    with serving(folder, state, supervise=True, forks=True, FLOODMARK_ENGINE="embedded") as server:
        yield Shop(folder, server)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop of the tests, each of which goes on with days that no other has put orders of."""
    with opened(tmp_path_factory.mktemp("live"), 12) as found:
        yield found


@pytest.mark.feature("Z7")
@pytest.mark.timeout(1200)
def test_one_launch_starts_everything_and_partitions_turn_green_through_a_kill(page: Page, shop: Shop) -> None:
    shop.started(page)
    server, store = shop.server, shop.store
    assert {one.operator: (one.kind, one.desired) for one in store.deployments()} == {
        "orders": ("source", "running"),
        "hourly_sales": ("operator", "running"),
        "daily_sales": ("operator", "running"),
        "voucher_use": ("operator", "running"),
    }
    first, number = shop.driver("orders"), shop.next_day()
    until(lambda: shop.judged("orders")[:1] == [(True, "running: none")], SECONDS)
    _refused_by_hand(server)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    dead = "crashed: killed by SIGKILL"  # a busy machine may tell first that nothing is heard of it
    until(lambda: any(state.startswith(dead) for passed, state in shop.judged("orders") if not passed), SECONDS)
    with server.still():  # or it may be green again before a busy machine has shown it
        visit(page, f"{server.url}/assets/orders?view=checks&checkDetail=stream", "killed by SIGKILL", "end of its log")
        picture(page, "dead-stream")
    page.goto(BLANK)
    shop.put(number)
    until(lambda: shop.driver("orders").id != first.id and shop.driver("orders").batch is not None, SECONDS)
    until(lambda: shop.green("hourly_sales") == number and shop.green("orders"), SECONDS)
    shop.put(number + 1)
    until(lambda: shop.green("hourly_sales") == number + 1, SECONDS)
    visit(page, f"{server.url}/assets/hourly_sales?view=partitions", day(number))
    picture(page, "live")
    until(lambda: shop.judged("orders")[0] == (True, "running: none"), SECONDS)
    visit(page, f"{server.url}/assets/orders?view=checks&checkDetail=stream", "running")
    picture(page, "live-stream")


def _refused_by_hand(server: Server) -> None:
    """Nobody lands by hand what a stream lands. This is before any kill: a stream that was killed moves to another process once more, and lets go meanwhile."""
    by_hand = server.launch("orders", tags={})
    assert server.ended(by_hand) == "FAILURE"
    query = "query ($r: ID!) { logsForRun(runId: $r) { ... on EventConnection { events { ... on ExecutionStepFailureEvent { error { message } } } } } }"
    messages = str(server.ask(query, r=by_hand))
    assert "LIFECYCLE-003" in messages
    assert "launch the job stop with streams: [orders] first" in messages


@pytest.mark.feature("B3", "N6", "Z2")
@pytest.mark.timeout(1200)
def test_a_chain_is_backfilled_by_clicks_beside_its_streams_and_resumed_after_a_kill(
    page: Page, shop: Shop, tmp_path: Path
) -> None:
    backfilled_beside(page, shop, tmp_path / "other", 3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_ninety_days_of_a_chain_are_backfilled_beside_its_streams(page: Page, tmp_path: Path) -> None:
    with opened(tmp_path, 92) as shop:
        backfilled_beside(page, shop, tmp_path / "other", 90)


def backfilled_beside(page: Page, shop: Shop, folder: Path, count: int) -> None:
    """``count`` complete days, and one that has begun, are backfilled."""
    server, lake = shop.server, shop.lake
    shop.started(page)
    start = shop.next_day()
    last = start + count - 1
    for number in range(start, last + 2):
        shop.put(number)
    until(lambda: shop.green("daily_sales") == last + 1, SECONDS)
    crashed = shop.crashed()

    lineage = f"{server.url}/locations/{LOCATION}/asset-groups/operators/lineage"
    shop.ambush.touch()
    done = backfill(page, server, lineage, "daily_sales", day(start), day(last), name="beside")
    assert not shop.ambush.exists(), "a run was killed"
    assert done["status"] != "COMPLETED_SUCCESS"
    shop.put(last + 1, range(12, 18))  # the streams go on
    done = backfill(page, server, lineage, "daily_sales", day(start), day(last))
    assert done["status"] == "COMPLETED_SUCCESS"
    visit(page, f"{server.url}/assets/hourly_sales?view=partitions&partition={day(last)}", "preview")
    picture(page, "preview")
    assert shop.crashed() == crashed, "no stream has died of it"

    other, days = Lake(str(folder)), {day(number) for number in range(start, last + 1)}
    variables = dict(os.environ) | {"FLOODMARK_LAKE": other.root, "FLOODMARK_LOGS": lake.root}
    command = [sys.executable, "-m", "floodmark.cli.main", "run", *CHAIN]
    ran = forked.run(command, cwd=shop.folder, env=variables)
    assert ran.returncode == 0, ran.stderr
    for table in CHAIN:
        assert results(lake, table, days) == results(other, table, days)
        assert results(other, table, days)


def results(lake: Lake, table: str, days: set[str]) -> Counter[Any]:
    """The rows of some days."""
    rows = DeltaTable(lake.output(table)).to_pyarrow_table().to_pylist()
    names = [name for name in rows[0] if name not in STAMPS or name == "_event_time"]
    wanted = [row for row in rows if row["_kind"] != MARKER and f"{row['_event_time']:%Y-%m-%d}" in days]
    return Counter(tuple(str(row[name]) for name in sorted(names)) for row in wanted)
