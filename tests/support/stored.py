"""Rows of a Delta table as anybody reads them, without an engine."""

from __future__ import annotations

from types import SimpleNamespace

from deltalake import DeltaTable


def rows(path: str, *order: str) -> list[SimpleNamespace]:
    """The rows of a table in order, with a field per column."""
    table = DeltaTable(path).to_pyarrow_dataset().to_table()
    if order:
        table = table.sort_by([(name, "ascending") for name in order])
    return [SimpleNamespace(**row) for row in table.to_pylist()]
