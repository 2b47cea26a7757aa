"""A workspace in a folder that only the driver sees, files to land in one that workers see too, and the answers of DuckDB over them."""

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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import spark_cluster
from deltalake import DeltaTable

from demo.tables import without_stamps
from floodmark.spec.values.schema import ROW

SUPPORT = Path(__file__).parent
OPERATORS = ("delays", "streaks", "windy")
FILES, ROWS = 3, 120
START = datetime(2013, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Site:
    """A workspace that workers do not see, and a folder that they do.

    Args:
        workspace: its folder.
        shared: the folder.
        master: of Spark.
        lakes: folder, or URI of a bucket, in which lakes lie.
        settings: of Spark, beside those of all sites.
        variables: of the environment of all steps.
    """

    workspace: Path
    shared: Path
    master: str
    lakes: str
    settings: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def made(
        hidden: Path,
        shared: Path,
        master: str,
        *,
        lakes: str | None = None,
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        files: int = FILES,
        rows: int = ROWS,
    ) -> Site:
        """The workspace in a folder that workers do not see, and files to land."""
        shutil.copytree(SUPPORT / "cluster_workspace", hidden / "workspace", dirs_exist_ok=True)
        _write_files(shared, files, rows)
        shutil.copytree(shared / "departures", hidden / "inbox" / "departures", dirs_exist_ok=True)
        return Site(hidden / "workspace", shared, master, lakes or str(shared), settings or {}, variables or {})

    def run(
        self, engine: str, *steps: str, lake: str = "lake", debugger: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """The steps in a process of their own; with input for Python's debugger under it."""
        ambush = {"spark.executorEnv.AMBUSH": str(self.shared / "ambush")}
        own = {name: value for name, value in os.environ.items() if not name.startswith(("FLOODMARK_", "PYSPARK_S"))}
        environment = own | {
            "SHARED": str(self.shared),
            "LAKE": f"{self.lakes}/{lake}",
            "AMBUSH": str(self.shared / "ambush"),
            "MASTER": self.master,
            "SPARK_SETTINGS": json.dumps({**self.settings, **ambush}),
            "SPARK_SECRET": spark_cluster.SECRET,
            **self.variables,
            **variables,
        }
        under = ["-m", "pdb"] if debugger else []
        command = [sys.executable, *under, str(SUPPORT / "cluster_process.py"), engine, *steps]
        asked = debugger or None
        return subprocess.run(
            command, cwd=self.workspace, env=environment, input=asked, capture_output=True, text=True, check=False
        )

    def at(self, lakes: Path) -> Site:
        """The same, where lakes lie in another folder."""
        return replace(self, lakes=str(lakes))

    def rows(self, lake: str, table: str) -> Counter[str]:
        """The rows of an output as they stand, without stamps."""
        stored = DeltaTable(f"{self.lakes}/{lake}/outputs/{table}").to_pyarrow_table()
        return Counter(map(str, without_stamps(stored.filter(pc.equal(stored["_kind"], ROW))).to_pylist()))

    def duckdb(self) -> Mapping[str, Counter[str]]:
        """The answers of DuckDB over the files; it has no process functions."""
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name in ("departures", "weather"):
                connection.execute(f"CREATE VIEW {name} AS FROM '{self.shared}/{name}/*.csv'")
            connection.execute(f"CREATE VIEW airlines AS FROM '{self.workspace}/operators/data/airlines.csv'")
            return {
                name: Counter(map(str, connection.sql(text).to_arrow_table().to_pylist()))
                for name, text in _TEXTS.items()
            }


_TEXTS = {
    "delays": """
        SELECT coalesce(name, '?') AS airline, date_trunc('hour', "at") AS window_start,
               date_trunc('hour', "at") + INTERVAL 1 HOUR AS window_end, count(*) AS n, sum(delay)::BIGINT AS minutes
        FROM departures LEFT JOIN airlines USING (carrier) WHERE delay IS NOT NULL GROUP BY ALL""",
    "windy": """
        SELECT d.origin, d."at", d.carrier, d.delay, w."at" AS measured_at, w.wind::DOUBLE AS measured_wind
        FROM departures d JOIN weather w ON d.origin = w.origin AND w."at" BETWEEN d."at" - INTERVAL 1 HOUR AND d."at" """,
}


def _write_files(shared: Path, files: int, rows: int) -> None:
    """Files of six hours each."""
    draw = random.Random(44)
    for number in range(files):
        departures, weather = [], []
        for i in range(rows):
            at = START + timedelta(hours=6 * number, minutes=360 * i // rows - draw.choice([0, 0, 30, 90]))
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as lines:
        csv.writer(lines).writerows([names, *rows])
