"""The example of fake clicks: each service equals a loop over all clicks, and the one that comes later finds what was there before it, without a change to the others."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from console_pages import Reader, blocks
from deltalake import DeltaTable
from example_workspaces import example
from page_programs import module_of
from recipes import variables

from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake

EXAMPLE = Path(__file__).parents[2] / "examples" / "fakes"
ARRIVALS = example("fakes", "arrivals")


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module_of(tmp_path / "fakes_workspace.py", (EXAMPLE / "workspace.py").read_text("utf-8"), monkeypatch)


def looped(rows: list[tuple[datetime, str, str, int]]) -> tuple[Counter[tuple[str, str, int, bool]], set[str]]:
    """Verdicts, and visitors that are blocked, by a loop in order of time."""
    last: dict[tuple[str, str], datetime] = {}
    verdicts, count = Counter[tuple[str, str, int, bool]](), Counter[str]()
    for at, visitor, ad, cents in sorted(rows):
        before = last.get((visitor, ad))
        last[visitor, ad] = at
        fake = before is not None and at - before < timedelta(seconds=10)
        verdicts[visitor, ad, cents, fake] += 1
        count[visitor] += fake
    return verdicts, {visitor for visitor, fake in count.items() if fake > 2}


def rows_of(lake: Lake, table: str) -> list[dict[str, object]]:
    return [row for row in DeltaTable(lake.output(table)).to_pyarrow_table().to_pylist() if row["_kind"] == 0]


@pytest.mark.feature("R6", "Y13")
def test_each_service_equals_a_loop_and_the_late_one_finds_what_was_before_it(
    fakes: ModuleType, embedded: Computing, tmp_path: Path
) -> None:
    clicks, lake = ARRIVALS.clicks(), Lake(str(tmp_path / "lake"))
    verdicts, blocked = looped(clicks)
    assert 0 < len(blocked) < 12
    for part, name in ((clicks[:150], "a.csv"), (clicks[150:], "b.csv")):
        ARRIVALS.write(tmp_path / "inbox", part, name)
        embedded.land(fakes.clicks, lake, workspace=tmp_path, end=name == "b.csv")
        for service in (fakes.screened, fakes.blocked):
            embedded.run_unbounded(service, lake, until_caught_up=True)
    found = Counter((row["visitor"], row["ad"], row["cents"], row["fake"]) for row in rows_of(lake, "screened"))
    assert found == verdicts
    assert sorted(str(row["visitor"]) for row in rows_of(lake, "blocked")) == sorted(blocked)

    shutil.rmtree(tmp_path / "inbox")
    before = {name: DeltaTable(lake.output(name)).version() for name in ("screened", "blocked")}
    embedded.run_unbounded(fakes.refunds, lake, until_caught_up=True)
    paid = Counter((row["visitor"], row["ad"], row["cents"]) for row in rows_of(lake, "refunds"))
    assert paid == Counter((visitor, ad, cents) for _, visitor, ad, cents in clicks if visitor in blocked)
    assert before == {name: DeltaTable(lake.output(name)).version() for name in before}


def test_the_commands_of_its_page_give_the_same_bounded(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "fakes")
    clicks = ARRIVALS.clicks()
    reader = Reader(tmp_path / "fakes", variables(tmp_path))
    for block in blocks(EXAMPLE / "README.md"):
        reader.do(block)
    _, blocked = looped(clicks)
    paid = Counter(
        (row["visitor"], row["ad"], row["cents"]) for row in rows_of(Lake(str(tmp_path / "fakes" / "lake")), "refunds")
    )
    assert paid == Counter((visitor, ad, cents) for _, visitor, ad, cents in clicks if visitor in blocked)
