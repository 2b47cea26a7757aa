"""Cases of patterns as streams: patterns of Flink's together in one operator, programs and statements one after the other, over commits that are cut at random.

As a program, pattern_runs.py ENGINE FOLDER GROUP, it runs the streams of a group until they have caught up, one commit per micro-batch; a test may kill it.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
from attrs import frozen
from pattern_cases import (
    CASES,
    MANY,
    NOON,
    PROGRAMS,
    Named,
    expected_of,
    identity_of,
    log_of,
    program_of,
    rows_of,
    told_by,
    whole,
)
from table_programs import ARRIVAL, PATTERNS, QUIET

import floodmark as fm
from floodmark.engines.embedded.sail.session import shared
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import ROW
from floodmark.spec.workspace import Engine
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log

TOGETHER = 6
"""Cases of a group."""
CLOCK = ARRIVAL["after"] + QUIET
"""Processing time of every run, ms."""
SAMPLE = ("program/late rows and keys that end", "program/time-outs since the previous row")
Rows = Counter[Any]


class Numbered(Named):
    """A row of one of several cases."""

    case: int


@frozen
class Stream:
    """An operator with its log and what it must write.

    Args:
        operator: it.
        logs: input -> its rows.
        expected: what stands for its results.
        results: (lake) -> its results, as ``expected`` has them.
    """

    operator: Operator
    logs: dict[str, Log]
    expected: Any
    results: Callable[[Lake], Any]

    def land(self, lake: Lake, draw: random.Random) -> None:
        """Write the logs in three to five commits, of any number of rows, if there are as many rows."""
        for name, log in self.logs.items():
            size = len(log.entries)
            cuts = sorted(draw.sample(range(1, size), min(size - 1, draw.randint(2, 4))))
            for start, stop in zip([0, *cuts], [*cuts, size], strict=True):
                land(lake, self.operator, log, start, stop, name=name)


@cache
def streams(group: str) -> tuple[Stream, ...]:
    """The streams of a group: one for all of its patterns, one for each program and statement."""
    kind, number = group.split()
    cases = list(GROUPS[kind])[int(number) * TOGETHER :][:TOGETHER]
    if kind == "patterns":
        return (_together(cases),)
    return tuple(_statement(case) if isinstance(case, str) else _program(case) for case in cases)


def _together(cases: list[dict[str, Any]]) -> Stream:
    """An operator with a pattern for each case, and their rows in order of time."""

    @fm.operator(name="cases")
    def all_cases(rows: fm.Stream[Numbered]) -> fm.Stream:
        matched = []
        for number, case in enumerate(cases):
            pattern, skip = whole(case)
            keyed = rows.filter(f"`case` = {number}").key_by("case")
            found = keyed.pattern(pattern, skip=skip, most=MANY, sequence="number", uid=f"case_{number}")
            matched.append(found.select(rows="collect(number)"))
        together, *others = matched
        for other in others:
            together = together.union(other)
        return together

    rows = [
        row | {"case": number, "at": NOON + timedelta(milliseconds=row["time"])}
        for number, case in enumerate(cases)
        for row in rows_of(case)
    ]
    log = Log(all_cases.inputs[0].schema)
    log.rows(sorted(rows, key=lambda row: row["at"]), "at", 0)
    log.end()
    identities = [identity_of(case) for case in cases]

    def shown(case: int, numbers: list[int]) -> tuple[int, tuple[Any, ...]]:
        return case, tuple(sorted(map(identities[case], numbers)))

    def results(lake: Lake) -> Rows:
        table = outputs(lake, all_cases)[""].to_pylist()
        return Rows(shown(row["case"], row["rows"]) for row in table if row["_kind"] == ROW)

    expected = Rows(shown(number, match) for number, case in enumerate(cases) for match in case["expect"])
    return Stream(all_cases, {"rows": log}, expected, results)


def _program(case: dict[str, Any]) -> Stream:
    operator = program_of(case)

    def results(lake: Lake) -> list[Any]:
        return told_by(case, outputs(lake, operator))

    return Stream(operator, {"rows": log_of(case, operator)}, expected_of(case), results)


def _statement(name: str) -> Stream:
    program = PATTERNS.program(name)
    logs, _ = program.logs(prompt=True)

    def results(lake: Lake) -> Rows:
        return program.net([outputs(lake, program.operator)[""]])

    return Stream(program.operator, logs, program.expected()[-1], results)


def statements() -> Iterator[str]:
    """The statements that pass and go by event time."""
    for name, verdict in PATTERNS.verdicts.items():
        tables = PATTERNS.programs[name].get("tables", {})
        by_clock = any("clock" in definition or not definition.get("time") for definition in tables.values())
        if verdict == {"verdict": "passed"} and tables and not by_clock:
            yield name


GROUPS = {
    "patterns": [case for case in CASES if not case.get("fails")],
    "programs": PROGRAMS,
    "statements": list(statements()),
    "single": [case for case in PROGRAMS if case["name"] == SAMPLE[0]],
    "sample": [*(case for case in PROGRAMS if case["name"] in SAMPLE), "testRowPattern#1"],
}
NUMBERS = [f"{kind} {number}" for kind, cases in GROUPS.items() for number in range(-(-len(cases) // TOGETHER))]


def lakes(folder: str, group: str) -> Iterator[tuple[Stream, Lake]]:
    """The streams of a group, each with its lake."""
    for number, stream in enumerate(streams(group)):
        yield stream, Lake(f"{folder}/{number}")


def main(engine: Engine, folder: str, group: str) -> None:
    """Run until caught up."""
    if engine == "spark":
        sys.path.append(str(Path(__file__).resolve().parents[1] / "crash"))
        from borrowed import borrow

        borrow()
    run(engine, folder, group)


def run(engine: Engine, folder: str, group: str) -> None:
    """Run all streams of a group until they have caught up, one commit per micro-batch."""
    for stream, lake in lakes(folder, group):
        settings: dict[str, Any] = {"until_caught_up": True, "files_per_batch": 1, "clock": CLOCK}
        if engine == "spark":
            from pyspark.sql import SparkSession

            from floodmark.engines.spark.unbounded.run import run_unbounded as on_spark

            on_spark(SparkSession.builder.getOrCreate(), stream.operator, lake, **settings)
        else:
            from floodmark.engines.embedded.unbounded.run import run_unbounded as on_embedded

            on_embedded(shared(300), stream.operator, lake, **settings)


if __name__ == "__main__":
    main(cast("Engine", sys.argv[1]), *sys.argv[2:])
