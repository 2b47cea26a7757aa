"""plan --against --replay: changed code goes on from production's savepoint on the embedded engine, and production is only read."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import forked
import pytest
from deltalake import DeltaTable
from processes import paths

from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints

OPERATOR = "hourly_sales"
OLD = 'cents=sum("cents"))'
MEAN = 'cents=sum("cents"))\n        .with_columns(mean="cents / orders")'
WRONG = OLD + "\n        .with_columns(cents=\"CASE WHEN country = 'DE' THEN cents + 1 ELSE cents END\")"
HALVES = ('Tumbling("1 hour")', 'Tumbling("30 minutes")')


def program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "floodmark.cli.main", *arguments]
    environment = {**os.environ, "PYTHONPATH": paths()}
    return forked.run(command, cwd=folder, env=environment)


def said(folder: Path, *arguments: str) -> str:
    done = program(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def replayed(folder: Path, *arguments: str) -> tuple[int, str]:
    done = program(folder, "plan", "--against", "dev", "--replay", "1 hour", *arguments)
    assert done.returncode in {0, 1}, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def change(folder: Path, old: str, new: str) -> None:
    file = folder / "operators" / "orders.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


LATENESS = 3_600_000
"""Of the shop, ms."""


def expected(folder: Path, since: int) -> dict[str, int]:
    """Rows of production that closed since and that no late row can revise any more, by country: counted by DuckDB."""
    table = DeltaTable(str(folder / "lake" / "outputs" / OPERATOR)).to_pyarrow_table()
    query = f"SELECT country, count(*) FROM rows WHERE _kind = 0 AND epoch_ms(_event_time) >= {since}"
    query += f" AND epoch_ms(_event_time) < (SELECT max(_watermark) - {LATENESS} FROM rows) GROUP BY ALL"
    with duckdb.connect() as connection:
        connection.register("rows", table)
        return dict(connection.sql(query).fetchall())


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Production has read three hours, made a savepoint, and read six more."""
    said(tmp_path, "init", "shop")
    folder = tmp_path / "shop"
    run = ("run", OPERATOR, "--unbounded", "--until-caught-up")
    said(folder, "land", "orders")
    said(folder, *run)
    said(folder, "savepoint", "create", OPERATOR)
    inbox = folder / "inbox" / "orders"
    header = sorted(inbox.iterdir())[0].read_text().splitlines()[0]
    lines = [
        f"2025-03-01T{hour}:{n:02}:00Z,{hour}{n:02},{('DE', 'FR', 'IT')[n % 3]},1,{n * 100},"
        for hour in range(12, 18)
        for n in range(30)
    ]
    (inbox / "more.csv").write_text("\n".join([header, *lines]) + "\n")
    said(folder, "land", "orders")
    said(folder, *run)
    return folder


@pytest.mark.timeout(600)
def test_changes_are_replayed_or_say_why_not_and_production_is_only_read(shop: Path) -> None:
    before = files(shop / "lake")
    status, text = replayed(shop, "--markdown")
    assert status == 0
    assert "| ✅ |" in text
    assert "nothing has changed" in text

    change(shop, OLD, MEAN)
    status, text = replayed(shop, "--markdown")
    (since,) = [one.manifest.watermark for one in savepoints.savepoints(Lake(str(shop / "lake")), OPERATOR)]
    rows = expected(shop, since)
    every = sum(rows.values())
    assert every > 6
    assert f"| the same | {every:,} | {every:,} |" in text, text
    assert "Column `mean`: not there in production, double here." in text
    assert status == 0

    change(shop, MEAN, WRONG)
    status, text = replayed(shop, "--json")
    found: dict[str, Any] = json.loads(text)["replays"][0]["found"][OPERATOR]
    wrong = rows["DE"]
    assert (found["counts"]["equal"], found["counts"]["different"]) == (every - wrong, wrong), found["counts"]
    assert status == 1
    share = (every - wrong) / every
    assert replayed(shop, "--match", f"{share - 0.001}")[0] == 0
    assert replayed(shop, "--tolerance", "cents=1")[0] == 0

    change(shop, WRONG, OLD)
    change(shop, *HALVES)
    status, text = replayed(shop, "--markdown")
    assert status == 1
    assert "| ❌ |" in text
    assert "PLAN-011" in text
    assert files(shop / "lake") == before, "production is as it was"
    (made,) = savepoints.savepoints(Lake(str(shop / "lake")), OPERATOR)
    savepoints.delete(made)
    status, text = replayed(shop)
    assert status == 1
    assert "LIFECYCLE-106" in text


def test_options_that_need_each_other(tmp_path: Path) -> None:
    said(tmp_path, "init", "shop")
    for arguments in (("--markdown",), ("--replay", "1 day"), ("--against", "dev", "--markdown")):
        assert program(tmp_path / "shop", "plan", *arguments).returncode == 2
    unknown = program(tmp_path / "shop", "plan", "--against", "dev", "--replay", "1 day", "--tolerance", "cent=1")
    assert unknown.returncode == 2
    assert "Did you mean 'cents'?" in unknown.stderr
    assert "LIFECYCLE-084" in program(tmp_path / "shop", "plan", "--against", "nowhere").stderr
