"""The connector in docs/connectors.md lands its rows once, whatever is killed."""

from __future__ import annotations

import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from console_pages import ran
from deltalake import DeltaTable
from processes import killed_at

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Source
from floodmark.core.errors import DefinitionError
from floodmark.engines.embedded.landing import run as embedded
from floodmark.lake.folder.paths import Lake

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"
_LANDS = """
class Order(fm.Contract):
    at: fm.EventTime
    id: int
    cents: int

if __name__ == "__main__":
    import sys
    from floodmark.engines.embedded.landing.run import land
    from floodmark.lake.folder.paths import Lake
    database, lake = sys.argv[1:]
    connector = SqliteTable(database, "orders", rows_per_unit=5)
    source = fm.Source("orders", contract=Order, connector=connector, watermark=fm.Ascending(), max_quarantine_share=1, files_per_commit=2)
    land(lambda: None, source, Lake(lake))
"""


def program() -> str:
    """The code of the page."""
    return next(
        code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "SqliteTable" in code
    )


@pytest.mark.feature("X16")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))])
def test_the_connector_of_the_page_lands_each_row_once(tmp_path: Path, seed: int) -> None:
    drawn, file, database, lake = random.Random(seed), tmp_path / "lands.py", tmp_path / "shop.db", tmp_path / "lake"
    file.write_text(program() + _LANDS)
    assert len([line for line in program().splitlines() if line.strip()]) <= 40
    expected, broken, killed, last = dict[int, int](), set[int](), 0, 0
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, at TEXT, cents)")
        for _ in range(5):
            for _ in range(drawn.randint(1, 12)):
                last += drawn.randint(1, 9)
                poisoned = drawn.random() < 0.1
                connection.execute(
                    "INSERT INTO orders VALUES (?, ?, ?)",
                    (last, f"2025-01-01T00:{last // 60:02}:{last % 60:02}Z", "x" if poisoned else last),
                )
                broken.add(last) if poisoned else expected.setdefault(last, last)
            connection.commit()
            point = drawn.choice(["landing.before_log", "landing.after_log", "landing.after_quarantine", ""])
            killed += killed_at(f"{point}:{drawn.randint(1, 2)}", str(file), str(database), str(lake))
    killed_at("", str(file), str(database), str(lake))
    log = DeltaTable(Lake(str(lake)).log("orders")).to_pyarrow_table().to_pylist()
    landed = sorted((row for row in log if row["_kind"] == 0), key=lambda row: row["_sequence"])
    assert [(row["id"], row["cents"]) for row in landed] == sorted(expected.items())
    if broken:
        quarantine = DeltaTable(Lake(str(lake)).quarantine("orders")).to_pyarrow_table().to_pylist()
        assert len(quarantine) == len(broken)
    assert killed
    ran(program())


def test_a_connector_without_a_reader_is_told(tmp_path: Path) -> None:
    from dataclasses import dataclass

    from floodmark import Connector

    class Row(Contract):
        """A row."""

        at: EventTime

    @dataclass(frozen=True)
    class Nothing(Connector):
        """Settings alone."""

    empty = Source("nothing", contract=Row, connector=Nothing(), watermark=BoundedOutOfOrderness("0 s"))

    def no_sail() -> Any:
        raise AssertionError

    with pytest.raises(DefinitionError, match="DEFINITION-310.*Nothing"):
        embedded.land(no_sail, empty, Lake(str(tmp_path)))
    with pytest.raises(DefinitionError, match="DEFINITION-017.*connector"):
        Source("nothing", contract=Row, connector="inbox", watermark=BoundedOutOfOrderness("0 s"))  # type: ignore[arg-type]
