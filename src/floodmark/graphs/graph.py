"""Graphs: tables of a lake read as edges and vertices, as of one version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from deltalake import DeltaTable

from floodmark.core.errors import DefinitionError, ExecutionError, LifecycleError, described
from floodmark.engines.frames.expressions import expr
from floodmark.graphs.supersteps import Supersteps
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import RETRACTION, ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KINDS = dict.fromkeys(("tinyint", "smallint", "int", "bigint", "decimal"), "number") | {
    name: name for name in ("string", "binary", "boolean", "date", "timestamp")
}
"""Types that name vertices -> what they can be compared with."""
Nowhere = Literal["refuse", "drop"]
"""What happens to an edge with an end that is no vertex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph in the tables of a lake. Reads nothing until an algorithm runs.

    Args:
        lake: of the tables.
        edges: an output, a log or a path of a Delta table: a row per edge. Rows that are retracted are no edges; of several edges between the same
            ends one counts, with the least weight.
        source: column of the vertex that an edge begins at.
        target: column of the vertex that an edge ends at.
        weight: column of its weight; None for 1 each.
        vertices: a table of vertices; None for all ends of edges.
        vertex: column of ``vertices`` that names a vertex.
        directed: False: an edge leads both ways.
        nowhere: what happens to an edge with an end that is null or not in ``vertices``: refused (EXECUTION-131), or dropped.
        which_edges: Spark SQL over the columns of ``edges``: the edges that count; None for all.
        which_vertices: Spark SQL over the columns of ``vertices`` (or ``id``): the vertices that count, with the edges between them; None for all.
    """

    lake: Lake
    edges: str
    source: str
    target: str
    weight: str | None = None
    vertices: str | None = None
    vertex: str = "id"
    directed: bool = True
    nowhere: Nowhere = "refuse"
    which_edges: str | None = None
    which_vertices: str | None = None

    def subgraph(self, *, vertices: str | None = None, edges: str | None = None) -> Graph:
        """The graph of the vertices and edges that meet conditions, and of the edges between such vertices.

        Args:
            vertices: as ``which_vertices``.
            edges: as ``which_edges``.
        """
        return replace(
            self,
            which_vertices=_both(self.which_vertices, vertices),
            which_edges=_both(self.which_edges, edges),
        )

    def form(self) -> Mapping[str, Any]:
        """What it consists of, as JSON values."""
        names = ("edges", "source", "target", "weight", "vertices", "vertex", "directed", "nowhere")
        return {name: getattr(self, name) for name in (*names, "which_edges", "which_vertices")}

    def read(self, session: SparkSession, supersteps: Supersteps) -> Parts:
        """Its edges and vertices as tables that stay until the supersteps have ended, of the versions that the first run has read.

        Raises:
            DefinitionError: DEFINITION-362 no such column, 363 ends of two kinds, 364 and 367 a condition that the engine does not read, or that is none.
            ExecutionError: EXECUTION-131, an edge to nowhere.
            LifecycleError: LIFECYCLE-251, there is no such table.
        """
        links = _rows(session, supersteps, self.lake, self.edges, "edges")
        where = f"graph of '{self.edges}'"
        names = [self.source, self.target, *([] if self.weight is None else [self.weight])]
        _check_columns(links, names, self.edges, where)
        _check_vertices(links, (self.source, self.target), where)
        links = _filtered(links, self.which_edges, f"{where}, condition of edges")
        weight = "CAST(1 AS double)" if self.weight is None else f"CAST(`{self.weight}` AS double)"
        links = links.selectExpr(f"`{self.source}` AS src", f"`{self.target}` AS dst", f"{weight} AS weight", "_count")
        links = links.groupBy("src", "dst", "weight").agg(expr(links, "sum(_count) AS _count")).filter("_count > 0")
        if not self.directed:
            links = links.union(links.selectExpr("dst AS src", "src AS dst", "weight", "_count"))
        links = links.groupBy("src", "dst").agg(expr(links, "min(weight) AS weight"))
        links = supersteps.once(session, "links", lambda: links)
        vertices = supersteps.once(session, "vertices", lambda: self._vertices(session, supersteps, links))
        whole = supersteps.once(session, "edges", lambda: self._between(links, vertices))
        return Parts(edges=whole, vertices=vertices, directed=self.directed)

    def _vertices(self, session: SparkSession, supersteps: Supersteps, links: DataFrame) -> DataFrame:
        if self.vertices is None:
            ends = links.selectExpr("src AS id").union(links.selectExpr("dst AS id")).filter("id IS NOT NULL")
        else:
            rows = _rows(session, supersteps, self.lake, self.vertices, "vertices")
            _check_columns(rows, [self.vertex], self.vertices, f"graph of '{self.edges}'")
            ends = rows.filter(f"`{self.vertex}` IS NOT NULL")
        ends = _filtered(ends, self.which_vertices, f"graph of '{self.edges}', condition of vertices")
        if self.vertices is None:
            return ends.distinct()
        counted = ends.groupBy(self.vertex).agg(expr(ends, "sum(_count) AS _count")).filter("_count > 0")
        return counted.selectExpr(f"`{self.vertex}` AS id")

    def _between(self, links: DataFrame, vertices: DataFrame) -> DataFrame:
        """The edges between vertices."""
        known = links.join(vertices.selectExpr("id AS src"), on="src", how="left_semi")
        known = known.join(vertices.selectExpr("id AS dst"), on="dst", how="left_semi").selectExpr(
            "src", "dst", "weight"
        )
        if self.nowhere == "refuse" and (self.vertices is not None or self.which_vertices is None):
            self._check_ends(links, vertices)
        return known

    def _check_ends(self, links: DataFrame, vertices: DataFrame) -> None:
        if self.which_vertices is not None:  # an edge to a vertex that was left out on purpose is none to nowhere
            return
        astray = links.join(vertices.selectExpr("id AS src"), on="src", how="left_anti").selectExpr("src", "dst")
        ends = links.join(vertices.selectExpr("id AS dst"), on="dst", how="left_anti").selectExpr("src", "dst")
        counts = (
            astray.union(ends).distinct().agg(expr(links, "count(*) AS n"), expr(links, "min(struct(src, dst)) AS e"))
        )
        (row,) = counts.collect()
        if row["n"]:
            got = f"{row['n']:,} edges to nowhere, such as {row['e']['src']} -> {row['e']['dst']}"
            fix = 'Add the vertices, or leave such edges out: nowhere="drop".'
            raise ExecutionError(
                f"graph of '{self.edges}'", "edges between its vertices", got, fix, code="EXECUTION-131"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A graph as DataFrames.

    Args:
        edges: ``src``, ``dst``, ``weight``; both ways if the graph is not directed.
        vertices: ``id``.
        directed: as of the graph.
    """

    edges: DataFrame
    vertices: DataFrame
    directed: bool

    def degrees(self) -> DataFrame:
        """``id``, ``out_degree``, ``in_degree``, ``degree`` of each vertex; an edge from a vertex to itself counts twice in ``degree``."""
        outs = self.edges.groupBy("src").agg(expr(self.edges, "count(*) AS outs")).selectExpr("src AS id", "outs")
        ins = self.edges.groupBy("dst").agg(expr(self.edges, "count(*) AS ins")).selectExpr("dst AS id", "ins")
        loops = self.edges.filter("src = dst").selectExpr("src AS id", "CAST(1 AS bigint) AS loops")
        counted = (
            self.vertices.join(outs, on="id", how="left")
            .join(ins, on="id", how="left")
            .join(loops, on="id", how="left")
        )
        out, into, loop = (f"coalesce({name}, CAST(0 AS bigint))" for name in ("outs", "ins", "loops"))
        degree = f"{out} + {into}" if self.directed else f"{out} + {loop}"
        return counted.selectExpr("id", f"{out} AS out_degree", f"{into} AS in_degree", f"{degree} AS degree")


def _check_columns(rows: DataFrame, names: Sequence[str], table: str, where: str) -> None:
    """DEFINITION-362: a table lacks a column."""
    lacking = [name for name in names if name not in rows.columns]
    if lacking:
        fix = f"Columns: {', '.join(name for name in rows.columns if not name.startswith('_'))}."
        raise DefinitionError(where, f"columns of '{table}'", ", ".join(lacking), fix, code="DEFINITION-362")


def _check_vertices(rows: DataFrame, ends: tuple[str, str], where: str) -> None:
    """DEFINITION-363: ends of edges of two kinds, or of one that names nothing, as NaN equals no other."""
    kinds = dict(rows.dtypes)
    groups = {_KINDS.get(kinds[name].partition("(")[0]) for name in ends}
    if len(groups) > 1 or None in groups:
        fix = "Make both whole numbers or both texts in the table, CAST(a AS bigint), and name that table."
        got = ", ".join(f"{name} {kinds[name]}" for name in ends)
        raise DefinitionError(where, "vertices of one kind: numbers or texts", got, fix, code="DEFINITION-363")


def _filtered(rows: DataFrame, condition: str | None, where: str) -> DataFrame:
    """The rows that meet a condition; DEFINITION-364 for one that is none."""
    if condition is None:
        return rows
    try:
        ((_, kind),) = rows.selectExpr(f"{condition} AS fits").dtypes
    except Exception as error:
        fix = f"Spark SQL over the columns {', '.join(name for name in rows.columns if not name.startswith('_'))}."
        got = f"{condition!r}: {described(error).splitlines()[0]}"
        raise DefinitionError(where, "a condition over its columns", got, fix, code="DEFINITION-364") from error
    if kind != "boolean":
        fix = "Write a comparison, such as weight > 2."
        raise DefinitionError(
            where, "a condition (true or false)", f"{condition!r}, {kind}", fix, code="DEFINITION-367"
        )
    return rows.filter(condition)


def _both(first: str | None, second: str | None) -> str | None:
    conditions = [condition for condition in (first, second) if condition is not None]
    return " AND ".join(f"({condition})" for condition in conditions) or None


def _rows(session: SparkSession, supersteps: Supersteps, lake: Lake, table: str, name: str) -> DataFrame:
    """The rows of a table as of the version that the first run has read, with ``_count``: 1, or -1 for a retraction."""
    paths = [table] if "/" in table else [lake.read(table), lake.log(table)]
    path = next((path for path in paths if DeltaTable.is_deltatable(path)), None)
    if path is None:
        fix = f"Compute it: floodmark run {table}; or name another table of the lake, or a path."
        raise LifecycleError(f"graph in {lake.root}", f"a table '{table}'", "none", fix, code="LIFECYCLE-251")
    version = supersteps.pinned(f"version-{name}", lambda: DeltaTable(path).version())
    rows = session.read.format("delta").option("versionAsOf", str(version)).load(path)
    if "_kind" not in rows.columns:
        return rows.withColumn("_count", expr(rows, "CAST(1 AS bigint)"))
    return rows.filter(f"`_kind` IN ({ROW}, {RETRACTION})").withColumn(
        "_count", expr(rows, f"CASE WHEN `_kind` = {ROW} THEN CAST(1 AS bigint) ELSE CAST(-1 AS bigint) END")
    )
