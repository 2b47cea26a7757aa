"""Names and texts as SQL writes them: DuckDB's, and that of Spark and Sail."""

from __future__ import annotations


def quoted(name: str) -> str:
    """(name of a column or table) -> the quoted name."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """(text) -> the quoted string literal of DuckDB."""
    return "'" + text.replace("'", "''") + "'"


def spark_literal(text: str) -> str:
    """(text) -> the quoted string literal of Spark and Sail, in which a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
