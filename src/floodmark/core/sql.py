"""Names and texts as DuckDB's SQL writes them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name of a column or table, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text, whatever is in it."""
    return "'" + text.replace("'", "''") + "'"
