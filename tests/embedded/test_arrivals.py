"""The data that examples draw: whoever copies one and types the commands of its page has all rows in the logs and results of each operator."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from console_pages import Reader, blocks
from deltalake import DeltaTable
from example_workspaces import EXAMPLES, example
from recipes import variables

from floodmark.lake.folder.paths import Lake

NAMES = ("alerts", "booking", "delays", "fraud", "market", "meters", "missing_step", "operations", "rules", "search")
"""The examples whose oracles draw rows of their own."""


def rows(table: str) -> int:
    return sum(row["_kind"] == 0 for row in DeltaTable(table).to_pyarrow_table(columns=["_kind"]).to_pylist())


@pytest.mark.parametrize("page", [f"examples/{name}/README.md" for name in NAMES])
@pytest.mark.few(1)
def test_what_an_example_draws_lands_whole_and_each_operator_has_results(page: str, tmp_path: Path) -> None:
    name = Path(page).parent.name
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder)
    reader = Reader(folder, variables(tmp_path))
    for block in blocks(folder / "README.md"):
        reader.do(block)
    workspace, lake = example(name).workspace(), Lake(str(folder / "lake"))
    drawn = sum(len(file.read_text("utf-8").splitlines()) for file in folder.glob("*/day.json"))
    assert sum(rows(lake.log(source.name)) for source in workspace.sources) == drawn > 0
    assert [one.name for one in workspace.operators if not rows(lake.output(one.name))] == []
    assert example(name, "arrivals").rows() == example(name, "arrivals").rows(), "the same each time"
