"""A user's unit test: rows fed by hand to an operator on the embedded engine, no JVM and no lake, and what must come out.

case = Case(hourly_departures)
case.feed("flights", [{"scheduled": at("09:15"), "origin": "JFK", ...}])
case.watermark(at("10:00"))
case.expect([{"origin": "JFK", "departures": 1}])
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.time import to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.testing.log import Log
from floodmark.testing.rows import rows_of

Row = Mapping[str, Any]


class Case:
    """One operator under test.

    Every call is a micro-batch of its own. Rows are judged by the watermark in force, as in a landing; nothing moves it but you.

    Args:
        operator: any; inputs bound to other operators are fed by hand too.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator, self.run = operator, MemoryRun(operator)
        self._logs = {given.name: Log(given.schema) for given in operator.inputs}
        self._done = dict.fromkeys(self._logs, 0)
        self._out: dict[str, list[dict[str, Any]]] = {}

    def feed(self, stream: str, rows: Iterable[Row] | str, *, event_time: str | None = None) -> Case:
        """Rows arrive.

        Args:
            stream: name of the input.
            rows: their columns, or a Markdown table of them (see ``table``).
            event_time: the column it is in, a datetime (naive: UTC) or ms; by default the input's only timestamp column.

        Raises:
            DefinitionError: DEFINITION-111, no such input, or no event time.
        """
        log = self._log(stream)
        log.rows(rows_of(rows), event_time or log.event_time(stream))
        return self._advance()

    def retract(self, stream: str, rows: Iterable[Row] | str, *, event_time: str | None = None) -> Case:
        """Retract rows that arrived before. Arguments and errors as of ``feed``."""
        log = self._log(stream)
        log.rows(rows_of(rows), event_time or log.event_time(stream), kind=RETRACTION)
        return self._advance()

    def watermark(self, moment: datetime | int, stream: str | None = None) -> Case:
        """The watermark moves: of one input, or of all. A datetime (naive: UTC) or ms."""
        for log in [self._log(stream)] if stream else self._logs.values():
            log.move(to_ms(moment) if isinstance(moment, datetime) else moment)
        return self._advance()

    def tick(self, moment: datetime | int) -> Case:
        """The processing clock moves."""
        next(iter(self._logs.values())).tick(to_ms(moment) if isinstance(moment, datetime) else moment)
        return self._advance()

    def end(self) -> Case:
        """All inputs end."""
        for log in self._logs.values():
            log.end()
        return self._advance()

    def restart(self) -> Case:
        """Create a savepoint, discard the run, and resume from the savepoint."""
        self.run = MemoryRun(self.operator, self.run.savepoint())
        return self

    def results(self, output: str = "") -> list[dict[str, Any]]:
        """The rows emitted since the last call, without stamps and without retracted rows.

        Args:
            output: its name; ``"late"`` for late rows.
        """
        names = self.operator.output(output).schema.names
        remaining: list[dict[str, Any]] = []
        for row in self._out.pop(output, []):
            values = {name: row[name] for name in names}
            if row["_kind"] == ROW:
                remaining.append(values)
                continue
            same = [position for position, other in enumerate(remaining) if _key(other) == _key(values)]
            if same:
                remaining.pop(same[-1])
        return remaining

    def expect(self, rows: Sequence[Row] | str, output: str = "") -> Case:
        """Assert that exactly these rows, or those of a Markdown table, were emitted since the last call, in any order.

        Columns you leave out are not compared.

        Raises:
            AssertionError: with the missing and the unexpected rows.
        """
        rows, results = rows_of(rows), self.results(output)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        pick = columns or list(self.operator.output(output).schema.names)
        came = [{name: row[name] for name in pick} for row in results]
        asked = [{name: row.get(name) for name in pick} for row in rows]
        got, wanted = Counter(map(_key, came)), Counter(map(_key, asked))
        if got != wanted:
            descriptions = {_key(row): str(row) for row in [*came, *asked]}
            lines = [f"  missing    {descriptions[key]}" for key in (wanted - got).elements()]
            lines += [f"  unexpected {descriptions[key]}" for key in (got - wanted).elements()]
            message = "\n".join([f"'{self.operator.name}' gave other rows than expected:", *lines])
            raise AssertionError(message)
        return self

    def _advance(self) -> Case:
        new = {name: log.table(self._done[name]) for name, log in self._logs.items()}
        self._done = {name: len(log.entries) for name, log in self._logs.items()}
        for name, table in self.run.batch(new).items():
            rows = (row for row in table.to_pylist() if row["_kind"] in {ROW, RETRACTION})
            self._out.setdefault(name, []).extend(rows)
        return self

    def _log(self, stream: str) -> Log:
        if stream not in self._logs:
            fix = closest(stream, list(self._logs)) + f"Inputs: {', '.join(self._logs)}."
            where = f"case of operator '{self.operator.name}'"
            raise DefinitionError(where, "one of its inputs", repr(stream), fix, code="DEFINITION-111")
        return self._logs[stream]


def _key(row: Row) -> tuple[Any, ...]:
    """Rows are the same when their values are: instants whatever their time zone, 15 and 15.0, NaN and NaN."""
    return tuple((name, _plain(value)) for name, value in row.items())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return "instant", to_ms(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return tuple(_plain(v) for v in value) if isinstance(value, list) else value
