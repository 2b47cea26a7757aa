"""The same rows through an operator on every engine and in both modes, for parametrised tests.

@pytest.mark.parametrize("run", RUNS, ids=str)
def test_departures(run):
assert run(hourly_departures, {"flights": rows}, delay="1 hour")[""] == [...]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import MARKER, ROW, STAMPS
from floodmark.testing.lakes import LakeCase
from floodmark.testing.log import Log
from floodmark.testing.rows import rows_of

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One way to run an operator.

    Args:
        engine: ``memory`` is the embedded engine's kernels and expressions without its lake, and takes milliseconds; the embedded
            engine takes a fraction of a second, Spark seconds.
        mode: all rows at once, or a stream in two parts with a restart between them.
    """

    engine: Literal["memory", "embedded", "spark"]
    mode: Literal["bounded", "unbounded"]

    def __str__(self) -> str:
        return f"{self.engine}-{self.mode}"

    def __call__(
        self,
        operator: Operator,
        inputs: Mapping[str, Sequence[Row] | str],
        *,
        delay: str | timedelta = "0 s",
        event_time: str | None = None,
    ) -> dict[str, list[dict[str, Any]]]:
        """The last values of every output once its inputs have ended, without stamps, sorted.

        Args:
            operator: reads logs only, where it runs in a lake.
            inputs: input name -> rows in order of arrival (times as datetimes or ISO 8601 texts), or a Markdown table of them; an input left out is empty.
            delay: the bound of the watermark: nothing is late that comes at most so far behind.
            event_time: the column it is in, by default the input's only timestamp column.

        Raises:
            DefinitionError: DEFINITION-111, no such input, or no event time; 113, a value that its column does not hold.
            LifecycleError: LIFECYCLE-002, a text that is no time.
        """
        bound = span(delay, "delay")
        unknown = sorted(inputs.keys() - {given.name for given in operator.inputs})
        if unknown:
            names = ", ".join(given.name for given in operator.inputs)
            where = f"rows for operator '{operator.name}'"
            raise DefinitionError(
                where, f"inputs among {names}", ", ".join(unknown), "Name its inputs.", code="DEFINITION-111"
            )
        logs = {given.name: Log(given.schema) for given in operator.inputs}
        for name, log in logs.items():
            log.rows(rows_of(inputs.get(name, ())), event_time or log.event_time(name), bound)
            log.end()
        run = {"memory": self._in_memory, "spark": self._spark, "embedded": self._embedded}[self.engine]
        tables = run(operator, logs)
        return {name: final(parts) for name, parts in tables.items()}

    def _in_memory(self, operator: Operator, logs: Mapping[str, Log]) -> dict[str, list[pa.Table]]:
        if self.mode == "bounded":
            results = MemoryRun(operator).batch({name: log.table() for name, log in logs.items()})
            return {name: [table] for name, table in results.items()}
        run = MemoryRun(operator)
        halves = {name: len(log.entries) // 2 for name, log in logs.items()}
        first = run.batch({name: log.table(0, halves[name]) for name, log in logs.items()})
        run = MemoryRun(operator, run.savepoint())
        second = run.batch({name: log.table(halves[name]) for name, log in logs.items()})
        return {name: [first[name], second[name]] for name in first}

    def _embedded(self, operator: Operator, logs: Mapping[str, Log]) -> dict[str, list[pa.Table]]:
        from floodmark.testing.embedded import EmbeddedCase  # noqa: PLC0415 - needs pysail

        return self._in_a_lake(lambda folder: EmbeddedCase(operator, folder), logs)

    def _spark(self, operator: Operator, logs: Mapping[str, Log]) -> dict[str, list[pa.Table]]:
        from floodmark.engines.spark.session.builder import spark_session  # noqa: PLC0415 - runs in memory need no Spark
        from floodmark.testing.spark import SparkCase  # noqa: PLC0415 - the same

        return self._in_a_lake(lambda folder: SparkCase(spark_session(), operator, folder), logs)

    def _in_a_lake(self, make: Callable[[str], LakeCase], logs: Mapping[str, Log]) -> dict[str, list[pa.Table]]:
        with TemporaryDirectory(prefix="floodmark-run-") as folder:
            case = make(folder)
            if self.mode == "bounded":
                for name, log in logs.items():
                    case.land(log, name=name)
                case.run_bounded()
            else:
                halves = {name: len(log.entries) // 2 for name, log in logs.items()}
                for name, log in logs.items():
                    case.land(log, 0, halves[name], name=name)
                case.run_unbounded()
                for name, log in logs.items():
                    case.land(log, halves[name], name=name)
                case.run_unbounded()
            return {name: [table] for name, table in case.outputs().items()}


RUNS = tuple(Run(engine, mode) for engine in ("memory", "embedded", "spark") for mode in ("bounded", "unbounded"))
"""Every engine in both modes."""

IN_MEMORY = tuple(run for run in RUNS if run.engine == "memory")
"""The runs in memory, which need no lake."""


def final(tables: Sequence[pa.Table]) -> list[dict[str, Any]]:
    """The rows that are not retracted, without stamps, sorted."""
    remaining: list[tuple[list[tuple[int, Any]], dict[str, Any]]] = []
    for table in tables:
        for row in table.to_pylist():
            values = {name: value for name, value in row.items() if name not in STAMPS}
            ranked = [_rank(value) for value in values.values()]  # as which a NaN is one
            if row["_kind"] == ROW:
                remaining.append((ranked, values))
            elif row["_kind"] != MARKER:
                remaining.pop([rank for rank, _ in remaining].index(ranked))
    return [values for _, values in sorted(remaining, key=lambda one: one[0])]


def _rank(value: Any) -> tuple[int, Any]:
    """A sort key for a column's values, also for None and values that do not compare."""
    match value:
        case None:
            return 0, 0
        case bool() | int() | float() | Decimal() if value == value:  # noqa: PLR0124 - not NaN
            return 1, value
        case datetime() | date():
            return 2, value.isoformat()
        case _:
            return 3, repr(value)
