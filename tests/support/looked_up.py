"""A stream whose rows look in a table that another program writes, and what they find while the table changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from sql_tables import Flight, flights, log_of

from floodmark import Contract, LookupTable, Operator, sql_operator
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import MARKER
from floodmark.testing.lakes import land

SQL = "SELECT f.flight, f.origin, a.name, a.lookup_version FROM flights AS f LEFT JOIN airports FOR SYSTEM_TIME AS OF PROCTIME() AS a ON f.origin = a.code"
NAMES = {"0": {"EWR": "Newark", "JFK": "Kennedy"}, "1": {"EWR": "Liberty", "LGA": "LaGuardia"}}
"""Version of the table -> its rows."""


class Airport(Contract, key=("code",)):
    """An airport."""

    code: str
    name: str | None = None


def looking(folder: Path) -> Operator:
    """The operator, over the table in a folder."""
    table = LookupTable("airports", contract=Airport, path=folder)
    return sql_operator("named", SQL, inputs={"flights": Flight, "airports": table})


def write(folder: Path, version: str) -> None:
    """Write a version of the table."""
    rows = {
        "code": list(NAMES[version]),
        "name": list(NAMES[version].values()),
        "extra": list(range(len(NAMES[version]))),
    }
    write_deltalake(str(folder), pa.table(rows), mode="overwrite")


def answers(lake: Lake) -> list[tuple[Any, ...]]:
    """The rows of the output."""
    rows = DeltaTable(lake.output("named")).to_pyarrow_table().to_pylist()
    return sorted(
        (row["flight"], row["origin"], row["name"], row["lookup_version"]) for row in rows if row["_kind"] != MARKER
    )


def expected(rows: list[dict[str, Any]], first: int) -> list[tuple[Any, ...]]:
    """What rows find of which the first ones were processed before the table changed."""
    versions = ["0" if number < first else "1" for number in range(len(rows))]
    return [
        (row["flight"], row["origin"], NAMES[v].get(row["origin"]), v) for row, v in zip(rows, versions, strict=True)
    ]


def check(lake: Lake, folder: Path, streaming: Computing, replaying: Computing) -> None:
    """A stream finds the rows of the table as it is when each row is processed; a rebuild and a bounded run find the same, though the table is gone."""
    operator, rows = looking(folder), flights(1, 30)
    log = log_of(Flight, rows, "scheduled")
    log.end()
    half = next(
        place for place, entry in enumerate(log.entries) if place >= len(log.entries) // 2 and entry is not None
    )
    write(folder, "0")
    land(lake, operator, log, 0, half)
    streaming.run_unbounded(operator, lake, until_caught_up=True)
    first = len(answers(lake))
    assert 0 < first < len(rows)
    write(folder, "1")
    land(lake, operator, log, half, len(log.entries))
    streaming.run_unbounded(operator, lake, until_caught_up=True)
    assert answers(lake) == expected(rows, first)
    shutil.rmtree(folder)
    streaming.run_unbounded(operator, lake, until_caught_up=True, from_scratch=True)
    assert answers(lake) == expected(rows, first)
    replaying.run_bounded(operator, lake, Interval(), force=True)
    assert answers(lake) == expected(rows, first)
