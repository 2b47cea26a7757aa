"""Components of a graph that grows, as of each edge: NetworkX says which vertices are joined."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.graphs.growing import growing_components
from floodmark.spec.values.schema import ROW
from floodmark.testing import IN_MEMORY, RUNS, Case, Run
from floodmark.testing.log import Log

EMBEDDED = [run for run in RUNS if run.engine == "embedded"]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Link(fm.Contract):
    """A link between two pages of a site."""

    at: fm.EventTime
    site: str
    page: str | None
    leads_to: str | None
    number: int
    other: int


@fm.operator
def sites(links: fm.Stream[Link]) -> fm.Stream:
    """Components of each site."""
    return growing_components(links.key_by("site"), "page", "leads_to", on_error="quarantine")


@fm.operator
def whole(links: fm.Stream[Link]) -> fm.Stream:
    """Components of all links, by numbers."""
    return growing_components(links, "number", "other")


def link(n: int, a: int, b: int, site: str = "x") -> dict[str, Any]:
    """A link; its pages are named by the numbers."""
    at = NOON + timedelta(minutes=n)
    return {"at": at, "site": site, "page": f"p{a}", "leads_to": f"p{b}", "number": a, "other": b}


LINKS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from("xy")), min_size=1, max_size=40)


def computed(operator: fm.Operator, log: Log, cuts: list[int]) -> list[list[dict[str, Any]]]:
    """The rows of each micro-batch, with a restart behind each."""
    state, batches = None, []
    for start, stop in itertools.pairwise([0, *cuts, len(log.entries)]):
        run = MemoryRun(operator, state)
        rows = run.batch({"links": log.table(start, stop)})[""].to_pylist()
        batches.append([row for row in rows if row["_kind"] == ROW])
        state = run.savepoint()
    return batches


def parts(named: dict[Any, Any]) -> set[frozenset[Any]]:
    """(vertex -> component) -> the sets of vertices; a component is named after one of its own."""
    parts: dict[Any, set[Any]] = {}
    for vertex, component in named.items():
        parts.setdefault(component, set()).add(vertex)
        assert named[component] == component
    return {frozenset(part) for part in parts.values()}


@pytest.mark.feature("G2")
@given(LINKS, st.lists(st.integers(0, 40), max_size=3))
def test_components_are_those_of_networkx_however_the_edges_are_cut(
    drawn: list[tuple[int, int, str]], cuts: list[int]
) -> None:
    log = Log(whole.inputs[0].schema)
    log.rows([link(n, a, b, site) for n, (a, b, site) in enumerate(drawn)], "at", 0)
    cuts = sorted(min(cut, len(drawn)) for cut in cuts)
    graph, named, renamed = nx.Graph(), dict[int, int](), 0
    for stop, rows in zip([*cuts, len(drawn)], computed(whole, log, cuts), strict=True):
        graph.add_edges_from((a, b) for a, b, _ in drawn[:stop])
        named |= {row["vertex"]: row["component"] for row in rows}
        renamed += len(rows)
        assert parts(named) == {frozenset(part) for part in nx.connected_components(graph)}
    assert renamed <= len(named) * (len(named).bit_length() + 1)
    (at_once,) = computed(whole, log, [])
    assert {row["vertex"]: row["component"] for row in at_once} == named


@pytest.mark.feature("G2")
def test_a_graph_per_key_and_edges_to_nowhere_are_set_aside() -> None:
    rows = [link(0, 1, 2), link(1, 3, 3), link(2, 1, 2, "y"), link(3, 2, 3), link(4, 4, 5) | {"leads_to": None}]
    case = Case(sites).feed("links", rows).end()
    last = {(row["site"], row["vertex"]): row["component"] for row in case.results()}
    assert last.keys() == {("x", "p1"), ("x", "p2"), ("x", "p3"), ("y", "p1"), ("y", "p2")}
    (aside,) = case.results("quarantine")
    assert "an end that is null, page='p4', leads_to=None" in aside["reason"]


@pytest.mark.feature("G2")
@pytest.mark.parametrize(("source", "target"), [("page", "number"), ("page", "none"), ("at", "at")])
def test_ends_of_other_kinds_are_refused(source: str, target: str) -> None:
    def body(links: fm.Stream[Link]) -> fm.Stream:
        return growing_components(links, source, target)

    with pytest.raises(DefinitionError, match=f"DEFINITION-369.*{source}.*Columns"):
        fm.operator(body)


@pytest.mark.feature("G2")
@pytest.mark.parametrize("run", EMBEDDED, ids=str)
def test_a_stream_and_a_bounded_run_join_the_same(run: Run) -> None:
    draw = random.Random(4)
    rows = [link(n, draw.randrange(30), draw.randrange(30)) for n in range(40)]
    found = run(whole, {"links": rows})[""]
    assert found == IN_MEMORY[0](whole, {"links": rows})[""]
