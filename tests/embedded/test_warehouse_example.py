"""The example of a warehouse: tables of a database equal DuckDB's answer, with each order once, though a delivery is killed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import duckdb
import forked
import pytest
from console_pages import Reader, blocks
from example_workspaces import EXAMPLES, example
from recipes import variables

from floodmark.core import crash

ARRIVALS = example("warehouse", "arrivals")
FACTS = """
    SELECT o.number, lower(trim(o.customer)) AS customer, c.segment, o.cents, date_trunc('day', o.at) AS day
    FROM orders AS o ASOF JOIN customers AS c ON lower(trim(o.customer)) = lower(trim(c.customer)) AND o.at >= c.since
    WHERE o.cents > 0
"""
DAILY = f"SELECT segment, count(*), sum(cents), day FROM ({FACTS}) GROUP BY segment, day"


def expected(inbox: Path, query: str) -> list[tuple[Any, ...]]:
    """DuckDB's answer from the files."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in ("orders", "customers"):
            connection.execute(f"CREATE TABLE {name} AS FROM read_csv('{inbox}/{name}/*.csv', header = true)")
        return sorted(connection.execute(query).fetchall(), key=str)


def of_database(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of the warehouse."""
    with sqlite3.connect(folder / "warehouse.db") as connection:
        return connection.execute(query).fetchall()


@pytest.mark.feature("Y12")
def test_the_tables_of_the_database_are_those_of_duckdb_though_a_delivery_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "warehouse"
    shutil.copytree(EXAMPLES / "warehouse", folder)
    ARRIVALS.write(folder / "inbox", 0, 2)

    def run(*arguments: str, dies: str = "") -> None:
        env = {**os.environ, crash.VARIABLE: dies} if dies else dict(os.environ)
        done = forked.run([sys.executable, "-m", "floodmark.cli.main", *arguments], cwd=folder, env=env)
        assert done.returncode == (-signal.SIGKILL if dies else 0), (arguments, done.stderr)

    run("land", "orders", "customers")
    run("run", "facts", "--unbounded", "--until-caught-up")
    run("deliver", "facts_to_sql")
    ARRIVALS.write(folder / "inbox", 1, 2)
    run("land", "orders", "customers", "--end")
    for name in ("facts", "daily"):
        run("run", name, "--unbounded", "--until-caught-up")
    run("deliver", "facts_to_sql", dies="delivery.before_commit")
    for name in ("facts_to_sql", "daily_to_sql"):
        run("deliver", name)

    facts = of_database(folder, "SELECT number, customer, segment, cents, substr(day, 1, 10) FROM facts")
    wanted = [(*row[:4], str(row[4])[:10]) for row in expected(folder / "inbox", FACTS)]
    assert sorted(facts, key=str) == sorted(wanted, key=str)
    assert 100 < len(facts) < 240
    daily = of_database(folder, "SELECT segment, orders, cents, substr(window_start, 1, 10) FROM daily")
    wanted = [(*row[:3], str(row[3])[:10]) for row in expected(folder / "inbox", DAILY)]
    assert sorted(daily, key=str) == sorted(wanted, key=str)


@pytest.mark.soak
def test_the_commands_of_its_page_give_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "warehouse"
    shutil.copytree(EXAMPLES / "warehouse", folder)
    reader = Reader(folder, variables(tmp_path))
    for block in blocks(folder / "README.md"):
        reader.do(block)
    facts = of_database(folder, "SELECT number, customer, segment, cents, substr(day, 1, 10) FROM facts")
    wanted = [(*row[:4], str(row[4])[:10]) for row in expected(folder / "inbox", FACTS)]
    assert sorted(facts, key=str) == sorted(wanted, key=str)
