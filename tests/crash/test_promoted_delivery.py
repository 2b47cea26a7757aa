"""A delivery into PostgreSQL that follows a stream on real drivers, while a rollout promotes another version of it and takes that back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import postgres
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable
from rolled_shop import MEAN, OLD, OPERATOR, Shop, running, until

DELIVERY = f"{OPERATOR}_to_sql"
DECLARED = """rollout=Rollout(shadow="0 s", watch="1 day", promote=PromoteWhen(approve=True, every="1 s")),
    deliver=[ToSql(Env("SINK"), table="sales")],"""
SALES = ("country", "window_start", "orders", "cents")


def current(shop: Shop) -> list[tuple[object, ...]]:
    """The last values of the results."""
    table = DeltaTable(f"{shop.lake}/outputs/{OPERATOR}__current").to_pyarrow_table(columns=list(SALES))
    return sorted(tuple(row.values()) for row in table.to_pylist())


def delivered(url: str) -> list[tuple[object, ...]]:
    """What the database holds; nothing before the delivery has made the table."""
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table("sales"):
                return []
            rows = connection.execute(sa.text(f"SELECT {', '.join(SALES)} FROM sales")).fetchall()
    finally:
        engine.dispose()
    return sorted(tuple(row) for row in rows)


def follows(shop: Shop, url: str, hours: int) -> None:
    """The table comes to hold the last values, of so many hours or more."""
    until(lambda: len(current(shop)) >= hours, lambda: current(shop))
    until(lambda: delivered(url) == current(shop), lambda: (delivered(url), current(shop)))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_table_holds_the_last_values_while_a_rollout_promotes_a_version_and_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.data_folder() as folder, postgres.serving(folder) as server:
        url = postgres.database(server, "sink")
        monkeypatch.setenv("SINK", url)
        with running(tmp_path, DECLARED, names="Env, ToSql, ") as shop:
            shop.said("start", DELIVERY)
            follows(shop, url, 4)
            old = shop.running
            shop.change("operators/orders.py", OLD, MEAN)
            shop.said("rollout", "start", OPERATOR)
            shop.reaches("judging")
            shop.order(range(12, 15))
            shop.reaches("awaiting approval")
            shop.said("rollout", "approve", OPERATOR, "--version", shop.record.version)
            shop.reaches("watching")
            assert shop.running != old
            driver = shop.driver(DELIVERY)
            assert driver.pid is not None
            os.killpg(driver.pid, signal.SIGKILL)
            shop.order(range(15, 18))
            follows(shop, url, 10)
            shop.said("rollout", "abort", OPERATOR)
            shop.reaches("taken back")
            assert shop.running == old
            shop.order(range(18, 21))
            follows(shop, url, 14)
