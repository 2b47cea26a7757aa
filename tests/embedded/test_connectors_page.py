"""The connector in docs/connectors.md lands its rows once, whatever is killed."""

from __future__ import annotations

import random
import re
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from console_pages import ran
from deltalake import DeltaTable
from processes import killed_at

import floodmark as fm
from floodmark import BoundedOutOfOrderness, Contract, EventTime, Source
from floodmark.core.errors import DefinitionError, SetupError
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
        for left in range(4, -1, -1):
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
            drawn_point = f"{point}:{drawn.randint(1, 2)}"
            chosen = (
                drawn_point if left or killed else "landing.before_log:1"
            )  # some draws are points that no landing reaches
            killed += killed_at(chosen, str(file), str(database), str(lake))
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


def installed(folder: Path, package: str, declared: dict[str, str]) -> None:
    """What ``pip install`` leaves of a package that declares connectors."""
    about = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in declared.items()]
    (about / "entry_points.txt").write_text("\n".join(["[floodmark.connectors]", *lines, ""]))


def test_a_connector_of_an_installed_package_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (declared,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    entries = tomllib.loads(declared)["project"]["entry-points"]["floodmark.connectors"]
    installed(tmp_path / "site", "shop-connectors", entries)
    (tmp_path / "site" / "my_connectors.py").write_text(program())
    with pytest.raises(SetupError, match=r"SETUP-151 connector\('sqlite_table'\): .*Installed: none"):
        fm.connector("sqlite_table")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, at TEXT, cents)")
        connection.execute("INSERT INTO orders VALUES (1, '2025-01-01T00:00:00Z', 20)")
        connection.commit()

    class Order(Contract):
        """A row."""

        at: EventTime
        cents: int

    made = fm.connector("sqlite_table")(str(tmp_path / "shop.db"), "orders")
    orders = Source("orders", contract=Order, connector=made, watermark=BoundedOutOfOrderness("0 s"))

    def no_sail() -> Any:
        raise AssertionError

    assert embedded.land(no_sail, orders, Lake(str(tmp_path / "lake"))).rows == 1
    with pytest.raises(SetupError, match="SETUP-151 .*Did you mean 'sqlite_table'.*Installed: sqlite_table"):
        fm.connector("sqlite_tabel")
    ran(declared)


def test_a_delivery_of_an_installed_package_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "files-again", {"folders": "floodmark:ToFiles"})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert fm.connector("folders")("out") == fm.ToFiles("out")


def test_what_packages_declare_and_cannot_be_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unlicensed_queue.py").write_text("raise RuntimeError('no licence')")
    names = {"text": "pathlib:Path", "gone": "no_such_module:Queue", "lacks": "pathlib:Queue", "two": "floodmark:Files"}
    names["raises"] = "unlicensed_queue:Queue"
    installed(tmp_path, "odd-connectors", names)
    installed(tmp_path, "other-connectors", {"two": "floodmark:Kafka"})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DefinitionError, match="DEFINITION-476 .*a connector or a delivery, got pathlib:Path.*odd-conn"):
        fm.connector("text")
    for name, got in (
        ("gone", "ModuleNotFoundError"),
        ("lacks", "AttributeError"),
        ("raises", "RuntimeError: no licence"),
    ):
        with pytest.raises(SetupError, match=f"SETUP-153 .*of odd-connectors, got {got}"):
            fm.connector(name)
    both = r"odd-connectors \(floodmark:Files\), other-connectors \(floodmark:Kafka\)"
    with pytest.raises(SetupError, match=f"SETUP-152 .*one package that declares it, got {both}"):
        fm.connector("two")
