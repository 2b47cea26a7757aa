"""A log written by hand: rows, watermarks and ticks in order, stamped as a landing would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from floodmark.core.errors import DefinitionError, shown
from floodmark.core.time import END, NEVER, from_ms, parse_instant, to_ms
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
        """
        times = [column.name for column in self.schema.columns if column.type == "timestamp"]
        for number, texts in enumerate(rows, 1):
            row = {
                **texts,
                **{name: _time(texts[name], f"row {number}, column '{name}'") for name in times if name in texts},
            }
            moment = row[event_time]
            time = to_ms(moment) if isinstance(moment, datetime) else int(moment)
            self.row(row, time, kind)
            if bound is not None:
                self.watermark = max(self.watermark, time - bound - 1)

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
        rows = (entry for entry in self.entries if entry["_kind"] not in {MARKER, TICK})
        for number, entry in enumerate(rows, 1):
            for column in schema:
                value = entry.get(column.name)
                try:
                    pa.scalar(value, column.type)
                except (pa.ArrowException, OverflowError, TypeError, ValueError):
                    where, expected = f"row {number}, column '{column.name}'", f"a value of {column.type}"
                    fix = "Write a value of the contract's type."
                    raise DefinitionError(where, expected, shown(value), fix, code="DEFINITION-113") from None


def _time(value: Any, where: str) -> Any:
    return from_ms(parse_instant(value, where)) if isinstance(value, str) else value


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
