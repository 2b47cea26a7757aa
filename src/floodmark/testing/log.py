"""A log written by hand: rows, watermarks and ticks in order, stamped as a landing would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from floodmark.core.errors import DefinitionError, shown
from floodmark.core.time import END, NEVER, from_ms, parse_instant, to_ms
from floodmark.core.types import parse
from floodmark.engines.embedded.memory.rows import STAMP_SCHEMA
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.schema import MARKER, ROW, TICK, Schema

Entry = dict[str, Any]


@dataclass(slots=True)
class Log:
    """A landing log in memory.

    Args:
        schema: of its rows.
        clock: processing time of the last tick, ms.
    """

    schema: Schema
    watermark: int = NEVER
    clock: int = NEVER
    entries: list[Entry] = field(default_factory=list)

    def row(self, values: Mapping[str, Any], event_time: int, kind: int = ROW) -> None:
        """A row arrives; its stamp is the watermark in force.

        Args:
            values: its columns.
            event_time: ms UTC.
            kind: ``ROW``, or ``RETRACTION``: one that came before is taken back.
        """
        self._add(dict(values) | {"_event_time": event_time, "_kind": kind})

    def rows(
        self, rows: Iterable[Mapping[str, Any]], event_time: str, bound: int | None = None, kind: int = ROW
    ) -> None:
        """Rows arrive one after the other.

        Args:
            rows: their columns; times may be ISO 8601 texts.
            event_time: the column it is in, a datetime (naive: UTC), a text of one, or ms.
            bound: the watermark follows the greatest event time so far behind, ms; by default it stays where it is.
            kind: as of ``row``.

        Raises:
            DefinitionError: DEFINITION-113, a fraction in a column of whole numbers, or a row without event time.
            LifecycleError: LIFECYCLE-002, a text that is no time.
        """
        for number, values in enumerate(rows, 1 + sum(map(_is_row, self.entries))):
            row = {name: self._cell(name, value, number) for name, value in values.items()}
            moment = row.get(event_time)
            if moment is None:
                raise _unfit(number, event_time, "an event time", moment)
            time = to_ms(moment) if isinstance(moment, datetime) else int(moment)
            self.row(row, time, kind)
            if bound is not None:
                self.watermark = max(self.watermark, time - bound - 1)

    def _cell(self, name: str, value: Any, number: int) -> Any:
        """A value as its column takes it: the text of a time as an instant. pyarrow would cut a fraction off a whole number."""
        kind = self.schema.types.get(name)
        if kind == "timestamp" and isinstance(value, str):
            return from_ms(parse_instant(value, _where(number, name)))
        if isinstance(value, float) and kind is not None and parse(kind).is_integer and not value.is_integer():
            raise _unfit(number, name, "a whole number", value)
        return value

    def event_time(self, stream: str) -> str:
        """The column of the event time: the only timestamp of the input.

        Raises:
            DefinitionError: DEFINITION-111, there is none, or more than one.
        """
        timestamps = [column.name for column in self.schema.columns if column.type == "timestamp"]
        if len(timestamps) != 1:
            fix = 'Say which: event_time="...".'
            got = ", ".join(timestamps) or "no timestamp column"
            raise DefinitionError(f"input '{stream}'", "one event time", got, fix, code="DEFINITION-111")
        return timestamps[0]

    def move(self, watermark: int) -> None:
        """The watermark moves; it never goes back."""
        self.watermark = max(self.watermark, min(watermark, END))
        self._add({"_kind": MARKER})

    def tick(self, clock: int) -> None:
        """The processing clock moves, ms; it never goes back."""
        self.clock = max(self.clock, clock)
        self._add({"_event_time": self.clock, "_kind": TICK})

    def end(self) -> None:
        """The input ends."""
        self.move(END)

    def _add(self, entry: Entry) -> None:
        stamps = {"_watermark": self.watermark, "_progress": self.watermark, "_sequence": len(self.entries)}
        self.entries.append(entry | stamps)

    def table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """Entries ``start`` to ``stop`` as runs in memory read them.

        Raises:
            DefinitionError: DEFINITION-113, a value that its column does not hold.
        """
        schema = pa.schema([*arrow_schema(self.schema), *STAMP_SCHEMA])
        try:
            return pa.Table.from_pylist(self.entries[start:stop], schema=schema)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            self._check_values(schema)
            raise

    def _check_values(self, schema: pa.Schema) -> None:
        for number, entry in enumerate(filter(_is_row, self.entries), 1):
            for column in schema:
                value = entry.get(column.name)
                try:
                    pa.scalar(value, column.type)
                except (pa.ArrowException, OverflowError, TypeError, ValueError):
                    raise _unfit(number, column.name, f"a value of {column.type}", value) from None


def _is_row(entry: Entry) -> bool:
    return entry["_kind"] not in {MARKER, TICK}


def _where(number: int, column: str) -> str:
    return f"row {number}, column '{column}'"


def _unfit(number: int, column: str, expected: str, value: object) -> DefinitionError:
    fix = "Write a value of the contract's type."
    return DefinitionError(_where(number, column), expected, shown(value), fix, code="DEFINITION-113")


@dataclass(slots=True)
class Logs:
    """The logs of an operator's inputs, written in one order.

    Args:
        logs: input name -> its log.
        order: the input each entry went to.
    """

    logs: dict[str, Log]
    order: list[str] = field(default_factory=list)

    def row(self, name: str, values: Mapping[str, Any], event_time: int) -> None:
        """A row arrives at an input. See ``Log.row``."""
        self.logs[name].row(values, event_time)
        self.order.append(name)

    def move(self, watermark: int) -> None:
        """The watermark of every input moves."""
        for name, log in self.logs.items():
            log.move(watermark)
            self.order.append(name)

    def tick(self, clock: int) -> None:
        """The processing clock moves for all inputs; the first input's log records the tick."""
        name = next(iter(self.logs))
        self.logs[name].tick(clock)
        self.order.append(name)

    def end(self) -> None:
        """Every input ends."""
        self.move(END)

    def bounds(self, name: str, start: int, stop: int | None = None) -> tuple[int, int]:
        """(input, range of entries of all inputs) -> the range of that input's entries in it."""
        first = self.order[:start].count(name)
        return first, first + self.order[start:stop].count(name)

    def tables(self, start: int = 0, stop: int | None = None) -> dict[str, pa.Table]:
        """Entries ``start`` to ``stop`` as runs in memory read them, by input."""
        return {name: log.table(*self.bounds(name, start, stop)) for name, log in self.logs.items()}

    @property
    def ticks(self) -> list[tuple[int, int]]:
        """(position in the log, clock) of every tick."""
        moves, seen = [], dict.fromkeys(self.logs, 0)
        for position, name in enumerate(self.order):
            entry = self.logs[name].entries[seen[name]]
            seen[name] += 1
            if entry["_kind"] == TICK:
                moves.append((position, entry["_event_time"]))
        return moves
