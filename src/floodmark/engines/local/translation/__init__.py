"""Typed expressions in DuckDB's SQL. An expression that DuckDB does not compute as Spark does is refused, never answered otherwise."""

from floodmark.engines.local.translation.expression import duckdb_sql, unlike

__all__ = ["duckdb_sql", "unlike"]
