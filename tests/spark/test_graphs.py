"""Graphs on Spark: the results are those of the embedded engine, whose code they share, and so NetworkX's."""

from __future__ import annotations

import networkx as nx
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from graphs_process import LINKS, linked

from floodmark.graphs.algorithms import connected_components, page_rank
from floodmark.lake.folder.paths import Lake

EDGES = [(1, 2, 1.0), (2, 3, 2.0), (3, 1, 1.0), (3, 4, 1.0), (5, 6, 1.0), (7, 7, 1.0), (6, 8, 3.0)]


@pytest.fixture
def lake(tmp_path) -> Lake:
    """A lake with the edges in a log."""
    lake = Lake(str(tmp_path))
    columns = dict(zip(("a", "b", "w"), map(list, zip(*EDGES, strict=True)), strict=True))
    write_deltalake(lake.log(LINKS), pa.table(columns))
    return lake


def whole() -> nx.DiGraph:
    """The same graph for NetworkX."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(EDGES)
    return graph


@pytest.mark.soak
@pytest.mark.feature("G2", "I2")
def test_components_on_spark_are_those_of_networkx(spark, lake):
    joined = connected_components(spark, linked(lake), "parts")
    parts = {row["id"]: row["component"] for row in DeltaTable(joined.result).to_pyarrow_table().to_pylist()}
    assert parts == {vertex: min(part) for part in nx.weakly_connected_components(whole()) for vertex in part}


@pytest.mark.soak
@pytest.mark.feature("G2", "I1")
def test_page_rank_on_spark_is_that_of_networkx(spark, lake):
    ranked = page_rank(spark, linked(lake), "ranks", tolerance=1e-2)
    ranks = {row["id"]: row["rank"] for row in DeltaTable(ranked.result).to_pyarrow_table().to_pylist()}
    assert ranks == pytest.approx(nx.pagerank(whole(), tol=1e-2), abs=1e-12)
