"""A statement over a lake: its rows over all that is there, or as rows come. Nothing is written to the lake."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import CapabilityError, DefinitionError, ExecutionError, FloodmarkError
from floodmark.core.scratch import Scratch
from floodmark.spec.values.schema import MARKER, ROW

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot.expressions import Expr

    from floodmark.engines.embedded.bounded.query import Table
    from floodmark.engines.embedded.sail.session import Sail
    from floodmark.lake.folder.paths import Lake
    from floodmark.spec.graph.operator import Operator
    from floodmark.spec.workspace import Workspace
    from floodmark.sql.text import Text

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


@dataclass(frozen=True)
class Question:
    """A statement over a lake.

    Args:
        text: the statement.
        workspace: whose tables it names.
        lake: where these lie.
        sail: computes.
        lateness: rows at most this late revise the result of a window.
    """

    text: str
    workspace: Workspace
    lake: Lake
    sail: Sail
    lateness: str

    @cached_property
    def read(self) -> tuple[Text, Expr]:
        """The statement, read."""
        from floodmark.sql.text import parsed

        return parsed(self.text, "statement")

    def answer(self) -> pa.Table:
        """The rows of the statement over the rows there are now."""
        from floodmark.engines.embedded.bounded.query import query

        self._check_quotes()
        head, tail = _sorted(*self.read)
        if self._reads_last_values():
            return query(self.sail, self.text, self._tables())
        try:
            operator = self._operator(head)
        except FloodmarkError as refusal:
            if refusal.code == "DEFINITION-384":  # numbers of all rows of a window, which later rows would change
                return self._bounded(self._changing(head, refusal), tail)
            if refusal.code not in _OVER_ALL_ROWS:
                raise
            return self._over_all(head, tail)
        if operator.stateful is None and tail:
            return self._over_all(head, tail)
        return self._bounded(operator, tail)

    def _over_all(self, head: str, tail: str) -> pa.Table:
        """The rows of one plan of the embedded engine; of what its own grammar does not read, such as QUALIFY, those of an operator whose results change."""
        from floodmark.cli.asking.differences import differs
        from floodmark.cli.asking.overflow import may_overflow
        from floodmark.engines.embedded.bounded.query import query, selections

        tables = self._tables()
        if differs(self.read[1]):
            return self._of_operator(head, tail)
        if self._has_extremes_of_floats(tables) or may_overflow(self.read[1], tables, self.sail):
            selections(tables)  # an operator would advise on itself
            rows = self._checked(head, tail)
            if rows is not None and rows.num_rows:
                return rows  # if there are none, the engine says what aggregates of no rows are
        try:
            return query(self.sail, self.text, tables)
        except ExecutionError as failure:
            if failure.code != "EXECUTION-080":
                raise
            operator = self._changing(head, failure)
        return self._bounded(operator, tail)

    def _checked(self, head: str, tail: str) -> pa.Table | None:
        """The rows of a statement as those of an operator, whose expressions are compared with Spark's; None for what the engine alone can answer."""
        for text in (_changing(head), head):
            try:
                operator = self._operator(text)
            except (DefinitionError, CapabilityError):
                continue
            try:
                return self._bounded(operator, tail)
            except ExecutionError as failure:  # sorted by a column that the result lacks
                if failure.code != "EXECUTION-080" or not tail:
                    raise
        return None

    def _of_operator(self, head: str, tail: str) -> pa.Table:
        """The rows of an operator, of a statement that the engine's plan answers otherwise than SQL."""
        try:
            return self._bounded(self._operator_of(head), tail)
        except ExecutionError as failure:
            if failure.code != "EXECUTION-080" or not tail:
                raise
            fix = "Select the column that the rows are sorted by, too."
            raise ExecutionError(failure.where, failure.expected, failure.got, fix, code=failure.code) from None

    def _operator_of(self, head: str) -> Operator:
        """The operator of a statement, whose results may change; raises its first refusal."""
        refusal: FloodmarkError | None = None
        for text in (_changing(head), head):
            try:
                return self._operator(text)
            except FloodmarkError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    def _has_extremes_of_floats(self, tables: Mapping[str, Table]) -> bool:
        """Whether a statement with MIN or MAX reads a table with floats. Sail takes NaN for none of them there, Spark for the greatest."""
        from sqlglot import exp

        from floodmark.core.types import parse

        kinds = (parse(kind) for table in tables.values() for kind in table.schema.types.values())
        return self.read[1].find(exp.Max, exp.Min) is not None and any(kind.is_floating for kind in kinds)

    def _changing(self, head: str, failure: FloodmarkError) -> Operator:
        """The operator of a statement that may say EMIT CHANGES; raises its refusal, or the failure of the engine where that says more."""
        refusal: FloodmarkError = failure
        part: FloodmarkError | None = None
        for text in (_changing(head), _ended(head)):
            try:
                return self._operator(text)
            except FloodmarkError as error:
                if error.code not in {*_OVER_ALL_ROWS, "DEFINITION-381"}:
                    refusal = error
                elif ", line " in error.where and not error.got.startswith("EMIT"):
                    part = part or error
        if (
            refusal is failure and part is not None
        ):  # the part that no operator says is the one that the engine lacks too
            got = failure.got.partition(" expected '")[0]
            refusal = ExecutionError(part.where, failure.expected, got, part.fix, code=failure.code)
        raise refusal from None

    def _bounded(self, operator: Operator, tail: str) -> pa.Table:
        """The rows of an operator over all rows, sorted as the end of the statement says."""
        from deltalake import write_deltalake

        from floodmark.engines.embedded.bounded.query import Table, query
        from floodmark.engines.embedded.bounded.run import run_bounded

        with Scratch() as folder:
            lake = self._beside(folder)
            with self._placed():
                run_bounded(self.sail, operator, lake)
            rows = None if tail and not operator.outputs[0].revisable else _results(lake.output(_NAME), operator)
            if rows is not None and not tail:
                return rows
            table = Table(lake.output(_NAME), operator.outputs[0].schema)
            if rows is not None:  # without those that were taken back
                table = Table(str(folder / "last_rows"), operator.outputs[0].schema, stamped=False)
                write_deltalake(table.path, rows)
            return query(self.sail, f"SELECT * FROM {_NAME} {tail}", {_NAME: table})

    def follow(self, show: Callable[[pa.Table], None], *, until_caught_up: bool, stop: Any) -> None:
        """Show the rows of the statement as they come; those that are taken back have the change ``-``."""
        from floodmark.engines.embedded.unbounded.run import run_unbounded

        operator, last = self._operator(self.text), [-1]
        with Scratch() as folder:
            lake = self._beside(folder)

            def on_batch(_: Any) -> None:
                rows, last[0] = _changes(lake.output(_NAME), operator, last[0])
                show(rows)

            with self._placed():
                run_unbounded(self.sail, operator, lake, until_caught_up=until_caught_up, stop=stop, on_batch=on_batch)

    def _operator(self, text: str) -> Operator:
        from floodmark.sql.operator import sql_operator

        inputs: dict[str, Any] = {source.name: source for source in self.workspace.sources}
        for operator in self.workspace.operators:
            inputs |= {output.table: operator[output.name] for output in operator.outputs}
            inputs |= {table.name: table for table in operator.lookups}
        return sql_operator(_NAME, text, inputs=inputs, lateness=self.lateness, location="statement")

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Within, an expression that the embedded engine refuses has its line and column in the statement, and no advice is about an operator of that name."""
        try:
            yield
        except CapabilityError as error:
            read, tree = self.read
            placed = read.placed(CapabilityError("", error.expected, error.got, error.fix, code=error.code), tree)
            form = re.split(r"(?:Or run|Run) it on Spark", error.fix)[0] or "Write it otherwise. "
            fix = f"{form}Or make the statement an operator, and run that on Spark. docs/parity.md lists what the embedded engine computes."
            raise CapabilityError(placed.where, error.expected, error.got, fix, code=error.code) from None
        except ExecutionError as error:
            fix = error.fix.replace(f"run it again: floodmark run {_NAME}", "ask again")
            raise ExecutionError(error.where, error.expected, error.got, fix, code=error.code) from error

    def _reads_last_values(self) -> bool:
        """Whether the statement names a table of last values, which no operator reads."""
        from floodmark.sql.statement import tables_of

        outputs = (output for operator in self.workspace.operators for output in operator.outputs)
        tables = {output.current.table.lower() for output in outputs if output.current is not None}
        return any(table.name.lower() in tables for table in tables_of(self.read[1]))

    def _beside(self, folder: Path) -> Lake:
        """A lake that reads this one and is written instead of it."""
        from floodmark.lake.folder.paths import Lake
        from floodmark.lake.restore import readers

        beside = Lake(str(folder), logs=self.lake.logs or self.lake.root, upstream=self._root_of_outputs())
        readers.passing(beside)
        return beside

    def _root_of_outputs(self) -> str:
        """The lake in which the outputs lie that the statement names.

        Raises:
            DefinitionError: DEFINITION-472, a fork has some of them itself, and others are those of the lake it reads.
        """
        outputs = {o.current.table if o.current else o.table for p in self.workspace.operators for o in p.outputs}
        named = {table.path.rsplit("/", 1)[1]: table.path for table in self._tables().values()}
        roots = {path.rsplit("/outputs/", 1)[0]: name for name, path in named.items() if name in outputs}
        if len(roots) > 1:
            expected, got = "outputs of one lake", ", ".join(f"'{name}' of {root}" for root, name in roots.items())
            fix = "A statement with windows, joins of changes or EMIT CHANGES reads one lake: run the other operator in the fork, or ask the lake that the fork reads."
            raise DefinitionError("statement", expected, got, fix, code="DEFINITION-472")
        return next(iter(roots), self.lake.upstream or self.lake.root)

    def _output(self, table: str) -> str:
        """Path of an output: of this lake if that has it, as a fork has those of its own operators; otherwise where operators read it."""
        from floodmark.lake.table.entries import is_table

        own = self.lake.output(table)
        return own if self.lake.upstream is None or is_table(own) else self.lake.read(table)

    def _tables(self) -> dict[str, Table]:
        """The tables that the statement names. Of results that are revised the last values, under the name of their table too."""
        from floodmark.core.errors import closest
        from floodmark.sql.refusals import check_query
        from floodmark.sql.statement import tables_of

        known = self._known()
        tables = _in_any_case(known)
        text, tree = self.read
        check_query(text, tree)
        read: dict[str, Table] = {}
        for table in tables_of(tree):
            if table.name.lower() not in tables or table.args.get("db") is not None:
                fix = f"{closest(table.name, known)}Tables: {', '.join(known)}."
                where, name = text.at(table), ".".join(part.name for part in table.parts)
                raise DefinitionError(
                    where, "a source or an operator's output", f"'{name}'", fix, code="DEFINITION-394"
                )
            read[table.name] = tables[table.name.lower()]
        return read

    def _check_quotes(self) -> None:
        """Refuse names of columns in double quotes, also in the parts that the engine reads."""
        from floodmark.sql.refusals import check_quotes
        from floodmark.sql.statement import tables_of

        tables = _in_any_case(self._known())
        text, tree = self.read
        read = [tables[table.name.lower()] for table in tables_of(tree) if table.name.lower() in tables]
        check_quotes(text, [column for table in read for column in table.schema.types])

    def _known(self) -> dict[str, Table]:
        """All tables of the lake by name."""
        from floodmark.engines.embedded.bounded.query import Table

        known: dict[str, Table] = {
            s.name: Table(self.lake.log(s.name), s.schema, grows=True) for s in self.workspace.sources
        }
        for operator in self.workspace.operators:
            for output in operator.outputs:
                last = output.current
                path = self._output(last.table if last else output.table)
                known[output.table] = Table(path, output.schema, stamped=last is None, operator=operator.name)
                if last is not None:
                    known[last.table] = known[output.table]
        return known


def _in_any_case(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Name, lower case -> table: a statement may write names in any case."""
    return {name.lower(): table for name, table in tables.items()}


def _ended(text: str) -> str:
    return text.rstrip().rstrip(";")


def _changing(text: str) -> str:
    """A statement as one whose results change."""
    return f"{_ended(text)}\nEMIT CHANGES"


def _sorted(read: Text, tree: Expr) -> tuple[str, str]:
    """(statement) -> it without ORDER BY, LIMIT and OFFSET at its end, and these."""
    from floodmark.sql.text import tail_of

    text, at = read.sql, tail_of(read)
    tail = _by_number(read, tree, at).strip().rstrip(";")
    whole = re.sub(r"(?i)\s*\bEMIT\s+CHANGES\s*$", "", tail)
    if whole != tail:  # the operator keeps the first rows so far, and the table of them is sorted again
        return text, whole
    return text[:at], tail


def _by_number(read: Text, tree: Expr, at: int) -> str:
    """The end of a statement from a place on, in which an expression of ORDER BY that SELECT has too is the number of its column."""
    from floodmark.sql.dialect import SPAN

    items = [part.unalias() for part in tree.expressions] if tree.key == "select" else []
    numbers = {read.of(item): number for number, item in reversed(list(enumerate(items, 1))) if SPAN in item.meta}
    order = tree.args.get("order")
    tail, end = "", len(read.sql)
    for part in reversed(order.expressions if order is not None else []):
        if part.this.key != "column" and SPAN in part.this.meta and read.of(part.this) in numbers:
            begin, behind = part.this.meta[SPAN]
            tail, end = f"{numbers[read.of(part.this)]}{read.sql[behind:end]}{tail}", begin
    return read.sql[at:end] + tail


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
