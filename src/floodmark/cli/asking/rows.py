"""Rows on stdout: as a table, as CSV, as JSON or as a stream of Arrow."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from floodmark.core.errors import printable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class Printed:
    """Rows on stdout, in one format."""

    form: str
    widths: list[int] = field(default_factory=list)
    writer: Any = None

    def rows(self, table: pa.Table) -> None:
        """Print rows; the columns are printed before the first ones."""
        if self.form == "arrow":
            self._arrow(table)
            return
        if self.form == "json":
            for row in table.to_pylist():
                click.echo(json.dumps(row, default=str, ensure_ascii=False))
            return
        cells = [[_cell(value) for value in row.values()] for row in table.to_pylist()]
        if self.form == "csv":
            self._csv(table.column_names, cells)
            return
        for line in self._lines(table.column_names, cells):
            click.echo(line)

    def end(self) -> None:
        """End the stream of Arrow."""
        if self.form == "arrow" and self.writer is not None:
            self.writer.close()

    def _arrow(self, table: pa.Table) -> None:
        import pyarrow as pa

        if self.writer is None:
            self.writer = pa.ipc.new_stream(sys.stdout.buffer, table.schema)
        self.writer.write_table(table)

    def _csv(self, names: list[str], cells: list[list[str]]) -> None:
        if self.writer is None:
            self.writer = csv.writer(sys.stdout, lineterminator="\n")
            self.writer.writerow(names)
        self.writer.writerows(cells)

    def _lines(self, names: list[str], cells: list[list[str]]) -> Iterator[str]:
        first = not self.widths
        if first:
            self.widths = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(names)]
            yield "  ".join(name.ljust(width) for name, width in zip(names, self.widths, strict=True)).rstrip()
        for row in cells:
            yield printable("  ".join(cell.ljust(width) for cell, width in zip(row, self.widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    return "" if value is None else str(value)
