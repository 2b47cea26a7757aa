"""The example of three sites: local sums, a shared inventory that is the same everywhere, and the core's analysis, in any order of landings and replications."""

from __future__ import annotations

import random
import shutil
import threading
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from console_pages import Reader, blocks
from deltalake import DeltaTable
from example_workspaces import EXAMPLES, example
from recipes import variables

from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.replicas.replication import Replication, replicate

ARRIVALS = example("inventory", "arrivals")
Spend = tuple[datetime, str, int]


def hourly(rows: list[Spend]) -> set[tuple[str, datetime, int, int]]:
    """Hourly sums by a loop."""
    sums: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for at, campaign, cents in rows:
        sums[campaign, at.replace(minute=0, second=0)].append(cents)
    return {(campaign, hour, len(cents), sum(cents)) for (campaign, hour), cents in sums.items()}


def used_up(rows: list[Spend], budget: int) -> set[tuple[str, int]]:
    """What each campaign had spent when its budget was used up, by a loop in order of time."""
    spent, ended = defaultdict[str, int](int), set[tuple[str, int]]()
    for _, campaign, cents in sorted(rows):
        before = spent[campaign]
        spent[campaign] += cents
        if before < budget <= spent[campaign]:
            ended.add((campaign, spent[campaign]))
    return ended


def results(lake: Lake, table: str, *names: str) -> set[tuple[Any, ...]]:
    """Some columns of the results."""
    rows = DeltaTable(lake.output(table)).to_pyarrow_table().to_pylist()
    return {tuple(row[name] for name in names) for row in rows if row["_kind"] == 0}


def check(workspace: Any, lakes: dict[str, Lake], spends: dict[str, list[Spend]]) -> None:
    """Every place has what a loop over its rows says."""
    everything = [row for rows in spends.values() for row in rows]
    ended = used_up(everything, workspace.BUDGET)
    assert len(ended) == 3
    for site in workspace.SITES:
        found = results(lakes[site], f"{site}_hourly", "campaign", "window_start", "shown", "cents")
        assert found == hourly(spends[site])
        assert results(lakes[site], "used_up", "campaign", "spent") == ended
    found = results(lakes["core"], "everywhere", "campaign", "window_start", "shown", "cents")
    assert found == hourly(everything)


@pytest.mark.feature("R8")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_each_site_has_its_own_sums_and_the_same_inventory_in_any_order(
    embedded: Computing, seed: int, tmp_path: Path
) -> None:
    workspace, spends, chance = example("inventory"), ARRIVALS.spends(seed), random.Random(seed)
    lakes = {name: Lake(str(tmp_path / name)) for name in (*workspace.SITES, "core")}
    sources = dict(zip(workspace.SITES, workspace.sources, strict=True))
    local = dict(zip(workspace.SITES, workspace.local, strict=True))

    def land(site: str, part: int, *, end: bool) -> None:
        ARRIVALS.write(tmp_path / "inbox" / site, spends[site][20 * part : 20 * part + 20], f"{part}.csv")
        embedded.land(sources[site], lakes[site], workspace=tmp_path, end=end)

    def share(site: str, other: str) -> None:
        replication = Replication.of(sources[site], lakes[site], lakes[other])
        replication.begin()
        replicate([replication], until_caught_up=True, stop=threading.Event())

    pairs = [(site, other) for site in workspace.SITES for other in lakes if other != site]
    for part in range(3):
        for site in chance.sample(workspace.SITES, 3):
            land(site, part, end=part == 2)
        cut_off = chance.choice(workspace.SITES) if part == 1 else None
        for site, other in chance.sample(pairs, len(pairs)):
            if site != cut_off:
                share(site, other)
        for site in workspace.SITES:
            embedded.run_unbounded(local[site], lakes[site], until_caught_up=True)
            if part:
                embedded.run_unbounded(workspace.used_up, lakes[site], until_caught_up=True)
        embedded.run_unbounded(workspace.everywhere, lakes["core"], until_caught_up=True)
    check(workspace, lakes, spends)


@pytest.mark.soak
def test_the_commands_of_its_page_give_the_same(tmp_path: Path) -> None:
    folder, spends = tmp_path / "inventory", ARRIVALS.spends()
    shutil.copytree(EXAMPLES / "inventory", folder)
    reader = Reader(folder, variables(tmp_path))
    for block in blocks(folder / "README.md"):
        for ended in (block, block):  # the second time nothing is new
            reader.do(ended)
    lakes = {name: Lake(str(folder / name)) for name in (*spends, "core")}
    ended = used_up([row for rows in spends.values() for row in rows], 2_000)
    for site in spends:
        assert results(lakes[site], "used_up", "campaign", "spent") <= ended
    assert len({frozenset(results(lakes[site], "used_up", "campaign", "spent")) for site in spends}) == 1
