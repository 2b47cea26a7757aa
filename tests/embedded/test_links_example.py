"""The example of links: a service is asked about each link once, and ranks are NetworkX's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from console_pages import ran

LINKS = Path(__file__).parents[2] / "examples" / "links"


@pytest.fixture
def rank() -> Iterator[Any]:
    """Its module, with its folder where Python looks for modules as long as the test runs."""
    sys.path.insert(0, str(LINKS))
    try:
        import rank

        yield rank
    finally:
        sys.path.remove(str(LINKS))
        for name in ("rank", "workspace"):
            sys.modules.pop(name, None)


def test_the_links_are_asked_about_once_and_ranked(
    rank: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = rank.main(tmp_path)
    ran("python rank.py")
    whole = nx.DiGraph([(f"/{n}", f"/{n - 1}" if n else "/shop") for n in range(200)])
    whole.add_edges_from((f"/{n}", "/shop") for n in range(0, 200, 3))
    assert ranks == pytest.approx(nx.pagerank(whole), abs=1e-9)
    assert max(ranks, key=lambda page: ranks[page]) == "/shop"
    first, again, _ = capsys.readouterr().out.splitlines()
    assert first.partition(",")[0].replace("asked", "asked again") == again.partition(",")[0]
