"""Names and texts as DuckDB's SQL writes them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """(name of a column or table) -> the quoted name."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """(text) -> the quoted string literal."""
    return "'" + text.replace("'", "''") + "'"
