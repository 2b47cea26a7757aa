"""Table programs (``tests/cases/sql``, ``tests/cases/patterns/sql_*``): tables with rows before and after a savepoint, a statement, and the changes of its sink.

Of a program only what defines its tables is translated: the event time and how far its watermark is behind become a contract and a log, a column of the clock and a
table whose rows change a WITH before the statement. ``verdicts.yaml`` says of each program what becomes of it here.
"""

from __future__ import annotations

import pickle
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest
import yaml
from pydantic import Field, create_model

from floodmark import BoundedOutOfOrderness, Contract, DeltaTable, EventTime, Operator, Source, sql_operator
from floodmark.core import types as types_of
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import to_ms
from floodmark.core.types import Type
from floodmark.engines.embedded.memory.run import MemoryRun, Savepoint
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW, TICK
from floodmark.testing.log import Log

FOLDER = Path(__file__).parents[1] / "cases"
PHASES = ("before", "after")
ARRIVAL = {"before": to_ms(datetime(2030, 1, 1, tzinfo=UTC)), "after": to_ms(datetime(2030, 1, 1, 1, tzinfo=UTC))}
"""When the rows of a phase come, by the clock: one a millisecond, table after table."""
TABLE_MS = 1_000
"""Between the first rows of two tables, ms."""
QUIET = 60_000
"""How long after the first row of a phase the clock stands at its end, ms."""
ARRIVED = "arrived"
"""Event time of a table whose rows change, which has none of its own."""

Rows = Counter[tuple[Any, ...]]
"""Values -> how many such rows there are."""


class Suite:
    """Programs with their verdicts.

    Args:
        folder: below ``tests/cases``.
        files: pattern of the names of their files.
    """

    def __init__(self, folder: str, files: str) -> None:
        paths = [path for path in sorted((FOLDER / folder).glob(files)) if path.stem != "verdicts"]
        self.programs: dict[str, dict[str, Any]] = {
            case["name"]: case for path in paths for case in yaml.safe_load(path.read_text("utf-8"))
        }
        self.verdicts: dict[str, dict[str, Any]] = yaml.safe_load(
            (FOLDER / folder / "verdicts.yaml").read_text("utf-8")
        )

    def program(self, name: str, *, emit: str | bool | None = None) -> Program:
        """A program, with ``EMIT CHANGES`` or ``EMIT FINAL`` behind its statement as its verdict says or as wanted."""
        return Program(
            self.programs[name], emit=self.verdicts.get(name, {}).get("emit", False) if emit is None else emit
        )

    def check(self, name: str) -> None:
        """Fail unless a program gives what its verdict says."""
        verdict, program = self.verdicts[name], self.program(name)
        if "code" in verdict:
            with pytest.raises(FloodmarkError) as raised:
                program.differences()
            assert raised.value.code == verdict["code"]
            return
        differences = program.differences()
        assert bool(differences) == (verdict["verdict"] == "different"), differences
        if "gives" in verdict:
            assert program.bounded() == Rows(tuple(map(plain, row)) for row in verdict["gives"])


def _annotation(kind: Type, name: str) -> Any:
    """The type of a contract's field."""
    match kind.name:
        case "decimal":
            return Annotated[Decimal, Field(max_digits=kind.precision, decimal_places=kind.scale)]
        case "array":
            return list[_annotation(kind.inner[0], name)]  # type: ignore[misc]
        case "map":
            key, value = (_annotation(inner, name) for inner in kind.inner)
            return dict[key, value]  # type: ignore[valid-type]
        case "struct":
            fields: dict[str, Any] = {
                part: (_annotation(inner, part) | None, ...) for part, inner in zip(kind.names, kind.inner, strict=True)
            }
            return create_model(f"Row_{name}", **fields)
        case _:
            return kind.python


class Table:
    """A table of a program.

    Args:
        name: in the statement.
        definition: its columns, what is computed, event time, key and rows.
        number: which of the program's tables it is.
    """

    def __init__(self, name: str, definition: Mapping[str, Any], number: int) -> None:
        self.name, self.definition, self.number = name, definition, number
        self.types = {column: types_of.parse(kind) for column, kind in definition["columns"].items()}
        self.computed: dict[str, list[str]] = definition.get("computed", {})
        self.time: str | None = definition.get("time")
        self.changes: str | None = definition.get("changes")
        self.key: list[str] = definition.get("key", [])

    @cached_property
    def contract(self) -> type[Contract]:
        """What its rows are."""
        fields: dict[str, Any] = {
            name: (_annotation(kind, name), ...) if name in self.key else (_annotation(kind, name) | None, None)
            for name, kind in self.types.items()
            if name != self.time
        }
        fields |= {name: (datetime | None, None) for name in self.computed if name != self.time}
        if self.time or self.changes:
            fields[self.time or ARRIVED] = (EventTime, ...)
        settings: dict[str, Any] = {} if self.time or self.changes else {"event_time": "ingestion"}
        return create_model(f"Rows_{self.name}", __base__=Contract, __cls_kwargs__=settings, **fields)

    @property
    def input(self) -> str:
        """The name of the operator's input."""
        return self.name if self.view is None else f"{self.name.lower()}_rows"

    @property
    def view(self) -> str | None:
        """What the statement's table is, where it is not the input: with the clock, without what only the contract needs."""
        clock = self.definition.get("clock")
        hidden = self.changes is not None and self.time is None
        if clock is None and not hidden:
            return None
        columns = [f"`{name}`" for name in (*self.types, *self.computed)]
        columns += [f"{ARRIVED if hidden else 'PROCTIME()'} AS {clock}"] if clock else []
        return f"`{self.name}` AS (SELECT {', '.join(columns)} FROM {self.name.lower()}_rows)"

    @property
    def bound(self) -> Any:
        """What the operator's input reads."""
        if self.changes is None:
            return self.contract
        table = DeltaTable(f"tables/{self.name}", read="changes")
        return Source(
            self.input.lower(), contract=self.contract, connector=table, watermark=BoundedOutOfOrderness("0 s")
        )

    @property
    def in_order(self) -> bool:
        """Whether no row has an earlier event time than the one before it."""
        rows = [self._row(row)[1] for phase in PHASES for row in self.definition.get(phase, ())]
        moments = [row[self.time] for row in rows] if self.time else []
        return None not in moments and moments == sorted(moments)

    def write(self, log: Log, phase: str, state: dict[Any, dict[str, Any]], *, prompt: bool = False) -> None:
        """The rows of a phase.

        Args:
            log: of the table.
            phase: ``before`` or ``after`` the savepoint.
            state: key -> the row that it has, of a table whose rows replace each other.
            prompt: whether the watermark follows rows that are in order as closely as it can, in place of as the table says.
        """
        log.tick(ARRIVAL[phase])
        for number, row in enumerate(self.definition.get(phase, ())):
            kind, values = self._row(row)
            arrival = ARRIVAL[phase] + self.number * TABLE_MS + number
            if self.changes and not self.time:
                values |= {ARRIVED: self._arrived(kind, values, _utc(arrival), state)}
            for sign, changed in self._changes(kind, values, state):
                moment = changed.get(self.time or ARRIVED)
                at = arrival if moment is None else to_ms(moment)
                log.row(changed, at, sign)
                behind = 0 if not self.time else 1 if prompt and self.in_order else self.definition["behind"]
                log.watermark = max(log.watermark, at - behind)
        if not self.time:
            log.watermark = max(log.watermark, ARRIVAL[phase] + QUIET)
        log.move(log.watermark)

    def _row(self, row: Sequence[Any]) -> tuple[str, dict[str, Any]]:
        kind, row = (row[0], row[1:]) if self.changes else ("+I", row)
        values = {name: _value(value, kind) for value, (name, kind) in zip(row, self.types.items(), strict=True)}
        for name, (how, column) in self.computed.items():
            values[name] = _moment(how, values[column])
        return kind, values

    def _arrived(self, kind: str, values: dict[str, Any], arrival: datetime, state: dict[Any, Any]) -> datetime:
        """When a row came; of one that is taken back, when it had come."""
        if self.changes == "upsert":
            return arrival
        moments: list[datetime] = state.setdefault(("arrived", *map(repr, values.values())), [])
        if kind in {"+I", "+U"}:
            moments.append(arrival)
        return arrival if kind in {"+I", "+U"} or not moments else moments.pop()

    def _changes(
        self, kind: str, values: dict[str, Any], state: dict[Any, dict[str, Any]]
    ) -> Iterable[tuple[int, dict[str, Any]]]:
        """The rows that come and those that are taken back."""
        if self.changes != "upsert":
            yield (ROW if kind in {"+I", "+U"} else RETRACTION), values
            return
        key = tuple(values[name] for name in self.key)
        last = state.pop(key, None)
        if last is not None:
            yield RETRACTION, last
        if kind in {"+I", "+U"}:
            state[key] = values
            yield ROW, values


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _moment(how: str, value: Any) -> datetime | None:
    """A time that is computed of a text, or of a number of seconds or milliseconds."""
    if value is None:
        return None
    if how == "text":
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return _utc(value * {"s": 1000, "ms": 1}[how])


def _value(value: Any, kind: Type) -> Any:
    """A value of a case as a column holds it."""
    if value is None:
        return None
    match kind.name:
        case "timestamp":
            return _utc(value["ms"]) if isinstance(value, dict) else datetime.fromisoformat(value).replace(tzinfo=UTC)
        case "decimal":
            return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
        case "struct":
            return {name: _value(part, inner) for name, part, inner in zip(kind.names, value, kind.inner, strict=True)}
        case "map":
            return [(_value(k, kind.inner[0]), _value(v, kind.inner[1])) for k, v in value["map"]]
        case "array":
            return [_value(part, kind.inner[0]) for part in value]
        case _:
            return value


def plain(value: Any) -> Any:
    """A value for comparison: numbers to six digits, times in ms."""
    match value:
        case bool():
            return str(value)
        case datetime():
            return f"{to_ms(value)} ms"
        case int() | float() | Decimal():
            return round(float(value), 6)
        case list() | tuple():
            return tuple(plain(part) for part in value)
        case dict():
            return tuple(plain(part) for part in value.values())
        case _:
            return value


class Program:
    """A table program.

    Args:
        case: of a file.
        emit: whether ``EMIT CHANGES`` is added to its statement; ``"final"`` for ``EMIT FINAL``.
    """

    def __init__(self, case: Mapping[str, Any], *, emit: str | bool = False) -> None:
        self.case = case
        insert = re.match(r"(?is)(insert\s+into\s+`?(\w+)`?\s*(?:\([^)]*\))?)\s*(.*)$", case["sql"])
        self.insert, self.name, self.select = insert.groups() if insert else ("", "result", case["sql"])
        tables = self.case.get("tables", {}).items()
        self.tables = [Table(table, definition, number) for number, (table, definition) in enumerate(tables)]
        self.emit = emit

    @property
    def sql(self) -> str:
        """The statement with what stands for the definitions of its tables."""
        rest = self.select
        views = [view for table in self.tables if (view := table.view)]
        if views and rest[:4].upper() == "WITH":
            rest = f"WITH {', '.join(views)}, {rest[4:]}"
        elif views:
            rest = f"WITH {', '.join(views)} {rest}"
        end = {False: "", True: " EMIT CHANGES", "final": " EMIT FINAL"}[self.emit]
        return f"{self.insert} {rest}{end}"

    @cached_property
    def operator(self) -> Operator:
        """The statement as an operator."""
        return sql_operator(self.name.lower(), self.sql, inputs={table.input: table.bound for table in self.tables})

    def logs(self, *, prompt: bool = False) -> tuple[dict[str, Log], dict[str, list[int]]]:
        """(the log of each input, how many of its entries come before the savepoint, and before the clock of a case that says ``stops`` moves on).

        Args:
            prompt: as of ``Table.write``.
        """
        logs: dict[str, Log] = {}
        cuts: dict[str, list[int]] = {}
        schemas = {read.name: read.schema for read in self.operator.inputs}
        for table in self.tables:
            if table.input not in schemas:
                continue
            log, state = Log(schemas[table.input]), dict[Any, dict[str, Any]]()
            cuts[table.input] = []
            for phase in PHASES:
                table.write(log, phase, state, prompt=prompt)
                if phase == "after" and "stops" in self.case:
                    log.tick(ARRIVAL[phase] + self.case["stops"])
                    cuts[table.input].append(len(log.entries))
                log.tick(ARRIVAL[phase] + QUIET)
                if phase == "before":
                    cuts[table.input].append(len(log.entries))
            log.end()
            logs[table.input] = log
        return logs, cuts

    def expected(self) -> list[Rows]:
        """The rows of the sink before the savepoint, at the moment when Flink's test stops the program if the case says one, and at the end.

        Those at the end alone where a case says no more, or has no rows behind the savepoint.
        """
        if "end" in self.case:
            return [Rows(tuple(map(plain, row)) for row in self.case["end"])]
        sink = self.case["sink"]
        types = [types_of.parse(kind) for kind in sink["columns"].values()]
        key = [list(sink["columns"]).index(name) for name in sink.get("key", ())]
        rows: list[tuple[Any, ...]] = []
        told: list[Rows] = []
        for phase in (*PHASES, "closed") if "stops" in self.case else PHASES:
            for kind, *values in sink.get(phase, ()):
                row = tuple(plain(_value(value, known)) for value, known in zip(values, types, strict=True))
                if key:
                    rows = [other for other in rows if [other[n] for n in key] != [row[n] for n in key]]
                if kind in {"+I", "+U"}:
                    rows.append(row)
                elif not key and row in rows:
                    rows.remove(row)
            told.append(Rows(rows))
        goes_on = any("after" in table.definition for table in self.tables)
        return told if goes_on else told[-1:]

    def unbounded(self) -> list[Rows]:
        """The rows at each moment of ``expected``, of runs that resume from a savepoint."""
        logs, cuts = self.logs()
        run, results, moments = MemoryRun(self.operator), list[pa.Table](), list[Rows]()
        for number in range(1 + max(map(len, cuts.values()), default=0)):
            bounds = {name: [0, *positions, None][number : number + 2] for name, positions in cuts.items()}
            results.append(run.batch({name: log.table(*bounds[name]) for name, log in logs.items()})[""])
            moments.append(self.net(results))
            savepoint: Savepoint = pickle.loads(pickle.dumps(run.savepoint()))
            run = MemoryRun(self.operator, savepoint)
        return moments

    def bounded(self) -> Rows:
        """The rows of a bounded run over everything."""
        logs, _ = self.logs()
        return self.net([MemoryRun(self.operator).batch({name: log.table() for name, log in logs.items()})[""]])

    def cut(self, draw: random.Random) -> Rows:
        """The rows at the end of a run over micro-batches that are cut at random, some of them behind a restart."""
        logs, _ = self.logs(prompt=True)
        run, results = MemoryRun(self.operator), list[pa.Table]()
        pieces = draw.randint(2, 8)
        cuts = {name: sorted(draw.choices(range(len(log.entries) + 1), k=pieces - 1)) for name, log in logs.items()}
        for piece in range(pieces):
            bounds = {name: [0, *positions, None][piece : piece + 2] for name, positions in cuts.items()}
            results.append(run.batch({name: log.table(*bounds[name]) for name, log in logs.items()})[""])
            if draw.random() < 0.5:
                savepoint: Savepoint = pickle.loads(pickle.dumps(run.savepoint()))
                run = MemoryRun(self.operator, savepoint)
        return self.net(results)

    def net(self, tables: Iterable[pa.Table]) -> Rows:
        """The rows that are not taken back."""
        names = self.operator.outputs[0].schema.names
        rows = Rows()
        for table in tables:
            for row in table.to_pylist():
                if row["_kind"] not in {MARKER, TICK}:
                    rows[tuple(plain(row[name]) for name in names)] += 1 if row["_kind"] == ROW else -1
        return Rows({row: count for row, count in rows.items() if count})

    def differences(self) -> list[str]:
        """What is not as in Flink, for people; empty if nothing is."""
        unbounded, expected = self.unbounded(), self.expected()
        names = ["before the savepoint", "where Flink stops", "at the end"] if "stops" in self.case else [*PHASES]
        moments = list(zip(names, unbounded, expected, strict=True)) if len(expected) > 1 else []
        moments += [("at the end", unbounded[-1], expected[-1]), ("in the bounded run", self.bounded(), expected[-1])]
        lines: list[str] = []
        for when, rows, wanted in moments:
            if rows != wanted:
                lacks, more = list((wanted - rows).elements())[:3], list((rows - wanted).elements())[:3]
                lines.append(f"{when}: lacks {lacks}, has {more}")
        return lines


FLINK = Suite("sql", "*.yaml")
"""Flink's programs."""
PATTERNS = Suite("patterns", "sql_*.yaml")
"""Row patterns of Trino's and Flink's."""
