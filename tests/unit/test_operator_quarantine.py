"""What an operator has set aside, over many commits: the same as the opened table tells, from files that are each opened once."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import quarantines
from floodmark.lake.table.rows import row_schema
from floodmark.observe.quarantine import SetAside, set_aside
from floodmark.spec.values.schema import MARKER, QUARANTINE, RETRACTION, ROW

COLUMNS = row_schema(QUARANTINE)
LIMITS = (1, 3, 20, 1000)
KINDS = [ROW, ROW, ROW, RETRACTION, MARKER]


class Event(fm.Contract):
    at: fm.EventTime
    key: str


def _split(row: dict[str, Any]) -> Any:
    yield row


@fm.operator
def splitting(rows: fm.Stream[Event]) -> fm.Stream:
    """Sets rows aside for which its function fails."""
    return rows.flat_map(_split, Event, on_error="quarantine")


@fm.operator
def plain(rows: fm.Stream[Event]) -> fm.Stream:
    """Sets nothing aside."""
    return rows.filter("key = 'a'")


def path_of(lake: Lake) -> str:
    (output,) = (one for one in splitting.outputs if one.side == "quarantine")
    return lake.output(output.table)


def write(lake: Lake, commits: int, *, partition: bool = False) -> None:
    """Commits of some rows each, in no order of time; some rows have none."""
    random, sequence = Random(7), 0
    for commit in range(commits):
        rows = []
        for _ in range(random.randrange(1, 5)):
            sequence += 1
            at = None if random.random() < 0.1 else from_ms(random.randrange(50) * 1000)
            rows.append(
                {
                    "step": random.choice(["flat_map", "process"]),
                    "key": random.choice([None, '"a"']),
                    "reason": f"ValueError: no {random.randrange(3)}",
                    "given": f'{{"n": {sequence}}}',
                    "_event_time": at,
                    "_sequence": sequence,
                    "_kind": random.choice(KINDS),
                }
            )
        table = pa.Table.from_pylist(rows, schema=COLUMNS)
        if partition:
            table = table.append_column("_partition", pa.array([f"2025-03-0{1 + commit % 3} 00:00"] * len(table)))
        write_deltalake(path_of(lake), table, mode="append", partition_by=["_partition"] if partition else None)


def told_by_the_table(lake: Lake, limit: int) -> SetAside:
    """The same from the opened table."""
    rows = DeltaTable(path_of(lake)).to_pyarrow_table(columns=COLUMNS.names)
    with duckdb.connect() as connection:
        found = connection.from_arrow(rows).filter(f"_kind = {ROW}")
        reasons = found.aggregate("step, reason, count(*) AS n", "step, reason").order("n DESC, step, reason")
        columns = [*QUARANTINE.names, "epoch_ms(_event_time) AS event_time"]
        newest = found.order("_event_time DESC, _sequence").limit(limit).project(", ".join(columns))
        return SetAside(
            operator="splitting",
            rows=found.count("*").fetchall()[0][0],
            by_reason=tuple(reasons.limit(limit).fetchall()),
            newest=tuple(dict(zip(newest.columns, row, strict=True)) for row in newest.fetchall()),
        )


@pytest.mark.parametrize("partition", [False, True], ids=["whole", "divided"])
@pytest.mark.few(1)
def test_it_is_what_the_opened_table_tells(lake: Lake, *, partition: bool) -> None:
    write(lake, 30, partition=partition)
    assert told_by_the_table(lake, 1).rows > 30
    for limit in LIMITS:
        assert set_aside(splitting, lake, limit=limit) == told_by_the_table(lake, limit)
    DeltaTable(path_of(lake)).optimize.compact()
    DeltaTable(path_of(lake)).create_checkpoint()
    write(lake, 2, partition=partition)
    for limit in LIMITS:
        assert set_aside(splitting, lake, limit=limit) == told_by_the_table(lake, limit)


def test_of_many_files_those_with_the_newest_rows_are_read_once_more(lake: Lake, monkeypatch) -> None:
    write(lake, 30)
    asked: list[int] = []
    relation = quarantines.relation

    def counted(connection: Any, path: str, files: list[str]) -> str:
        asked.append(len(files))
        return relation(connection, path, files)

    monkeypatch.setattr(quarantines, "relation", counted)
    monkeypatch.setattr("floodmark.lake.logs.quarantines.DeltaTable", None)  # the table is not opened
    assert len(set_aside(splitting, lake, limit=2).newest) == 2
    assert asked[0] == 30
    assert asked[1] < 10


def test_an_operator_without_one_has_nothing_in_it(lake: Lake) -> None:
    assert set_aside(plain, lake, limit=5) == SetAside(operator="plain", rows=0, by_reason=(), newest=())
    assert set_aside(splitting, lake, limit=5) == SetAside(operator="splitting", rows=0, by_reason=(), newest=())
    table = pa.Table.from_pylist([{"_kind": MARKER}], schema=COLUMNS)
    write_deltalake(path_of(lake), table)
    assert set_aside(splitting, lake, limit=5).rows == 0
