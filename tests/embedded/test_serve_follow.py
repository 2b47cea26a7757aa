"""``floodmark serve``: after each step of a schedule, and during it, answers are the results of one commit."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest
from asked import Asked, asked, small
from delivery_schedule import Schedule, plain
from deltalake import DeltaTable
from streams import WINDOWED

from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.last_values import query
from floodmark.lake.table import entries

ALL = [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 42))]


class Reader(threading.Thread):
    """Asks for all results again and again, and notes what each commit has."""

    def __init__(self, ask: Asked) -> None:
        super().__init__(daemon=True)
        self.ask, self.seen, self.ended = ask, defaultdict[tuple[str, int], set[str]](set), threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            status, content, headers = self.ask.raw("/v1/outputs/windowed/bulk")
            if status == 200:
                as_of = json.loads(headers["Floodmark-As-Of"])
                self.seen[as_of["table_id"], as_of["commit"]].add(content.decode())
            assert status in {200, 503}
            self.ended.wait(0.05)


def answered(content: str) -> list[str]:
    """Rows of a bulk answer, as the schedule has results."""
    rows = [json.loads(line) for line in content.splitlines()]
    return sorted(map(plain, rows))


def last_values(lake: Lake) -> list[str]:
    """The table of last values, in the columns of the code that the service was started with."""
    rows = DeltaTable(lake.output("windowed__current")).to_pyarrow_table().to_pylist()
    names = WINDOWED.outputs[0].schema.names
    return sorted(plain({name: row[name] for name in names}) for row in rows if row["_kind"] == 0)


def at_version(lake: Lake, version: int) -> list[str]:
    """The last value of each key at a version of the output."""
    rows = DeltaTable(lake.output("windowed"), version=version).to_pyarrow_dataset()  # noqa: F841 - DuckDB reads it by name
    names = WINDOWED.outputs[0].schema.names
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        table = connection.sql(query(", ".join(names), "rows", WINDOWED.outputs[0].keys)).to_arrow_table()
    return sorted(map(plain, table.to_pylist()))


@pytest.mark.feature("U1", "U2")
@pytest.mark.parametrize("seed", ALL)
def test_answers_are_the_results_of_one_commit_after_each_step_and_during_it(
    sail: Sail, seed: int, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    schedule = Schedule(sail, WINDOWED, lake, seed)
    steps = ["land", "save", "land", "back", "bounded", "anew"] if seed == 1 else [""] * 10
    with asked(small(tmp_path, WINDOWED), lake, tmp_path / "copies") as ask:
        reader = Reader(ask)
        reader.start()
        for step in steps:
            schedule.take(step) if step else schedule.draw()
            caught_up(ask, lake)
            _, content, _ = ask.raw("/v1/outputs/windowed/bulk")
            assert answered(content.decode()) == last_values(lake), schedule.done
        reader.ended.set()
        reader.join()
    assert all(len(contents) == 1 for contents in reader.seen.values()), "one commit, one answer"
    table, newest = entries.id_of(lake.output("windowed")), entries.newest(lake.output("windowed"))
    for (seen, commit), contents in reader.seen.items():
        if seen == table and commit == newest:
            assert answered(contents.pop()) == at_version(lake, commit)


def caught_up(ask: Asked, lake: Lake) -> None:
    """Wait until the newest commit is answered."""
    path, end = lake.output("windowed"), time.monotonic() + 300
    copy = ask.service.copies["windowed"]
    while True:
        newest, table = entries.newest(path), entries.id_of(path)
        snapshot = copy.snapshot
        if snapshot is not None and (snapshot.as_of.commit, snapshot.as_of.table) == (newest, table):
            return
        assert time.monotonic() < end, (snapshot, newest)
        time.sleep(0.02)
