"""A workspace on a cluster of Spark's own, whose workers see nothing of the driver but the shared folder of the lake.

What runs there is killed: an executor, a worker, the driver. Rows are those of the embedded engine, and DuckDB's.
"""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pytest
import spark_cluster
from deltalake import DeltaTable

from demo.tables import without_stamps
from floodmark.spec.values.schema import ROW

SUPPORT = Path(spark_cluster.__file__).parent
OPERATORS = ("delays", "streaks", "windy")
FILES, ROWS = 3, 120
START = datetime(2013, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Site:
    """A workspace that workers do not see, and a folder that they do."""

    workspace: Path
    shared: Path
    cluster: spark_cluster.Cluster

    def run(self, engine: str, *steps: str, lake: str = "lake", **variables: str) -> subprocess.CompletedProcess[str]:
        """The steps in a process of their own."""
        ambush = {"spark.executorEnv.AMBUSH": str(self.shared / "ambush")}
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("FLOODMARK_", "PYSPARK_S"))},
            "SHARED": str(self.shared),
            "LAKE": str(self.shared / lake),
            "AMBUSH": str(self.shared / "ambush"),
            "MASTER": self.cluster.master,
            "SPARK_SETTINGS": json.dumps(spark_cluster.SETTINGS | ambush),
            "SPARK_SECRET": spark_cluster.SECRET,
            **variables,
        }
        command = [sys.executable, str(SUPPORT / "cluster_process.py"), engine, *steps]
        return subprocess.run(command, cwd=self.workspace, env=environment, capture_output=True, text=True, check=False)

    def rows(self, lake: str, table: str) -> Counter[str]:
        """The rows of an output as they stand, without stamps."""
        stored = DeltaTable(str(self.shared / lake / "outputs" / table)).to_pyarrow_table()
        return Counter(map(str, without_stamps(stored.filter(pc.equal(stored["_kind"], ROW))).to_pylist()))


@pytest.fixture
def site(cluster: spark_cluster.Cluster) -> Site:
    """The workspace in a folder that workers do not see, and files to land."""
    hidden = cluster.hidden[0]
    shutil.copytree(SUPPORT / "cluster_workspace", hidden / "workspace")
    _write_files(cluster.shared)
    shutil.copytree(cluster.shared / "departures", hidden / "inbox" / "departures")
    return Site(hidden / "workspace", cluster.shared, cluster)


def _write_files(shared: Path) -> None:
    draw = random.Random(44)
    for number in range(FILES):
        departures, weather = [], []
        for i in range(ROWS):
            at = START + timedelta(hours=6 * number, minutes=3 * i - draw.choice([0, 0, 30, 90]))
            delay = draw.choice([None, draw.randint(-10, 90), draw.randint(20, 90)])
            departures.append(
                [at.isoformat(), draw.choice(["AA", "B6", "UA", "ZZ"]), draw.choice(["JFK", "LGA"]), delay]
            )
        for hour in range(6):
            at = START + timedelta(hours=6 * number + hour)
            weather += [[at.isoformat(), origin, draw.randint(0, 30)] for origin in ("JFK", "LGA")]
        _write(shared / "departures" / f"{number}.csv", ["at", "carrier", "origin", "delay"], departures)
        _write(shared / "weather" / f"{number}.csv", ["at", "origin", "wind"], weather)


def _write(path: Path, names: list[str], rows: list[list[Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as lines:
        csv.writer(lines).writerows([names, *rows])


def _duckdb(shared: Path, workspace: Path) -> Mapping[str, Counter[str]]:
    """The answers of DuckDB over the files; it has no process functions."""
    texts = {
        "delays": """
            SELECT coalesce(name, '?') AS airline, date_trunc('hour', "at") AS window_start,
                   date_trunc('hour', "at") + INTERVAL 1 HOUR AS window_end, count(*) AS n, sum(delay)::BIGINT AS minutes
            FROM departures LEFT JOIN airlines USING (carrier) WHERE delay IS NOT NULL GROUP BY ALL""",
        "windy": """
            SELECT d.origin, d."at", d.carrier, d.delay, w."at" AS measured_at, w.wind::DOUBLE AS measured_wind
            FROM departures d JOIN weather w ON d.origin = w.origin AND w."at" BETWEEN d."at" - INTERVAL 1 HOUR AND d."at" """,
    }
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in ("departures", "weather"):
            connection.execute(f"CREATE VIEW {name} AS FROM '{shared}/{name}/*.csv'")
        connection.execute(f"CREATE VIEW airlines AS FROM '{workspace}/operators/data/airlines.csv'")
        return {
            name: Counter(map(str, connection.sql(text).to_arrow_table().to_pylist())) for name, text in texts.items()
        }


@pytest.mark.feature("O1", "O2", "O4", "O6", "X13")
def test_a_workspace_runs_on_workers_that_see_nothing_of_the_driver_and_are_killed(
    cluster: spark_cluster.Cluster, site: Site
) -> None:
    assert len(cluster.workers) > 1, "the second driver finds the one that lives"
    bounded = [f"bounded:{name}" for name in OPERATORS]
    first = site.run(
        "spark",
        *("end", *bounded, "ambush:executor", "unbounded:delays", "ambush:worker", "unbounded:streaks"),
        *("crash:micro_batch.before_main:2", "unbounded:windy"),
    )
    assert "unbounded:streaks" in first.stdout, first.stderr[-3000:]
    assert first.returncode < 0, first.stderr[-3000:]  # the driver was killed
    assert "secret is an argument of" not in first.stdout, first.stdout
    assert (site.shared / "executor.killed").exists()
    assert (site.shared / "worker.killed").exists()
    second = site.run("spark", "unbounded:windy", "land", INBOX=str(site.workspace.parent / "inbox"))
    assert "unbounded:windy" in second.stdout, second.stderr[-3000:]
    assert "CONNECTOR-210 source 'departures', folder" in second.stderr
    embedded = site.run("embedded", "end", *(f"unbounded:{name}" for name in OPERATORS), lake="embedded")
    assert embedded.returncode == 0, embedded.stderr[-3000:]
    for name in OPERATORS:
        expected = site.rows("embedded", name)
        assert expected
        assert site.rows("lake", name) == expected
        assert site.rows("lake-bounded", name) == expected
    for name, rows in _duckdb(site.shared, site.workspace).items():
        assert site.rows("lake", name) == rows
