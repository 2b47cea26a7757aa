"""docs/benchmarks.md shows what ``bench/results`` has: each row of its tables that are made from these files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
Row = dict[str, Any]
OWN = {"embedded": "embedded", "spark": "on Spark"}


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def yes(value: bool) -> str:
    return "yes" if value else "NO"


def load(row: Row) -> list[str]:
    delays = (seconds(row[name]) for name in ("p50", "p99", "p99.9", "greatest"))
    return [
        row["engine"],
        row["interval"] or "default",
        f"{row['rate']:,}",
        *delays,
        f"{row['cpu per million']}",
        yes(row["kept up"]),
    ]


def contenders(row: Row) -> list[str]:
    engine, _, mode = row["system"].partition(", ")
    system = f"floodmark {mode.replace('unbounded', 'stream')}, {OWN[engine]}" if mode else row["system"]
    return [
        system.replace("spark batch", "raw Spark, batch").replace("spark streaming", "raw Spark, stream"),
        row["version"],
        f"{row['cpu_seconds']:.1f}",
        f"{row['peak_memory_mb']:,}",
        yes(row["equal"]),
    ]


def intervals(row: Row) -> list[str]:
    return [
        row["engine"],
        f"{row['rows']:,}",
        f"{row['micro-batches']}",
        f"{row['cpu']:g}",
        f"{100 * row['share']:.0f} %",
    ]


TABLES = {"load": load, "contenders": contenders}


def stored(name: str) -> list[Row]:
    rows: list[Row] = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text("utf-8"))
    return rows


@pytest.mark.parametrize("name", TABLES)
def test_each_measurement_that_is_stored_is_on_the_page(name: str) -> None:
    lines = ["| " + " | ".join(TABLES[name](row)) + " |" for row in stored(name)]
    assert [line for line in lines if line not in PAGE] == []


def test_what_checkpoints_cost_is_on_the_page() -> None:
    rows = [row for row in stored("growth") if row["what"] == "intervals"]
    lines = ["| " + " | ".join(intervals(row)) + " |" for row in rows]
    assert [line for line in lines if line not in PAGE] == []
    for engine in {row["engine"] for row in rows}:
        cost = next(row["checkpoint ms"] for row in rows if row["engine"] == engine)
        assert f"{cost:,.0f} ms" in PAGE or f"{cost / 1000:.1f} s" in PAGE, engine


def test_how_costs_grow_is_on_the_page() -> None:
    for cause in ("rows", "keys", "commits"):
        rows = [row for row in stored("growth") if row["what"] == cause]
        for what in ("landing", "stream", "bounded"):
            if what in rows[0]:
                ends = f"{rows[0][cause]:,} to {rows[-1][cause]:,}"
                costs = f"{rows[0][what]:.2f} | {rows[-1][what]:.2f} | {rows[-1][f'{what} exponent']:.2f}"
                assert f"| {cause} | {ends} | {what} | {costs} |" in PAGE
