"""Algorithms over graphs: degrees, page rank, connected components, shortest paths. Each writes a Delta table, and resumes after a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import DefinitionError, ExecutionError, shown
from floodmark.core.sql import spark_literal
from floodmark.engines.frames.expressions import expr
from floodmark.graphs.graph import Graph, Parts
from floodmark.graphs.iterations import CHANGE, MAX_SUPERSTEPS, Iterated, Iteration, delta_step, run
from floodmark.graphs.supersteps import Supersteps
from floodmark.lake.folder.locks import exclusive
from floodmark.spec.rows.source import check_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def degrees(session: SparkSession, graph: Graph, name: str, *, anew: bool = False) -> Iterated:
    """Columns ``id``, ``out_degree``, ``in_degree``, ``degree``; an edge from a vertex to itself counts twice in ``degree``."""

    def iteration(parts: Parts) -> Iteration:
        counted = parts.degrees().withColumn(CHANGE, expr(parts.vertices, "CAST(0 AS double)"))
        return Iteration(initial=lambda _: counted, step=lambda state: state)

    return _computed(session, graph, name, {"algorithm": "degrees"}, iteration, anew=anew)


def page_rank(
    session: SparkSession,
    graph: Graph,
    name: str,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_supersteps: int = MAX_SUPERSTEPS,
    anew: bool = False,
) -> Iterated:
    """Columns ``id``, ``rank``; ranks add up to 1. A bulk iteration. Source: NetworkX ``pagerank``, whose definition this is.

    Args:
        session: of Spark or of Sail.
        graph: whose weights say how a rank is divided among the edges of a vertex.
        name: of the result.
        damping: share of a rank that goes along edges; the rank of a vertex without edges goes to all.
        tolerance: ends once ranks have changed by at most that on average.
        max_supersteps: after which it fails (EXECUTION-130).
        anew: begin at the first superstep.

    Raises:
        ExecutionError: EXECUTION-132, a negative or infinite weight, or one that is no number.
    """
    if not 0 <= damping < 1:
        fix = "Some 0.85 as a rule."
        raise DefinitionError(
            f"page rank '{name}'", "a damping of 0 or more, below 1", shown(damping), fix, code="DEFINITION-360"
        )

    def iteration(parts: Parts) -> Iteration:
        _check_weights(graph, parts, f"page rank '{name}'")
        count = max(parts.vertices.count(), 1)
        edges = parts.edges
        sums = edges.groupBy("src").agg(expr(edges, "sum(weight) AS total")).filter("total > 0")
        shares = edges.join(sums, on="src").selectExpr("src", "dst", "weight / total AS share")

        def initial(_: SparkSession) -> DataFrame:
            state = parts.vertices.join(sums.selectExpr("src AS id", "total"), on="id", how="left")
            return state.selectExpr(
                "id", f"CAST(1 AS double) / {count} AS rank", "total IS NULL AS _ends", f"CAST(1 AS double) AS {CHANGE}"
            )

        def step(state: DataFrame) -> DataFrame:
            sent = shares.join(state.selectExpr("id AS src", "rank"), on="src")
            received = (
                sent.groupBy("dst").agg(expr(sent, "sum(rank * share) AS received")).selectExpr("dst AS id", "received")
            )
            ends = state.filter("_ends")
            lost = ends.agg(expr(ends, "coalesce(sum(rank), CAST(0 AS double)) AS lost"))
            joined = state.join(received, on="id", how="left").crossJoin(lost)
            into = f"coalesce(received, CAST(0 AS double)) + lost / {count}"
            rank = f"CAST({1 - damping!r} AS double) / {count} + CAST({damping!r} AS double) * ({into})"
            return joined.selectExpr("id", "rank AS old", f"{rank} AS rank", "_ends").selectExpr(
                "id", "rank", "_ends", f"abs(rank - old) AS {CHANGE}"
            )

        return Iteration(initial=initial, step=step, tolerance=tolerance * count, max_supersteps=max_supersteps)

    definition = {"algorithm": "page rank", "damping": damping, "tolerance": tolerance}
    return _computed(session, graph, name, definition, iteration, anew=anew)


def connected_components(
    session: SparkSession, graph: Graph, name: str, *, max_supersteps: int = MAX_SUPERSTEPS, anew: bool = False
) -> Iterated:
    """Columns ``id``, ``component``: the least vertex of those that edges join, in whichever direction. A delta iteration.

    A vertex takes the least component of its neighbours, and that of the vertex its own component is named after: chains take some
    twice the logarithm of their length in supersteps.
    """

    def iteration(parts: Parts) -> Iteration:
        both = parts.edges.selectExpr("src", "dst").union(parts.edges.selectExpr("dst AS src", "src AS dst"))

        def initial(_: SparkSession) -> DataFrame:
            return parts.vertices.selectExpr("id", "id AS component", f"CAST(1 AS double) AS {CHANGE}")

        def candidates(state: DataFrame, changed: DataFrame) -> DataFrame:
            labels = changed.selectExpr("id AS src", "component AS label")
            near = both.join(labels, on="src").selectExpr("dst AS id", "label")
            jumps = state.selectExpr("id", "component AS src").join(labels, on="src").selectExpr("id", "label")
            hooks = changed.selectExpr("id AS src", "component").join(both, on="src").selectExpr("dst", "component")
            # the vertex a neighbour's component is named after is offered this component, too: both parts become one
            named = hooks.join(state.selectExpr("id AS dst", "component AS id"), on="dst").selectExpr(
                "id", "component AS label"
            )
            offers = near.union(jumps).union(named)
            return offers.groupBy("id").agg(expr(state, "min(label) AS component"))

        step = delta_step(candidates, key="id", better="new.component < old.component")
        return Iteration(initial=initial, step=step, max_supersteps=max_supersteps)

    return _computed(session, graph, name, {"algorithm": "connected components"}, iteration, anew=anew)


def shortest_paths(
    session: SparkSession,
    graph: Graph,
    name: str,
    *,
    sources: Sequence[int | str],
    max_supersteps: int = MAX_SUPERSTEPS,
    anew: bool = False,
) -> Iterated:
    """Columns ``id``, ``distance``: the least sum of weights from the nearest source; null where no path leads. A delta iteration.

    Args:
        session: of Spark or of Sail.
        graph: with weights of 0 or more.
        name: of the result.
        sources: vertices that paths begin at.
        max_supersteps: after which it fails (EXECUTION-130): more than edges on the longest of the paths.
        anew: begin at the first superstep.

    Raises:
        DefinitionError: DEFINITION-365 no source, 366 one that is no vertex.
        ExecutionError: EXECUTION-132, a negative or infinite weight, or one that is no number.
    """
    where = f"shortest paths '{name}'"
    named = [source for source in sources if isinstance(source, (int, str)) and not isinstance(source, bool)]
    if isinstance(sources, str) or not named or len(named) < len(sources):
        fix = 'Name vertices, whole numbers or texts: sources=[1], sources=["home"].'
        raise DefinitionError(where, "at least one source", shown(sources), fix, code="DEFINITION-365")

    def iteration(parts: Parts) -> Iteration:
        edges = parts.edges
        _check_weights(graph, parts, where)
        begins = f"id IN ({', '.join(map(_literal, sources))})"
        _check_sources(parts, sources, where)

        def initial(_: SparkSession) -> DataFrame:
            distance = f"CASE WHEN {begins} THEN CAST(0 AS double) END AS distance"
            return parts.vertices.selectExpr(
                "id", distance, f"CASE WHEN {begins} THEN CAST(1 AS double) ELSE CAST(0 AS double) END AS {CHANGE}"
            )

        def candidates(_: DataFrame, changed: DataFrame) -> DataFrame:
            reached = edges.join(changed.selectExpr("id AS src", "distance"), on="src")
            paths = reached.groupBy("dst").agg(expr(edges, "min(distance + weight) AS distance"))
            return paths.selectExpr("dst AS id", "distance")

        step = delta_step(candidates, key="id", better="old.distance IS NULL OR new.distance < old.distance")
        return Iteration(initial=initial, step=step, max_supersteps=max_supersteps)

    definition = {"algorithm": "shortest paths", "sources": [repr(source) for source in sources]}
    return _computed(session, graph, name, definition, iteration, anew=anew)


def _check_weights(graph: Graph, parts: Parts, where: str) -> None:
    """EXECUTION-132: weights that are negative, infinite or no numbers; paths may then have no least sum, and ranks no shares."""
    if graph.weight is None:
        return
    fits = "{0} >= 0 AND {0} < 1e308 AND NOT isnan({0})"  # Sail's min makes the greatest number of an infinite one
    wrong = parts.edges.selectExpr(f"CASE WHEN {fits.format('weight')} THEN 0 ELSE 1 END AS wrong")
    ((number,),) = [tuple(row) for row in wrong.agg(expr(wrong, "sum(wrong) AS n")).collect()]
    if number:
        fix = f'Leave such edges out: graph.subgraph(edges="{fits.format(f"`{graph.weight}`")}").'
        expected = "weights of 0 or more, below 1e308"
        raise ExecutionError(where, expected, f"{number:,} edges without", fix, code="EXECUTION-132")


def _check_sources(parts: Parts, sources: Sequence[int | str], where: str) -> None:
    """DEFINITION-366: a source that is no vertex, from which no path leads anywhere."""
    texts = dict(parts.vertices.dtypes)["id"] == "string"
    there: set[Any] = set()
    if all(isinstance(source, str) == texts for source in sources):
        some = parts.vertices.filter(f"id IN ({', '.join(map(_literal, sources))})")
        there = {row["id"] for row in some.collect()}
    lacking = [source for source in sources if source not in there]
    if lacking:
        got = ", ".join(map(shown, lacking[:3]))
        fix = "Name vertices as the table of edges has them; one without an edge needs a table of vertices: Graph(..., vertices=)."
        raise DefinitionError(where, "sources that are vertices", got, fix, code="DEFINITION-366")


def _literal(vertex: int | str) -> str:
    return spark_literal(vertex) if isinstance(vertex, str) else str(int(vertex))


def _computed(
    session: SparkSession,
    graph: Graph,
    name: str,
    definition: Mapping[str, Any],
    made: Callable[[Parts], Iteration],
    *,
    anew: bool,
) -> Iterated:
    """Run an algorithm over the graph as of the version that the first run has read."""
    check_name(name, f"graph '{name}'")
    with exclusive(graph.lake, "graphs", name, "run"):
        supersteps = Supersteps(graph.lake, name)
        supersteps.begin({**definition, "graph": graph.form()}, anew=anew)
        return run(session, supersteps, made(graph.read(session, supersteps)))
