"""A supervised stream on Spark: a version that crashes at a row is taken back, and the rows are those of the version before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import forked
import pytest
from borrowed import lend, take_back
from dagster_server import QUICK, until
from deltalake import DeltaTable
from processes import end_drivers
from pyspark.sql import SparkSession

from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store
from floodmark.spec.values.schema import ROW

OPERATOR = "hourly_sales"
BAD = ("orders.key_by", 'orders.filter("CAST(country AS DOUBLE) > 0").key_by')
SECONDS = 300
"""For one step of a stream on a busy machine."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "floodmark.cli.main", *arguments]


def said(folder: Path, *arguments: str, env: Mapping[str, str] = os.environ) -> str:
    """What a verb says that succeeds."""
    done = forked.run(command(*arguments), cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Shop:
    """A workspace whose stream runs on the Java of the test."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self.store = Store(f"sqlite:///{folder}/.floodmark/control/control.db")

    @property
    def drivers(self) -> list[Driver]:
        """Of the stream, the newest first."""
        return self.store.drivers(self.store.deployments()[0].stream)

    def running(self, version: str) -> bool:
        """Whether the newest driver runs a version."""
        return (self.drivers[0].state, self.drivers[0].version) == ("running", version)

    def edit(self, old: str, new: str) -> None:
        file = self.folder / "operators" / "orders.py"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    def more(self) -> None:
        """Orders of three more hours land, and the end of them."""
        lines = [
            f"2025-03-01T{hour}:{n:02}:00Z,{hour}{n:02},{'DE' if n % 2 else 'FR'},1,{n * 100},"
            for hour in (12, 13, 14)
            for n in range(20)
        ]
        file = self.folder / "inbox" / "orders" / "orders_2025-03-01_15.csv"
        file.write_text("\n".join(["ordered_at,order_id,country,items,cents,voucher", *lines]) + "\n")
        said(self.folder, "land", "orders", "--end")

    def sales(self, lake: Path) -> set[tuple[object, ...]]:
        """What people see."""
        path = str(lake / "outputs" / f"{OPERATOR}__current")
        rows = DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []
        return {
            tuple(row[name] for name in ("country", "window_start", "orders", "cents"))
            for row in rows
            if row["_kind"] == ROW
        }


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Iterator[Shop]:
    """Its orders have landed, and a supervisor is at work; nothing of them is left afterwards."""
    said(tmp_path, "init", "shop")
    folder = tmp_path / "shop"
    said(folder, "land", "orders")
    path = os.pathsep.join(filter(None, [str(QUICK), os.environ.get("PYTHONPATH", "")]))
    made = Shop(folder, {**os.environ, **lend(spark), "FLOODMARK_ENGINE": "spark", "PYTHONPATH": path})
    supervisor = subprocess.Popen(
        command("supervise"), cwd=folder, env=made.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield made
    finally:
        supervisor.kill()
        supervisor.wait()
        end_drivers(made.drivers)
        take_back(spark)


@pytest.mark.feature("V4", "F8", "O5")
@pytest.mark.timeout(900)
def test_a_version_that_crashes_is_taken_back_and_the_version_before_reads_what_has_landed(
    shop: Shop, tmp_path: Path
) -> None:
    said(shop.folder, "start", OPERATOR, env=shop.environment)
    until(lambda: shop.drivers[:1] and shop.drivers[0].batch is not None, SECONDS)
    first = shop.drivers[0].version
    shop.edit(*BAD)
    pipe = subprocess.PIPE
    applies = command("apply", OPERATOR, "--forward-only", "--patience", str(SECONDS), "--soak", str(SECONDS))
    with forked.begin(applies, cwd=shop.folder, env=shop.environment, stdout=pipe, stderr=pipe, text=True) as applying:
        until(lambda: shop.drivers[0].version != first and shop.drivers[0].state == "running", SECONDS)
        shop.edit(*reversed(BAD))
        shop.more()
        said_of_it = applying.communicate(timeout=SECONDS)
    assert applying.returncode == 1, said_of_it
    (action,) = shop.store.actions(limit=1)
    assert action.step == "rolled back", said_of_it
    assert "it crashed: EXECUTION-050" in (action.reason or "")
    assert "CAST(country AS DOUBLE)" in (action.reason or "")
    until(lambda: shop.running(first), SECONDS)

    bounded = tmp_path / "bounded"
    said(
        *(shop.folder, "run", OPERATOR, "--lake", str(bounded)),
        env=os.environ | {"FLOODMARK_LOGS": str(shop.folder / "lake")},
    )
    wanted = shop.sales(bounded)
    assert len(wanted) > 5
    until(lambda: shop.sales(shop.folder / "lake") == wanted, SECONDS)
    said(shop.folder, "stop", OPERATOR, env=shop.environment)
    assert shop.drivers[0].reason == "stopped at a micro-batch boundary"
