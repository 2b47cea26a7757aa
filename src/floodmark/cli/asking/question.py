"""A statement over a lake: its rows over all that is there, or as rows come. Nothing is written to the lake."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import FloodmarkError
from floodmark.core.scratch import Scratch
from floodmark.spec.values.schema import MARKER, ROW

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.engines.embedded.bounded.query import Table
    from floodmark.engines.embedded.sail.session import Sail
    from floodmark.lake.folder.paths import Lake
    from floodmark.spec.graph.operator import Operator
    from floodmark.spec.workspace import Workspace

_NAME = "statement"
_OVER_ALL_ROWS = frozenset(
    {
        "DEFINITION-382",
        "DEFINITION-389",
        "DEFINITION-390",
        "DEFINITION-391",
        "DEFINITION-392",
        "DEFINITION-395",
        "CAPABILITY-003",
        "CAPABILITY-095",
    }
)
"""Refusals of statements that have an answer over the rows there are now, though none over a stream."""


@dataclass(frozen=True, slots=True)
class Question:
    """A statement over a lake."""

    text: str
    workspace: Workspace
    lake: Lake
    sail: Sail
    lateness: str

    def answer(self) -> pa.Table:
        """The rows of the statement over the rows there are now."""
        from floodmark.engines.embedded.bounded.query import Table, query

        head, tail = _sorted(self.text)
        if self._reads_last_values():
            return query(self.sail, self.text, self._tables())
        try:
            operator = self._operator(head)
        except FloodmarkError as refusal:
            if refusal.code not in _OVER_ALL_ROWS:
                raise
            return query(self.sail, self.text, self._tables())
        if operator.stateful is None and tail:
            return query(self.sail, self.text, self._tables())
        from floodmark.engines.embedded.bounded.run import run_bounded

        with Scratch() as folder:
            lake = self._beside(folder)
            run_bounded(self.sail, operator, lake)
            if tail:
                table = Table(lake.output(_NAME), operator.outputs[0].schema)
                return query(self.sail, f"SELECT * FROM {_NAME} {tail}", {_NAME: table})
            return _results(lake.output(_NAME), operator)

    def follow(self, show: Callable[[pa.Table], None], *, until_caught_up: bool, stop: Any) -> None:
        """Show the rows of the statement as they come; those that are taken back have the change ``-``."""
        from floodmark.engines.embedded.unbounded.run import run_unbounded

        operator, last = self._operator(self.text), [-1]
        with Scratch() as folder:
            lake = self._beside(folder)

            def on_batch(_: Any) -> None:
                rows, last[0] = _changes(lake.output(_NAME), operator, last[0])
                show(rows)

            run_unbounded(self.sail, operator, lake, until_caught_up=until_caught_up, stop=stop, on_batch=on_batch)

    def _operator(self, text: str) -> Operator:
        from floodmark.sql.operator import sql_operator

        inputs: dict[str, Any] = {source.name: source for source in self.workspace.sources}
        for operator in self.workspace.operators:
            inputs |= {output.table: operator[output.name] for output in operator.outputs}
        return sql_operator(_NAME, text, inputs=inputs, lateness=self.lateness, location="statement")

    def _reads_last_values(self) -> bool:
        """Whether the statement names a table of last values, which no operator reads."""
        from floodmark.sql.statement import tables_of
        from floodmark.sql.text import parsed

        _, tree = parsed(self.text, "statement")
        outputs = (output for operator in self.workspace.operators for output in operator.outputs)
        tables = {output.current.table for output in outputs if output.current is not None}
        return any(table.name in tables for table in tables_of(tree))

    def _beside(self, folder: Path) -> Lake:
        """A lake that reads this one and is written instead of it."""
        from floodmark.lake.folder.paths import Lake
        from floodmark.lake.restore import readers

        beside = Lake(str(folder), logs=self.lake.logs or self.lake.root, upstream=self.lake.upstream or self.lake.root)
        readers.passing(beside)
        return beside

    def _tables(self) -> dict[str, Table]:
        """The tables that the statement names. Of results that are revised the last values, under the name of their table too."""
        from floodmark.core.errors import DefinitionError, closest
        from floodmark.engines.embedded.bounded.query import Table
        from floodmark.sql.refusals import check_query
        from floodmark.sql.statement import tables_of
        from floodmark.sql.text import parsed

        known: dict[str, Table] = {s.name: Table(self.lake.log(s.name), s.schema) for s in self.workspace.sources}
        for operator in self.workspace.operators:
            for output in operator.outputs:
                last = output.current
                path = self.lake.read(last.table if last else output.table)
                known[output.table] = Table(path, output.schema, stamped=last is None)
                if last is not None:
                    known[last.table] = known[output.table]
        text, tree = parsed(self.text, "statement")
        check_query(text, tree)
        read: dict[str, Table] = {}
        for table in tables_of(tree):
            if table.name not in known or table.args.get("db") is not None:
                fix = f"{closest(table.name, known)}Tables: {', '.join(known)}."
                where, name = text.at(table), ".".join(part.name for part in table.parts)
                raise DefinitionError(
                    where, "a source or an operator's output", f"'{name}'", fix, code="DEFINITION-394"
                )
            read[table.name] = known[table.name]
        return read


def _sorted(text: str) -> tuple[str, str]:
    """(statement) -> it without ORDER BY, LIMIT and OFFSET at its end, and these."""
    from floodmark.sql.text import parsed, tail_of

    read, _ = parsed(text, "statement")
    at = tail_of(read)
    tail = text[at:].strip().rstrip(";")
    whole = re.sub(r"(?i)\s*\bEMIT\s+CHANGES\s*$", "", tail)
    if whole != tail:  # the operator keeps the first rows so far, and the table of them is sorted again
        return text, whole
    return text[:at], tail


def _results(path: str, operator: Operator) -> pa.Table:
    """The rows of an output, without those that were taken back."""
    rows, _ = _changes(path, operator, -1)
    if "change" not in rows.column_names:
        return rows
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.equal(rows["change"], "-")).as_py():
        return rows.drop_columns(["change"])
    counts: dict[str, list[Any]] = {}
    for row in rows.to_pylist():
        change = row.pop("change")
        entry = counts.setdefault(repr(row), [row, 0])
        entry[1] += 1 if change == "+" else -1
    left = [row for row, count in counts.values() for _ in range(count)]
    return pa.Table.from_pylist(left, schema=rows.drop_columns(["change"]).schema)


def _changes(path: str, operator: Operator, last: int) -> tuple[pa.Table, int]:
    """(output, sequence read so far) -> its rows behind it, with the column ``change`` if rows may be taken back; and the last sequence."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    output = operator.outputs[0]
    wanted = (ds.field("_kind") != MARKER) & (ds.field("_sequence") > last)
    columns = [*output.schema.names, "_kind", "_sequence"]
    rows = DeltaTable(path).to_pyarrow_dataset().to_table(columns=columns, filter=wanted)
    rows = rows.sort_by([("_sequence", "ascending"), ("_kind", "ascending")])
    reached = max(last, pc.max(rows["_sequence"]).as_py() or last)
    changed = pc.if_else(pc.equal(rows["_kind"], ROW), pa.scalar("+"), pa.scalar("-"))
    rows = rows.drop_columns(["_kind", "_sequence"])
    return (rows.add_column(0, "change", changed) if output.revisable else rows), reached
