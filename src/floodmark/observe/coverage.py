"""A picture of coverage: the asset partitions of operators along time, one strip for each operator, coloured by state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from floodmark.core.errors import ExecutionError
from floodmark.core.time import Interval, from_ms
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.parts import Part, parts
from floodmark.observe import charts
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.values.run import LateRows
from floodmark.spec.workspace import Workspace

COLOURS = {
    "covered": "#3c7d3f",
    "stream": "#1f5f99",
    "frozen": "#7fa3c7",
    "gated": "#b8352c",
    "stale": "#d9a521",
    "open": "#e8e0c8",
    "missing": "#c9c9c9",
}
"""Kind of a stretch -> its colour."""
_LABELS = 6


def kind_of(part: Part) -> str:
    """The kind of a partition in the picture: ``frozen``, ``gated``; ``open`` if nothing has computed it and its inputs may change; else its state."""
    if part.frozen or part.gated:
        return "frozen" if part.frozen else "gated"
    return "open" if part.open and part.state == "missing" else part.state


def picture(assets: Iterable[OperatorAsset], lake: Lake, interval: Interval, late_rows: LateRows = "as_landed") -> str:
    """SVG of the asset partitions of operators in an interval. An operator without asset partitions is left out.

    Args:
        assets: the operators.
        lake: the lake of their tables.
        interval: the event time of interest.
        late_rows: the treatment of late rows that a computation must have used to count.
    """
    strips = dict[str, Sequence[tuple[int, int, str]]]()
    for asset in assets:
        if asset.partitions is None:
            continue
        try:
            every = parts(asset.operator, asset.partitions, lake, interval, late_rows=late_rows)
            strips[asset.operator.name] = list(_joined(every))
        except ExecutionError:  # an input that has never landed: nothing is computed
            strips[asset.operator.name] = [(interval.start, interval.end, "missing")]
    step = (interval.end - interval.start) // _LABELS
    labels = {place: from_ms(place).date().isoformat() for place in range(interval.start, interval.end, max(1, step))}
    return charts.strips(strips, COLOURS, labels)


def connected(workspace: Workspace, operator: str) -> list[OperatorAsset]:
    """The asset of an operator, with those of all operators that it reads and that read it, upstream first."""
    tables = {output.table: asset for asset in workspace.operator_assets for output in asset.operator.outputs}
    chosen = {operator}
    for asset in reversed(workspace.operator_assets):
        if asset.operator.name in chosen:
            chosen |= {tables[one.table].operator.name for one in asset.operator.inputs if one.table in tables}
    behind = {operator}
    for asset in workspace.operator_assets:
        if any(one.table in tables and tables[one.table].operator.name in behind for one in asset.operator.inputs):
            behind.add(asset.operator.name)
    return [asset for asset in workspace.operator_assets if asset.operator.name in chosen | behind]


def _joined(every: Iterable[Part]) -> Iterator[tuple[int, int, str]]:
    """(start, end, kind) of stretches of partitions of one kind, in order."""
    start, end, kind = 0, 0, ""
    for part in every:
        if kind_of(part) == kind and part.interval.start == end:
            end = part.interval.end
            continue
        if kind:
            yield start, end, kind
        start, end, kind = part.interval.start, part.interval.end, kind_of(part)
    if kind:
        yield start, end, kind
