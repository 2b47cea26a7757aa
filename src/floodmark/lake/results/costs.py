"""What past bounded runs of an operator have cost, kept in a small file beside its coverage: what the next one takes is reckoned from them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace

from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.results.extent import Extent, extent
from floodmark.lake.results.needs import scans
from floodmark.lake.table import entries
from floodmark.lake.table.commits import BoundedRun, decode
from floodmark.lifecycle.rate import NEWEST, Cost
from floodmark.spec.graph.operator import Operator


def past(lake: Lake, operator: str) -> list[Cost]:
    """The costs of the newest bounded runs of an operator, oldest first; none if the file is lost or unreadable."""
    content = read(_file(lake, operator))
    if content is None:
        return []
    with suppress(ValueError, TypeError):
        return [Cost(**cost) for cost in json.loads(content)]
    return []


def reads(operator: Operator, lake: Lake, interval: Interval, versions: Mapping[str, int]) -> Extent:
    """What a bounded run over an interval reads of all inputs.

    Args:
        operator: the operator to compute.
        lake: the lake of its inputs.
        interval: the interval to compute.
        versions: input table -> the version that the run reads.

    Raises:
        FileNotFoundError: a file of an input is gone.
    """
    needed, total = scans(operator, interval), Extent()
    for input_ in operator.inputs:
        total += extent(lake.input(input_), needed, versions[input_.table])
    return total


def written_tables(operator: Operator) -> tuple[str, ...]:
    """The names of all tables that an operator writes: its outputs, and their last values."""
    return tuple(table.table for output in operator.outputs for table in (output, output.current) if table is not None)


@contextmanager
def measured(
    operator: Operator, lake: Lake, engine: str, interval: Interval, versions: Mapping[str, int]
) -> Iterator[None]:
    """Around the computation of an interval: adds its cost to the file, unless it fails.

    Args:
        operator: the operator that is computed.
        lake: the lake of its tables.
        engine: the engine that computes.
        interval: the interval.
        versions: input table -> the version that is read.
    """
    began, before = time.monotonic(), {table: _version(lake, table) for table in written_tables(operator)}
    yield
    cost = Cost(
        engine=engine,
        at=time.time_ns() // 1_000_000,
        files=0,
        rows=0,
        size=0,
        seconds=round(time.monotonic() - began, 3),
        rows_written=0,
        size_written=0,
    )
    with suppress(FileNotFoundError):  # upkeep has removed a file that the run has read
        read_extent = reads(operator, lake, interval, versions)
        cost = replace(cost, files=read_extent.files, rows=read_extent.rows, size=read_extent.size)
        for table, version in before.items():
            rows, size = _added(lake.output(table), version)
            cost = replace(cost, rows_written=cost.rows_written + rows, size_written=cost.size_written + size)
        costs = [*past(lake, operator.name), cost][-NEWEST * 2 :]
        write(_file(lake, operator.name), json.dumps([asdict(one) for one in costs]).encode())


def _version(lake: Lake, table: str) -> int:
    path = lake.output(table)
    return entries.version_of(path) if entries.is_table(path) else -1


def _added(path: str, since: int) -> tuple[int, int]:
    """(rows, bytes) of files that bounded runs have added to a table after a version."""
    rows = size = 0
    if not entries.is_table(path):
        return 0, 0
    for version in range(since + 1, entries.version_of(path) + 1):
        if (log_entry := entries.entry(path, version)) is None:
            continue
        info = entries.commit_info(log_entry)
        if not isinstance(decode(info.get("userMetadata"), f"commit {version} of table {path}"), BoundedRun):
            continue
        for action in entries.actions(log_entry):
            if (add := action.get("add")) is not None:
                rows += int(json.loads(add.get("stats") or "{}").get("numRecords") or 0)
                size += int(add["size"])
    return rows, size


def _file(lake: Lake, operator: str) -> str:
    return lake.internal("costs", f"{operator}.json")
