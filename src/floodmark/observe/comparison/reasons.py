"""Known reasons why rows of two arms differ: late rows that one arm has not used, another definition of a column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import entries
from floodmark.lifecycle.comparison import Comparison, Row, Sample
from floodmark.lifecycle.experiment import Arm
from floodmark.spec.values.schema import ROW

_BOUNDS = ("window_start", "window_end")


def explained(comparison: Comparison, table: str, arms: tuple[Arm, Arm]) -> Comparison:
    """The comparison with the known reasons of each sample added.

    Args:
        comparison: comparison of an output of two arms.
        table: name of the output's table.
        arms: (left, right) arm.
    """
    late = [_late_rows(table, arm) for arm in arms]
    samples = (
        replace(
            one, why="; ".join(_reasons(one, [_counted(side, one, comparison.grain) for side in late], table, arms))
        )
        for one in comparison.samples
    )
    return replace(comparison, samples=tuple(samples))


def _reasons(sample: Sample, late: Sequence[int], table: str, arms: tuple[Arm, Arm]) -> Iterator[str]:
    if sample.left is None or sample.right is None:
        yield f"{arms[0 if sample.left is None else 1].name} has no such row"
    for arm, count in zip(arms, late, strict=True):
        if count and late[0] != late[1]:
            yield f"{count:,} rows came too late in {arm.name}, and are in {table}__late"
    if sample.left is not None and sample.right is not None:
        names = [name for name, value in sample.left.items() if value != sample.right.get(name)]
        yield f"differs in {', '.join(names)}"
        for arm in arms:
            for line in arm.differs:
                if any(re.search(rf"\b{re.escape(name)}\b", line) for name in names):
                    yield f"{arm.name} defines it otherwise: {line}"


def _late_rows(table: str, arm: Arm) -> DeltaTable | None:
    path = Lake(arm.root).output(f"{table}__late")
    return DeltaTable(path) if entries.is_table(path) else None


def _counted(late: DeltaTable | None, sample: Sample, grain: Sequence[str]) -> int:
    """Number of late rows with the keys and in the window of a row; 0 if the row has no window."""
    row: Row = sample.left or sample.right or {}
    start, end = (row.get(name) for name in _BOUNDS)
    if late is None or not isinstance(start, datetime) or not isinstance(end, datetime):
        return 0
    rows = late.to_pyarrow_dataset()
    chosen = (pc.field("_kind") == ROW) & (pc.field("_event_time") >= start) & (pc.field("_event_time") < end)
    for name in grain:
        if name in rows.schema.names and name not in _BOUNDS and row[name] is not None:
            chosen &= pc.field(name) == row[name]
    return int(rows.count_rows(filter=chosen))
