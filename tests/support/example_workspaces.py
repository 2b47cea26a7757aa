"""Workspaces of ``examples/`` as tests run them: as a stream that is stopped in between, and bounded."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from engines import embedded

from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.testing.embedded import EmbeddedCase
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

EXAMPLES = Path(__file__).parents[2] / "examples"
START = datetime(2026, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def example(name: str, module: str = "workspace") -> ModuleType:
    """A module of an example, by default its workspace, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"example_{name}_{module}", EXAMPLES / name / f"{module}.py")
    assert spec is not None and spec.loader is not None
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def disordered(rows: list[Row], minutes: int, draw: random.Random) -> list[Row]:
    """Rows in an order in which none is later than so many minutes."""
    return sorted(rows, key=lambda row: row["at"] + timedelta(minutes=draw.uniform(0, minutes)))


def both(code: Operator, rows: list[Row], folder: Path) -> list[list[Row]]:
    """The results of a stream with two stops and of a bounded run."""
    log = Log(code.inputs[0].schema)
    log.rows(rows, "at", 600_000)
    log.end()
    stream, bounded = (EmbeddedCase(code, str(folder / mode)) for mode in ("stream", "bounded"))
    for start, stop in itertools.pairwise([0, len(rows) // 3, 2 * len(rows) // 3, None]):
        stream.land(log, start, stop)
        stream.run_unbounded()
    bounded.land(log)
    bounded.run_bounded()
    return [final([case.outputs()[""]]) for case in (stream, bounded)]


def shown(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    """Some columns, in an order of their own."""
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


def by_key(rows: list[Row], key: str) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each key in order of time."""
    rows_by_key = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["at"]):
        rows_by_key[row[key]].append(row)
    yield from rows_by_key.items()


def chained(
    operators: Sequence[Operator], rows: Mapping[str, list[Row]], folder: Path, engine: Computing | None = None
) -> list[dict[str, list[Row]]]:
    """What a chain of operators writes, output by output: as streams that are stopped twice, and bounded.

    Args:
        operators: in the order in which they read each other.
        rows: source -> its rows in order of arrival, at most ten minutes late.
        folder: for two lakes.
        engine: that computes; None for the embedded one.
    """
    engine = engine or embedded()
    if engine.name == "spark":
        _ship(operators)
    logs, readers = logs_of(operators, rows)
    stream, bounded = (Lake(str(folder / mode)) for mode in ("stream", "bounded"))
    for part in range(3):
        for name, log in logs.items():
            cuts = [0, len(rows[name]) // 3, 2 * len(rows[name]) // 3, None]
            land(stream, readers[name], log, cuts[part] or 0, cuts[part + 1], name=name)
        for code in operators:
            engine.run_unbounded(code, stream, until_caught_up=True)
    for name, log in logs.items():
        land(bounded, readers[name], log, name=name)
    for code in operators:
        engine.run_bounded(code, bounded, Interval())
    return [written(operators, lake) for lake in (stream, bounded)]


def _ship(operators: Sequence[Operator]) -> None:
    """Send the modules of examples to workers of Spark with what is of them: workers cannot import them by their names of their own."""
    from pyspark import cloudpickle

    for code in operators:
        if code.body is not None:
            cloudpickle.register_pickle_by_value(sys.modules[code.body.__module__])


def logs_of(operators: Sequence[Operator], rows: Mapping[str, list[Row]]) -> tuple[dict[str, Log], dict[str, Operator]]:
    """The ended logs of the sources of some operators, and an operator that reads each."""
    logs, readers = dict[str, Log](), dict[str, Operator]()
    for code in operators:
        for given in code.inputs:
            if given.upstream is None and given.name not in logs:
                logs[given.name], readers[given.name] = Log(given.schema), code
                logs[given.name].rows(rows[given.name], "at", 600_000)
                logs[given.name].end()
    return logs, readers


def written(operators: Sequence[Operator], lake: Lake) -> dict[str, list[Row]]:
    """Table -> its last rows, with the event time of each."""
    tables = {}
    for code in operators:
        for name, table in outputs(lake, code).items():
            tables[code.name + (f"__{name}" if name else "")] = final([table])
    return tables
