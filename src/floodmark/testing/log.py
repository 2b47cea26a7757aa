"""A log written by hand: rows, watermarks and ticks in order, stamped as a landing would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from floodmark.core.errors import DefinitionError
from floodmark.core.time import END, NEVER, to_ms
from floodmark.engines.local.expressions import STAMP_SCHEMA
from floodmark.semantics.columns import arrow_schema
from floodmark.spec.schema import MARKER, ROW, TICK, Schema

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

    def row(self, values: Mapping[str, Any], event_time: int) -> None:
        """A row arrives and is judged against the watermark in force.

        Args:
            values: its columns.
            event_time: ms UTC.
        """
        self._add(dict(values) | {"_event_time": event_time, "_kind": ROW})

    def rows(self, rows: Iterable[Mapping[str, Any]], event_time: str, bound: int | None = None) -> None:
        """Rows arrive one after the other.

        Args:
            rows: their columns.
            event_time: the column it is in, a datetime (naive: UTC) or ms.
            bound: the watermark follows the greatest event time so far behind, ms; by default it stays where it is.
        """
        for row in rows:
            moment = row[event_time]
            time = to_ms(moment) if isinstance(moment, datetime) else int(moment)
            self.row(row, time)
            if bound is not None:
                self.watermark = max(self.watermark, time - bound - 1)

    def event_time(self, stream: str) -> str:
        """The column of the event time, where there can be only one.

        Raises:
            DefinitionError: DEFINITION-111, there is none, or more than one.
        """
        found = [column.name for column in self.schema.columns if column.type == "timestamp"]
        if len(found) != 1:
            fix = 'Say which: event_time="...".'
            got = ", ".join(found) or "no timestamp column"
            raise DefinitionError(f"input '{stream}'", "one event time", got, fix, code="DEFINITION-111")
        return found[0]

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
        """Entries ``start`` to ``stop`` as the local engine reads them."""
        schema = pa.schema([*arrow_schema(self.schema), *STAMP_SCHEMA])
        return pa.Table.from_pylist(self.entries[start:stop], schema=schema)
