"""docs/benchmarks.md shows what ``bench/results`` has: its tables that are made from these files have their rows, and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
Row = dict[str, Any]
OWN = {"embedded": "embedded", "spark": "on Spark"}


EXAMPLES = ROOT / "examples"


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


def isolated(row: Row) -> list[str]:
    delays = (seconds(row[name]) for name in ("p50", "p99", "p99.9", "greatest"))
    return [f"{row['files']}", row["interval"], f"{row['rate']:,}", *delays, f"{row['cpu per million']}"]


def with_expectations(row: Row) -> list[str]:
    delays = (seconds(row[name]) for name in ("p50", "p99", "p99.9", "greatest"))
    return [row["engine"], f"{row['rate']:,}", *delays, f"{row['cpu per million']:,}"]


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


def relational(row: Row) -> list[str]:
    numbers = f"{row['rows']:,}", f"{row['cpu_seconds']:.2f}", f"{row['peak_memory_mb']:,}"
    return [row["what"], row["system"], *numbers, yes(row["equal"])]


def stored(name: str) -> list[Row]:
    rows: list[Row] = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text("utf-8"))
    return rows


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table_of(page: str, header: str) -> set[str]:
    """The rows of the one table with this header."""
    assert page.count(f"\n{header}\n") == 1, f"the page has not one table {header}"
    rows = page.partition(f"\n{header}\n")[2].splitlines()[1:]
    return set(takewhile(lambda row: row.startswith("|"), rows))


TABLES = {
    "load": (
        "| engine | interval | events a second | p50 | p99 | p99.9 | greatest | CPU s per million events | kept up |",
        load,
    ),
    "contenders": ("| system | version | CPU s | peak MB | equal |", contenders),
    "relational": ("|  | system | rows | CPU s | peak MB | valid |", relational),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_measurements_that_are_stored_and_no_others(name: str) -> None:
    header, cells = TABLES[name]
    apart = ("isolated", "judged")  # have tables of their own
    assert table_of(PAGE, header) == {line(cells(row)) for row in stored(name) if not any(map(row.get, apart))}


def test_how_long_judged_rows_take_is_on_the_page() -> None:
    header = "| engine | rows a second | p50 | p99 | p99.9 | greatest | CPU s per million rows |"
    assert table_of(PAGE, header) == {line(with_expectations(row)) for row in stored("load") if row["judged"]}


def test_how_near_two_hundred_milliseconds_rows_come_is_on_the_page() -> None:
    header = "| files a second | interval | events a second | p50 | p99 | p99.9 | greatest | CPU s per million events |"
    assert table_of(PAGE, header) == {line(isolated(row)) for row in stored("load") if "isolated" in row}


def test_how_near_previews_come_is_on_the_page() -> None:
    header = "| engine | backfills | rows and files exact | durations judged | within 1.5 by the clock | by processor seconds |"
    columns = ("engine", "backfills", "exact", "judged", "within the factor by the clock", "by the processor")
    assert table_of(PAGE, header) == {line(f"{row[name]}" for name in columns) for row in stored("previews")}


def test_a_week_of_dagster_is_on_the_page() -> None:
    week, partitions = stored("week")
    names = f"{week['days']} days, {week['commits']:,} commits", f"{partitions['partitions']:,} partitions at once"
    expected = {
        line([name, f"{row['looks']:,}", f"{row['event log MB']} MB", f"{row['processor s of a look']:.2f} s"])
        for name, row in zip(names, (week, partitions), strict=True)
    }
    assert table_of(PAGE, "|  | looks | event log | longest look, processor |") == expected
    assert f"The ticks of the week take {week['ticks MB']} MB" in PAGE
    assert f"takes {partitions['processor s of a judgement']} s of processor time" in PAGE


def test_the_table_beside_raw_spark_is_the_one_that_the_program_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    header, _, *rows = import_module("run").table(stored("run")).splitlines()
    assert table_of(PAGE, header) == set(rows)


def test_nexmark_on_all_systems_is_the_table_that_the_program_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    auctions, rows = import_module("auctions"), stored("auctions")
    for events in {row["events"] for row in rows}:
        header, _, *lines = auctions.table(rows, events).splitlines()
        assert table_of(PAGE, header) == set(lines), f"{events:,} events"
    different = {row["query"] for row in rows if row.get("equal") is False}
    assert different <= {"q11"}, "the page says why only of q11"


def test_what_the_variants_of_the_query_reach_is_on_the_page() -> None:
    reached = {(row["keys"], row["variant"]): row["rows per CPU s"] for row in stored("variants")}
    assert {row["rows"] for row in stored("variants")} == {250_000}
    keys = sorted({number for number, _ in reached})
    expected = {line([f"{n:,}", *(f"{reached[n, v]:,}" for v in ("files", "log", "made"))]) for n in keys}
    assert table_of(PAGE, "| campaigns | from files | from the log | made in the process |") == expected


def test_what_checkpoints_cost_is_on_the_page() -> None:
    rows = [row for row in stored("growth") if row["what"] == "intervals"]
    lines = [line(intervals(row)) for row in rows]
    assert table_of(PAGE, "| engine | events | micro-batches | CPU s | share of checkpoints |") == set(lines)
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


def test_what_it_costs_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "running.md").read_text("utf-8")
    cores = {(row["engine"], row["rate"]): row["cpu per million"] * row["rate"] / 1e6 for row in defaults()}
    for rate in (1_000, 10_000, 23_148, 100_000):
        of = [f"{cores[engine, rate]:.2f} cores" if (engine, rate) in cores else "not measured" for engine in OWN]
        assert re.search(rf"^\| {rate:,}(: two billion a day)? \| {of[0]} \| {of[1]} \|$", page, re.MULTILINE), rate
    peaks = {row["system"]: row["peak_memory_mb"] for row in stored("contenders")}
    embedded, spark = peaks["embedded, unbounded"], peaks["spark, unbounded"] / 1000
    assert (
        f"| a stream of 500,000 events of 100 keys in eight micro-batches, peak | {embedded} MB | {spark:.1f} GB |"
        in page
    )


def defaults() -> list[Row]:
    """What was measured at fixed rates with the interval that a stream has by default."""
    return [row for row in stored("load") if not row["interval"] and row["files"] == 10 and not row["judged"]]


def test_what_each_example_costs_and_which_test_has_its_oracle_is_on_their_page() -> None:
    page = (EXAMPLES / "README.md").read_text("utf-8")
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table_of(page, COSTS)]
    measured = {
        row["example"]: [f"{row[name]}" for name in ("commands", "seconds", "cpu_seconds")]
        for row in stored("examples")
    }
    assert {name: cells for name, *cells, _ in rows} == measured
    assert measured.keys() == {path.parent.name for path in EXAMPLES.glob("*/pyproject.toml")}
    for name, *_, link in rows:
        test = re.fullmatch(r"\[.+\]\(\.\./(tests/.+\.py)\)", link)
        assert test is not None
        assert f'"{name}"' in (ROOT / test[1]).read_text("utf-8"), link


COSTS = "| example | commands | seconds | CPU s | compared with an oracle in |"
