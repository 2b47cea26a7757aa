"""Graphs and iterations: results are NetworkX's, a killed run resumes behind its last superstep, and what cannot end or connect is named."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import replace

import forked
import graphs_process
import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from graphs_process import LINKS, linked, ranked

from floodmark.core import crash
from floodmark.core.errors import DefinitionError, FloodmarkError
from floodmark.engines.embedded.sail.session import Sail, on_sail, shared
from floodmark.engines.frames.expressions import expr
from floodmark.graphs import generators
from floodmark.graphs.algorithms import connected_components, degrees, page_rank, shortest_paths
from floodmark.graphs.graph import Graph
from floodmark.graphs.iterations import Iteration, delta_step, iterate
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import folders
from floodmark.spec.values.schema import RETRACTION, ROW


def drawn(seed: int, *, loops: bool = True) -> list[tuple[int, int, float]]:
    """Edges by chance with a chain beside them, some twice, some from a vertex to itself."""
    rng = random.Random(seed)
    edges = [(rng.randrange(60), rng.randrange(60), float(rng.randrange(1, 9))) for _ in range(90)]
    edges += [(n, n + 1, 1.0) for n in range(100, 140)]
    return [edge for edge in edges if loops or edge[0] != edge[1]]


def graph_of(lake: Lake, edges: list[tuple[int, int, float]], **settings) -> Graph:
    """A graph in a log of a lake."""
    columns = zip(*edges, strict=True)
    write_deltalake(lake.log(LINKS), pa.table(dict(zip(("a", "b", "w"), map(list, columns), strict=True))))
    return linked(lake, **settings)


def oracle(edges: list[tuple[int, int, float]]) -> nx.DiGraph:
    """The same graph for NetworkX; the least weight of several."""
    graph = nx.DiGraph()
    for source, target, weight in sorted(edges, key=lambda edge: -edge[2]):
        graph.add_edge(source, target, weight=weight)
    return graph


def parts_of(graph: nx.DiGraph) -> dict[int, int]:
    """Vertex -> the least vertex of those that are joined with it."""
    joined = ((min(part), part) for part in nx.weakly_connected_components(graph))
    return {vertex: least for least, part in joined for vertex in part}


def computed(work):
    """What a function of a session computes on Sail, as rows by vertex."""
    done = on_sail(shared(), lambda connection: work(connection.spark))
    return done, {row.pop("id"): row for row in DeltaTable(done.result).to_pyarrow_table().to_pylist()}


@pytest.fixture
def lake(tmp_path) -> Lake:
    """An empty lake."""
    return Lake(str(tmp_path))


@pytest.mark.parametrize(
    "seed", [pytest.param(1, marks=pytest.mark.feature("G2", "I1", "I3")), pytest.param(2, marks=pytest.mark.soak)]
)
def test_page_rank_is_that_of_networkx(lake, seed):
    edges = drawn(seed)
    graph, expected = graph_of(lake, edges), nx.pagerank(oracle(edges))
    done, rows = computed(lambda session: page_rank(session, graph, "ranks"))
    assert {vertex: row["rank"] for vertex, row in rows.items()} == pytest.approx(expected, abs=1e-12)
    assert 5 < done.supersteps < 60
    assert folders(f"{lake.root}/graphs/ranks") == ["result"], "supersteps are removed once the result is there"


@pytest.mark.parametrize(
    "seed", [pytest.param(1, marks=pytest.mark.feature("G2", "I2")), pytest.param(2, marks=pytest.mark.soak)]
)
def test_components_and_shortest_paths_are_those_of_networkx(lake, seed):
    edges = drawn(seed)
    graph, whole = graph_of(lake, edges), oracle(edges)
    done, rows = computed(lambda session: connected_components(session, graph, "parts"))
    parts = parts_of(whole)
    assert {vertex: row["component"] for vertex, row in rows.items()} == parts
    assert done.supersteps < 20, "a chain of 40 takes fewer supersteps than it has edges"
    sources = {edges[0][0], 100}
    _, rows = computed(lambda session: shortest_paths(session, graph, "paths", sources=sorted(sources)))
    distances = nx.multi_source_dijkstra_path_length(whole, sources)
    assert {vertex: row["distance"] for vertex, row in rows.items()} == {v: distances.get(v) for v in whole}


@pytest.mark.feature("G1")
@pytest.mark.parametrize("directed", [True, False])
def test_degrees_also_of_a_subgraph_are_those_of_networkx(lake, directed):
    edges = drawn(3)
    graph, whole = graph_of(lake, edges, directed=directed), oracle(edges)
    whole = whole if directed else whole.to_undirected()
    _, rows = computed(lambda session: degrees(session, graph, "degrees"))
    assert {vertex: row["degree"] for vertex, row in rows.items()} == dict(whole.degree)
    part = graph.subgraph(vertices="id < 40", edges="w > 2")
    _, rows = computed(lambda session: degrees(session, part, "degrees"))
    # NetworkX keeps the least weight first and then looks at it; here each edge is looked at
    some = nx.DiGraph([(a, b) for a, b, w in edges if w > 2])
    some = some if directed else some.to_undirected()
    assert {vertex: row["degree"] for vertex, row in rows.items()} == dict(
        some.subgraph([v for v in some if v < 40]).degree
    )
    if directed:
        assert {vertex: row["in_degree"] for vertex, row in rows.items()} == dict(
            some.subgraph([v for v in some if v < 40]).in_degree
        )


@pytest.mark.feature("G1")
def test_a_retracted_edge_is_none_and_a_run_reads_the_table_as_it_was_at_its_first_superstep(lake):
    rows = [("x", "y", ROW), ("y", "z", ROW), ("x", "y", RETRACTION), ("z", "w", ROW)]
    columns = {
        "a": [r[0] for r in rows],
        "b": [r[1] for r in rows],
        "_kind": pa.array([r[2] for r in rows], pa.int32()),
    }
    write_deltalake(lake.output("edges"), pa.table(columns))
    graph = Graph(lake=lake, edges="edges", source="a", target="b")
    _, found = computed(lambda session: degrees(session, graph, "degrees"))
    assert {vertex: row["degree"] for vertex, row in found.items()} == {"y": 1, "z": 2, "w": 1}


@pytest.mark.feature("G3")
def test_generated_graphs_have_the_degrees_that_are_known_of_them(lake):
    made = {
        "complete": (lambda s: generators.complete(s, 7), {(6, 6): 7}),
        "cycle": (lambda s: generators.cycle(s, 9), {(1, 1): 9}),
        "path": (lambda s: generators.path(s, 5), {(1, 0): 1, (1, 1): 3, (0, 1): 1}),
        "star": (lambda s: generators.star(s, 5), {(5, 0): 1, (0, 1): 5}),
        "grid": (
            lambda s: generators.grid(s, 3, 4),
            {(2, 0): 1, (2, 1): 3, (1, 1): 2, (2, 2): 2, (1, 2): 3, (0, 2): 1},
        ),
        "circulant": (lambda s: generators.circulant(s, 100, 3), {(3, 3): 100}),
    }
    for name, (make, known) in made.items():
        path = f"{lake.root}/made/{name}"

        def degrees_of(session, make=make, path=path):
            make(session).write.format("delta").save(path)
            return degrees(session, Graph(lake=lake, edges=path, source="src", target="dst"), "degrees")

        _, rows = computed(degrees_of)
        counts = Counter((row["out_degree"], row["in_degree"]) for row in rows.values())
        assert counts == known, name


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("superstep.before_done:4", marks=pytest.mark.feature("I1", "I3")),
        *(
            pytest.param(point, marks=pytest.mark.soak)
            for point in ("superstep.after_done:4", "superstep.after_result", "superstep.before_done:1")
        ),
    ],
)
def test_a_killed_run_resumes_behind_its_last_superstep(lake, point):
    edges = drawn(4)
    graph_of(lake, edges)
    command = [sys.executable, graphs_process.__file__, lake.root]
    killed = forked.run(command, env={**os.environ, crash.VARIABLE: point})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    write_deltalake(lake.log(LINKS), pa.table({"a": [0], "b": [139], "w": [1.0]}), mode="append")  # lands meanwhile
    done, rows = computed(lambda session: page_rank(session, linked(lake), "ranks"))
    assert {vertex: row["rank"] for vertex, row in rows.items()} == pytest.approx(nx.pagerank(oracle(edges)), abs=1e-9)
    assert done.resumed == {
        "superstep.before_done:4": 2,
        "superstep.after_done:4": 3,
        "superstep.before_done:1": None,
    }.get(point, done.supersteps)


@pytest.mark.feature("I1", "I3")
@pytest.mark.parametrize(
    ("point", "resumed"),
    [("superstep.before_done:3", 1), pytest.param("superstep.after_result", 4, marks=pytest.mark.soak)],
)
def test_a_killed_run_in_a_bucket_resumes_behind_its_last_superstep(s3, s3_proxy, point, resumed):
    lake, edges = Lake(f"{s3.bucket()}/lake"), drawn(4)[:40]
    graph_of(lake, edges)
    command = [sys.executable, graphs_process.__file__, lake.root, "1e-3"]
    killed = forked.run(command, env={**os.environ, crash.VARIABLE: point})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    write_deltalake(lake.log(LINKS), pa.table({"a": [0], "b": [139], "w": [1.0]}), mode="append")  # lands meanwhile
    sail = Sail(memory=300)
    done = on_sail(sail, lambda connection: ranked(connection.spark, lake, 1e-3))
    sail.close()
    rows = DeltaTable(done.result).to_pyarrow_table().to_pylist()
    expected = nx.pagerank(oracle(edges), tol=1e-3)
    assert {row["id"]: row["rank"] for row in rows} == pytest.approx(expected, abs=1e-12)
    assert done.resumed == resumed
    assert folders(f"{lake.root}/graphs/ranks") == ["result"]


def test_an_edge_to_nowhere_is_refused_or_dropped(lake):
    graph = graph_of(lake, [(1, 2, 1.0), (2, 9, 1.0), (7, 1, 1.0)], vertices="people", vertex="person")
    write_deltalake(lake.log("people"), pa.table({"person": [1, 2, 3]}))
    with pytest.raises(FloodmarkError, match=r"EXECUTION-131 graph of 'links'.*2 edges to nowhere, such as 2 -> 9"):
        computed(lambda session: degrees(session, graph, "degrees"))
    dropping = linked(lake, vertices="people", vertex="person", nowhere="drop")
    _, rows = computed(lambda session: degrees(session, dropping, "degrees", anew=True))
    assert {vertex: row["degree"] for vertex, row in rows.items()} == {1: 1, 2: 1, 3: 0}


def test_what_does_not_converge_says_its_numbers_and_resumes_with_more_supersteps(lake):
    graph = graph_of(lake, [(n, n + 1, 1.0) for n in range(12)])
    with pytest.raises(
        FloodmarkError, match=r"EXECUTION-130.*a change of 1 over 13 rows in superstep 5.*max_supersteps=10"
    ):
        computed(lambda session: shortest_paths(session, graph, "paths", sources=[0], max_supersteps=5))
    with pytest.raises(FloodmarkError, match="LIFECYCLE-250"):
        computed(lambda session: shortest_paths(session, graph, "paths", sources=[3]))
    done, rows = computed(lambda session: shortest_paths(session, graph, "paths", sources=[0], max_supersteps=20))
    assert (done.resumed, rows[12]["distance"]) == (5, 12.0)


@pytest.mark.parametrize(
    ("compute", "code"),
    [
        (lambda s, g: page_rank(s, g, "x", damping=1.0), "DEFINITION-360"),
        (lambda s, g: page_rank(s, replace(g, weight=None), "x", max_supersteps=0), "DEFINITION-360"),
        (lambda s, g: shortest_paths(s, g, "x", sources=[]), "DEFINITION-365"),
        (lambda s, g: shortest_paths(s, g, "x", sources="12"), "DEFINITION-365.*got '12'"),
        (lambda s, g: shortest_paths(s, g, "x", sources=[1.5]), "DEFINITION-365"),
        (lambda s, g: shortest_paths(s, replace(g, weight=None), "x", sources=[1, 9]), "DEFINITION-366.*got 9"),
        (lambda s, g: shortest_paths(s, replace(g, weight=None), "x", sources=["a"]), "DEFINITION-366.*got 'a'"),
        (lambda s, g: degrees(s, replace(g, source="none"), "x"), "DEFINITION-362.*got none. Columns: a, b, w"),
        (lambda s, g: degrees(s, replace(g, source="w"), "x"), "DEFINITION-363.*w double, b bigint"),
        (lambda s, g: degrees(s, g.subgraph(edges="none > 1"), "x"), "DEFINITION-364.*none > 1"),
        (lambda s, g: degrees(s, g.subgraph(vertices="id + 1"), "x"), "DEFINITION-367.*bigint"),
        (lambda s, g: shortest_paths(s, g, "x", sources=[1]), "EXECUTION-132.*2 edges without"),
        (
            lambda s, g: page_rank(s, g, "x"),
            r"EXECUTION-132 page rank 'x'.*`w` >= 0 AND `w` < 1e308 AND NOT isnan\(`w`\)",
        ),
        (lambda s, g: degrees(s, g, "No Table"), "DEFINITION-016"),
        (lambda s, g: degrees(s, Graph(lake=g.lake, edges="gone", source="a", target="b"), "x"), "LIFECYCLE-251"),
        (lambda s, g: generators.circulant(s, 10, 3), "DEFINITION-361"),
    ],
)
def test_wrong_use_is_refused(lake, compute, code):
    graph = graph_of(lake, [(1, 2, -1.0), (2, 3, float("nan"))])
    with pytest.raises((FloodmarkError, DefinitionError), match=code):
        on_sail(shared(), lambda connection: compute(connection.spark, graph))


def test_infinite_weights_are_refused(lake):
    graph = graph_of(lake, [(1, 2, 1.0), (1, 3, float("inf"))])
    for compute in (lambda s, g: page_rank(s, g, "ranks"), lambda s, g: shortest_paths(s, g, "paths", sources=[1])):
        with pytest.raises(FloodmarkError, match="EXECUTION-132.*below 1e308, got 1 edges without.*`w` < 1e308"):
            on_sail(shared(), lambda connection: compute(connection.spark, graph))  # noqa: B023 - called at once
    finite = graph.subgraph(edges="`w` >= 0 AND `w` < 1e308 AND NOT isnan(`w`)")
    _, rows = computed(lambda session: shortest_paths(session, finite, "paths", sources=[1], anew=True))
    assert {vertex: row["distance"] for vertex, row in rows.items()} == {1: 0.0, 2: 1.0}


@pytest.mark.feature("I1", "I2")
def test_iterations_of_ones_own_end_when_they_have_converged_or_nothing_changes(lake):
    """Square roots by Newton's method; and the least number that a chain of jumps leads to."""

    def roots(session):
        initial = session.range(1, 20).selectExpr(
            "id AS n", "CAST(id AS double) AS root", "CAST(1 AS double) AS _change"
        )

        def step(state):
            better = state.selectExpr("n", "root AS old", "(root + n / root) / 2 AS root")
            return better.selectExpr("n", "root", "abs(root - old) AS _change")

        return iterate(session, lake, "roots", Iteration(initial=lambda _: initial, step=step, tolerance=1e-9))

    def least(session):
        numbers = session.range(64).selectExpr("id", "id AS least", "CAST(1 AS double) AS _change")

        def candidates(state, changed):
            jumps = changed.selectExpr("(id * 3 + 1) % 64 AS id", "least")
            return jumps.groupBy("id").agg(expr(state, "min(least) AS least"))

        step = delta_step(candidates, key="id", better="new.least < old.least")
        return iterate(session, lake, "least", Iteration(initial=lambda _: numbers, step=step))

    done = on_sail(shared(), lambda connection: roots(connection.spark))
    values = DeltaTable(done.result).to_pyarrow_table().to_pylist()
    assert {row["n"]: row["root"] for row in values} == pytest.approx({n: n**0.5 for n in range(1, 20)})
    _, rows = computed(least)
    jumping = nx.DiGraph([(n, (n * 3 + 1) % 64) for n in range(64)])
    assert {n: row["least"] for n, row in rows.items()} == {n: min({n} | nx.ancestors(jumping, n)) for n in range(64)}


def changing(change, *columns):
    """A step that says another change."""
    return lambda state: state.selectExpr(*(columns or ("id", "v")), f"CAST({change} AS double) AS _change")


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"step": changing("'NaN'")}, "EXECUTION-134.*3 of 3 rows without"),
        ({"step": changing("NULL")}, "EXECUTION-134"),
        ({"step": changing("id - 1")}, "EXECUTION-134.*1 of 3 rows without"),
        ({"step": lambda state: state.selectExpr("id", "v")}, "DEFINITION-368.*got id, v"),
        ({"step": changing("0", "id AS other", "v")}, "DEFINITION-368.*got other, v, _change"),
        ({"step": lambda state: None}, "DEFINITION-368.*got null"),
        ({"step": changing("0"), "initial": lambda session: session.range(3)}, "DEFINITION-368.*got id"),
        ({"step": changing("0"), "tolerance": None}, "DEFINITION-360"),
        ({"step": changing("0"), "max_supersteps": "3"}, "DEFINITION-360"),
        (
            {"step": delta_step(lambda _, c: c.select("id", "v").union(c.select("id", "v")), key="id", better="true")},
            "EXECUTION-135.*6 rows of 3",
        ),
    ],
)
def test_a_step_that_cannot_end_well_is_refused(lake, settings, code):
    about = {"initial": lambda session: session.range(3).selectExpr("id", "id AS v", "CAST(1 AS double) AS _change")}
    with pytest.raises(FloodmarkError, match=code):
        on_sail(shared(), lambda connection: iterate(connection.spark, lake, "x", Iteration(**(about | settings))))


@pytest.mark.soak
@pytest.mark.feature("G2")
def test_a_million_edges_are_ranked_and_joined_as_networkx_does(lake):
    rng, vertices, edges = np.random.default_rng(7), 200_000, 1_000_000
    begins, ends = rng.integers(0, vertices, edges), (rng.pareto(1.2, edges) * 50).astype(np.int64) % vertices
    write_deltalake(lake.log(LINKS), pa.table({"a": begins, "b": ends, "w": np.ones(edges)}))
    whole = nx.DiGraph()
    whole.add_edges_from(zip(begins.tolist(), ends.tolist(), strict=True))
    for name, algorithm in (("page_rank", page_rank), ("components", connected_components)):
        done, rows = computed(lambda session, of=algorithm, name=name: of(session, linked(lake), name))
        began = time.monotonic()
        if algorithm is page_rank:
            assert {vertex: row["rank"] for vertex, row in rows.items()} == pytest.approx(nx.pagerank(whole), abs=1e-12)
        else:
            parts = parts_of(whole)
            assert {vertex: row["component"] for vertex, row in rows.items()} == parts
        print(f"{name}: {done.supersteps} supersteps, {done.seconds:.1f} s; NetworkX {time.monotonic() - began:.1f} s")  # noqa: T201 - for people
