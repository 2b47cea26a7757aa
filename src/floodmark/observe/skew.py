"""Skew of a stream: the share of its rows that one key group has, and so one core computes. From the records of its newest micro-batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import history
from floodmark.lake.table.commits import MicroBatch
from floodmark.spec.graph.operator import Operator

_HOT, _ENOUGH = 0.25, 1_000
"""Share of rows from which a key group is told of, and rows from which a share says something."""
_LOOK_BACK = 50
"""Commits that are read, newest first."""


class Skew(NamedTuple):
    """The key group with the most rows of some micro-batches. Rows are counted where it is the hottest of a micro-batch: its share is at least this."""

    group: int
    share: float
    rows: int
    """Rows of all key groups."""

    @property
    def matters(self) -> bool:
        """Whether to tell people."""
        return self.share >= _HOT and self.rows >= _ENOUGH

    def __str__(self) -> str:
        return f"key group {self.group} has {self.share:.0%} of the newest {self.rows:,} rows, which one core computes"


def skew_of(operator: Operator, batches: Iterable[MicroBatch]) -> Skew | None:
    """The skew of some micro-batches; None without rows, or for an operator whose rows are not divided by key."""
    counted, rows = [batch.hottest for batch in batches if batch.hottest is not None], Counter[int]()
    for hottest in counted:
        rows[hottest.group] += hottest.rows
    if not operator.stages or not operator.stages[0].keys or not rows:
        return None
    ((group, most),) = rows.most_common(1)
    total = sum(hottest.of for hottest in counted)
    return Skew(group, round(most / total, 3), total)


def newest_skew(operator: Operator, lake: Lake) -> Skew | None:
    """The skew of a stream's newest micro-batches."""
    path = lake.output(operator.outputs[0].table)
    return skew_of(operator, (record for _, record in history.standing_of(path, MicroBatch, _LOOK_BACK)))
