"""Generated graphs with known degrees, as rows of ``src`` and ``dst``: computed by the engine, so that they may be large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.core.errors import DefinitionError, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def complete(session: SparkSession, vertices: int) -> DataFrame:
    """An edge from each vertex to each other one: every out and in degree is ``vertices - 1``."""
    pairs = _pairs(session, vertices, vertices)
    return pairs.filter("a <> b").selectExpr("a AS src", "b AS dst")


def cycle(session: SparkSession, vertices: int) -> DataFrame:
    """An edge from each vertex to the next one, from the last one to the first: every out and in degree is 1."""
    return _numbers(session, vertices).selectExpr("id AS src", f"(id + 1) % {vertices} AS dst")


def path(session: SparkSession, vertices: int) -> DataFrame:
    """An edge from each vertex to the next one: out degrees are 1, of the last one 0."""
    return _numbers(session, vertices - 1).selectExpr("id AS src", "id + 1 AS dst")


def star(session: SparkSession, leaves: int) -> DataFrame:
    """An edge from vertex 0 to each of the others: an out degree of ``leaves``, and in degrees of 1."""
    return _numbers(session, leaves).selectExpr("CAST(0 AS bigint) AS src", "id + 1 AS dst")


def grid(session: SparkSession, rows: int, columns: int) -> DataFrame:
    """An edge from each vertex to the one on its right and the one below it; vertex ``row * columns + column``."""
    cells = _pairs(session, rows, columns)
    right = cells.filter(f"b < {columns - 1}").selectExpr(f"a * {columns} + b AS src", f"a * {columns} + b + 1 AS dst")
    below = cells.filter(f"a < {rows - 1}").selectExpr(f"a * {columns} + b AS src", f"(a + 1) * {columns} + b AS dst")
    return right.union(below)


def circulant(session: SparkSession, vertices: int, edges: int) -> DataFrame:
    """``edges`` edges from each vertex, to vertices spread over all: every out and in degree is ``edges``.

    Args:
        session: of Spark or of Sail.
        vertices: more than twice as many as ``edges`` squared.
        edges: of each vertex: to the one 1, 4, 9 and so on places behind it.
    """
    _check(vertices > 2 * edges * edges, f"more than {2 * edges * edges:,} vertices", vertices)
    pairs = _pairs(session, vertices, edges)
    return pairs.selectExpr("a AS src", f"(a + (b + 1) * (b + 1)) % {vertices} AS dst")


def _numbers(session: SparkSession, count: int) -> DataFrame:
    _check(count >= 1, "at least one edge", count)
    return session.range(count)


def _pairs(session: SparkSession, first: int, second: int) -> DataFrame:
    _check(first >= 1 and second >= 1, "at least one vertex", (first, second))
    return session.range(first).selectExpr("id AS a").crossJoin(session.range(second).selectExpr("id AS b"))


def _check(holds: bool, expected: str, got: object) -> None:  # noqa: FBT001 - the condition itself
    if not holds:
        fix = "Ask for a larger graph."
        raise DefinitionError("generated graph", expected, shown(got), fix, code="DEFINITION-361")
