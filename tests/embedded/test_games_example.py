"""The example of games: scripts of analysts equal DuckDB's answers over the same file, and a new one leaves the streams that have run as they are."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from console_pages import Block, Reader, blocks
from deltalake import DeltaTable
from recipes import variables

EXAMPLE = Path(__file__).parents[2] / "examples" / "games"
PEOPLE = "(SELECT * FROM read_csv('{inbox}', types={{'at': 'TIMESTAMP'}}) WHERE player NOT LIKE 'robot-%')"
SPENDERS = 'SELECT game, time_bucket(INTERVAL 1 hour, "at"), count(DISTINCT player), sum(cents) FROM {people} GROUP BY ALL ORDER BY ALL'
STUCK = 'SELECT game, level, time_bucket(INTERVAL 10 minutes, "at"), count(*) FROM {people} WHERE NOT won GROUP BY ALL HAVING count(*) >= 5 ORDER BY ALL'
WINNERS = "SELECT game, count(*) FROM {people} WHERE won GROUP BY ALL ORDER BY ALL"
SCRIPT = """-- Rounds that were won, per game.
SELECT game, window_start, window_end, COUNT(*) AS won
FROM TABLE(TUMBLE(TABLE rounds, DESCRIPTOR(at), INTERVAL '1' DAY)) WHERE won GROUP BY game, window_start, window_end
"""


def rows(folder: Path, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """The results of an output, ordered; times without a zone, as DuckDB has them."""
    found = DeltaTable(str(folder / "lake" / "outputs" / table)).to_pyarrow_table().to_pylist()
    naive = [
        {name: v.replace(tzinfo=None) if isinstance(v, datetime) else v for name, v in row.items()} for row in found
    ]
    return sorted(tuple(row[name] for name in columns) for row in naive if row["_kind"] == 0)


def answer(folder: Path, query: str) -> list[tuple[Any, ...]]:
    people = PEOPLE.format(inbox=folder / "inbox" / "rounds.csv")
    with duckdb.connect() as engine:
        return engine.execute(query.format(people=people)).fetchall()


@pytest.mark.feature("Y2")
def test_scripts_equal_duckdb_and_a_new_one_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "games"
    shutil.copytree(EXAMPLE, folder)
    reader = Reader(folder, variables(tmp_path))
    for block in blocks(EXAMPLE / "README.md"):
        reader.do(block)
    assert rows(folder, "spenders", "game", "window_start", "players", "cents") == answer(folder, SPENDERS)
    stuck = answer(folder, STUCK)
    assert stuck
    assert rows(folder, "stuck", "game", "level", "window_start", "lost") == stuck

    (folder / "winners.sql").write_text(SCRIPT)
    before = {
        name: DeltaTable(str(folder / "lake" / "outputs" / name)).version() for name in ("rounds", "spenders", "stuck")
    }
    printed = reader.do(Block(kind="console", argument="", body="$ floodmark plan\n$ floodmark run winners\n", start=0))
    assert printed.count("no-op") == 2, "the streams of the others mean what they were started with"
    assert rows(folder, "winners", "game", "won") == answer(folder, WINNERS)
    assert before == {name: DeltaTable(str(folder / "lake" / "outputs" / name)).version() for name in before}
