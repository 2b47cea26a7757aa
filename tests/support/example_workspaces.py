"""Workspaces of ``examples/`` as tests run them: as a stream that is stopped in between, and bounded."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from floodmark.spec.graph.operator import Operator
from floodmark.testing.embedded import EmbeddedCase
from floodmark.testing.log import Log
from floodmark.testing.runs import final

EXAMPLES = Path(__file__).parents[2] / "examples"
START = datetime(2026, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def example(name: str) -> ModuleType:
    """The workspace of an example, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "workspace.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
