"""A few days of the flights inbox, in small files, for tests on a real engine."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
from deltalake import DeltaTable

from demo.comparison import Comparison, compare
from demo.inbox import write_inbox
from demo.oracle import Oracle
from demo.tables import final
from floodmark import BoundedOutOfOrderness, Files, Source
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from operators.flights import NEW_YORK, Flight

BOUND_MINUTES = 180
"""With three hours a fifth of the rows are late: much to go wrong."""


def write_small_inbox(folder: Path, *, days: int, pieces: int, skip: int = 0) -> Path:
    """The first days of 2013, each file cut into pieces of consecutive rows; the folder to give to ``Oracle``."""
    whole, cut = folder / "whole", folder / "cut"
    write_inbox(whole, days=days)
    (cut / "flights").mkdir(parents=True)
    for path in sorted((whole / "flights").iterdir())[skip:]:
        with gzip.open(path, "rt", newline="") as stream:
            header, *rows = list(csv.reader(stream))
        size = -(-len(rows) // pieces)
        for number in range(pieces):
            target = cut / "flights" / f"{path.name.removesuffix('.csv.gz')}_{number}.csv.gz"
            with gzip.open(target, "wt", newline="") as stream:
                csv.writer(stream).writerows([header, *rows[number * size : (number + 1) * size]])
    return cut


def source(inbox: Path, files_per_commit: int = 1) -> Source:
    """The flights of an inbox."""
    watermark = BoundedOutOfOrderness(f"{BOUND_MINUTES} minutes")
    connector = Files(str(inbox / "flights"), min_age="0 s")
    return Source(
        "flights", contract=Flight, connector=connector, watermark=watermark, files_per_commit=files_per_commit
    )


def land_all(engine: Computing, inbox: Path, lake: Lake, *, end: bool, max_commits: int | None = None) -> None:
    """Land what there is, one file per commit."""
    engine.land(source(inbox), lake, end=end, max_commits=max_commits)


def answer(lake: Lake, operator: Operator, name: str) -> pa.Table:
    """Final values of an output, without stamps."""
    output = operator.output(name)
    return final(DeltaTable(lake.output(output.table)).to_pyarrow_table(), output)


def changelog(lake: Lake, table: str) -> pa.Table:
    """Rows and retractions with the stamps that must be the same in every run."""
    found = DeltaTable(lake.output(table)).to_pyarrow_table()
    return found.filter(pa.compute.not_equal(found["_kind"], 1)).drop_columns(
        [name for name in ("_progress", "_sequence", "_ingest_time", "_asset_partition") if name in found.column_names]
    )


def against_oracle(lake: Lake, operator: Operator, oracle: Oracle) -> list[Comparison]:
    """Every output of an operator against DuckDB's answer."""
    found = []
    for output in operator.outputs:
        mine, theirs = answer(lake, operator, output.name), oracle.answer(output.table)
        if not operator.stateful or output.side:
            theirs = theirs.select(mine.column_names)
        found.append(compare(mine, theirs.cast(mine.schema), keys=output.keys, names=("floodmark", "duckdb")))
    return found


def in_days(rows: pa.Table, days: Sequence[str]) -> pa.Table:
    """The rows of windows that begin on New York days, sorted."""
    begun = rows["window_start"].to_pylist()
    inside = [f"{moment.astimezone(ZoneInfo(NEW_YORK)):%Y-%m-%d}" in days for moment in begun]
    return rows.filter(pa.array(inside, pa.bool_())).sort_by([(name, "ascending") for name in rows.column_names])


def versions(lake: Lake) -> dict[str, int]:
    """Of every output table there is."""
    return {p.name: DeltaTable(str(p)).version() for p in Path(lake.root, "outputs").glob("*")}


def same(lake: Lake, other: Lake, operator: Operator) -> None:
    """Every output of an operator holds the same rows in two lakes, and as many changes."""
    for output in operator.outputs:
        mine, theirs = (answer(one, operator, output.name) for one in (lake, other))
        order = [(name, "ascending") for name in theirs.column_names]
        assert mine.num_rows > 0 or output.side
        assert mine.sort_by(order).equals(theirs.sort_by(order)), output.table
        assert changelog(lake, output.table).num_rows == changelog(other, output.table).num_rows
