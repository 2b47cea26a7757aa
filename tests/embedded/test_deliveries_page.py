"""The programs of docs/deliveries.md run as they stand there."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_programs import module_of

from floodmark import Workspace
from floodmark.deliveries.run import deliver
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import routes

PAGE = Path(__file__).parents[2] / "docs" / "deliveries.md"


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The modules that the programs of the page are."""
    codes = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [module_of(folder / f"deliveries_page_{n}.py", code, monkeypatch) for n, code in enumerate(codes)]


@pytest.mark.feature("Q6")
def test_the_programs_of_the_page_deliver(sail: Sail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DATABASE", f"sqlite:///{tmp_path}/shop.db")
    shop, own = programs(tmp_path, monkeypatch)
    workspace: Workspace = shop.workspace().at(str(tmp_path))
    lake, hourly = Lake.of(workspace.settings), workspace.operator("hourly")
    (tmp_path / "inbox").mkdir()
    expected: dict[tuple[str, str], int] = {}
    mine = replace(routes(hourly, [own.ToMemory()], "test")[0], operator=hourly)
    for day, rows in enumerate([[("NL", 1, 10), ("DE", 2, 20), ("NL", 9, 5)], [("NL", 1, 7), ("DE", 30, 1)]]):
        lines = "".join(
            f"2025-01-{1 + hour // 24:02}T{hour % 24:02}:30:00Z,{land},{cents}\n" for land, hour, cents in rows
        )
        (tmp_path / "inbox" / f"{day}.csv").write_text(f"at,country,cents\n{lines}")
        land(lambda: sail, workspace.source("orders"), lake, workspace=tmp_path)
        run_unbounded(sail, hourly, lake, until_caught_up=True)
        deliver(workspace.delivery("hourly_to_sql"), lake, until_caught_up=True)
        deliver(mine, lake, until_caught_up=True)
        for country, hour, cents in rows:
            expected[country, f"{hour:02}"] = expected.get((country, f"{hour:02}"), 0) + cents
    del expected["DE", "30"], expected["NL", "09"]  # its window is open
    expected["NL", "09"] = 5
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        sales = {
            (country, start[11:13]): cents
            for country, start, cents in connection.execute("SELECT country, window_start, cents FROM sales")
        }
    assert sales == expected
    assert {(row["country"], f"{row['window_start']:%H}"): row["cents"] for row in own.KEPT.values()} == expected
