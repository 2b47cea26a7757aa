"""Rows as people write them: Markdown tables."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from floodmark.core.errors import DefinitionError

Row = dict[str, Any]


def rows_of(rows: Iterable[Mapping[str, Any]] | str) -> list[Mapping[str, Any]]:
    """(rows or a Markdown table) -> rows."""
    return list(table(rows)) if isinstance(rows, str) else list(rows)


def table(text: str) -> list[Row]:
    """The rows of a Markdown table, first line the columns' names; a line of dashes below them may be left out.

    A cell is a number, ``true``, ``false``, a list, a quoted text, an ISO date and time, or else the text it is; an empty one is None.

    Raises:
        DefinitionError: DEFINITION-112, a line has another number of cells than the first.

    >>> table('''
    ... | key | n | at               |
    ... |-----|---|------------------|
    ... | a   | 2 | 2013-01-01 09:05 |
    ... | b   |   |                  |
    ... ''')[1]
    {'key': 'b', 'n': None, 'at': None}
    """
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line.strip()
    ]
    lines = [line for line in lines if any(cell.strip(":-") for cell in line) or not all(line)]
    if not lines:
        return []
    names, *body = lines
    for number, cells in enumerate(body, 1):
        if len(cells) != len(names):
            fix = "Give every line a cell per column; an empty one is None."
            expected = f"{len(names)} cells: {', '.join(names)}"
            raise DefinitionError(f"row {number} of a table", expected, f"{cells}", fix, code="DEFINITION-112")
    return [dict(zip(names, map(_value, cells), strict=True)) for cells in body]


def _value(cell: str) -> Any:
    if not cell:
        return None
    if cell in {"true", "false"}:
        return cell == "true"
    for read in (ast.literal_eval, datetime.fromisoformat):
        try:
            return read(cell)
        except (ValueError, SyntaxError):
            continue
    return cell
