"""The cost of watermark bounds: how many landed rows of a source would be late, or dropped, under other bounds. No JVM.

A row's stamp gives the newest event time at its arrival: stamp + bound + 1. Another bound shifts all stamps alike, so the rows that the bound
would make late are counted in one pass over three columns, in any order, a batch at a time: nothing is simulated or collected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.core.time import NEVER, describe_span
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs.log import bound_of
from floodmark.lake.table import history
from floodmark.lake.table.commits import Landing
from floodmark.observe.charts import curve
from floodmark.semantics.time.delays import Delays, Milliseconds, last_of
from floodmark.semantics.time.learning import BoundEstimate, Decision
from floodmark.spec.rows.source import FromColumn, Learned, Source
from floodmark.spec.values.schema import ROW

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999)
"""Quantiles of delays that serve as bounds if the caller names no bounds."""
MOST_WINDOWS = 100_000
"""The most windows that lose rows in one report."""
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a log, in any order.

    Args:
        moments: event times, ms.
        fronts: the newest event time at the arrival of each row (with several source partitions, that of the slowest active partition), ms;
            NEVER for a row with no earlier row.
    """

    moments: Milliseconds
    fronts: Milliseconds

    @property
    def delays(self) -> Milliseconds:
        """How far each row is behind its front, ms; 0 for a row with no earlier row."""
        behind: Milliseconds = np.maximum(self.fronts - self.moments, 0)
        return behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The windows whose loss is counted.

    Args:
        size: length of the tumbling windows, ms.
        lateness: allowed lateness, ms.
    """

    size: int
    lateness: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one bound.

    Args:
        bound: ms. Also the latency that the bound adds: a window's result waits for an event time this far after the window's end.
        names: why the bound is reported: ``99.9%``, ``in force``, ``proposed``.
        late: number of late rows.
        dropped: number of rows too late for their window; None if no windows are counted.
        windows: number of windows that lose rows; None if no windows are counted.
    """

    bound: int
    names: tuple[str, ...]
    late: int
    dropped: int | None = None
    windows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReport:
    """Bounds and their costs, for the log of one source.

    Args:
        source: name of the source.
        rows: number of rows counted.
        left_out: number of rows not counted: they arrived while the watermark waited for a larger bound, so their stamps do not give their delays.
        in_force: the bound for rows that land next, unless it is changed, ms.
        delays: delays of the rows counted.
        learned: the estimate from the source's landings; None if the source does not learn its bound.
        proposed: the bound at the source's quantile, ms; None if the source does not learn its bound.
        costs: one per bound, smallest bound first.
        lost: start of a window, ms -> rows dropped under each bound of ``costs``. Windows that drop no rows are absent.
    """

    source: str
    rows: int
    left_out: int
    in_force: int
    delays: Delays
    learned: BoundEstimate | None
    proposed: int | None
    costs: tuple[Cost, ...]
    lost: dict[int, list[int]]


def report(source: Source, lake: Lake, *, bounds: Sequence[int] = (), window: Window | None = None) -> BoundReport:
    """Count the landed rows of a source that each bound would make late.

    Args:
        source: the source.
        lake: the lake with the source's log.
        bounds: ms; by default quantiles of the delays. The bound in force and the proposed bound are always added.
        window: also count the rows that windows would drop.

    Raises:
        ExecutionError: EXECUTION-002, nothing has landed.
        CapabilityError: CAPABILITY-021, the watermark has no bound; CAPABILITY-022, too many windows lose rows.
    """
    table, decisions, learned = _landed(source, lake)
    delays, left_out = Delays(), 0
    for rows, out in _scanned(table, decisions):
        delays, left_out = delays.plus(Delays.of(rows.delays)), left_out + out
    proposed = None
    if learned is not None and isinstance(source.watermark, Learned):
        proposed = learned.delays.bound(source.watermark.quantile)
    named = _named(delays, bounds, decisions[-1].bound, proposed)
    costs, lost = weigh((rows for rows, _ in _scanned(table, decisions)), named, window)
    return BoundReport(
        source=source.name,
        rows=delays.rows,
        left_out=left_out,
        in_force=decisions[-1].bound,
        delays=delays,
        learned=learned,
        proposed=proposed,
        costs=costs,
        lost=lost,
    )


def weigh(
    batches: Iterable[Rows], named: dict[int, tuple[str, ...]], window: Window | None = None
) -> tuple[tuple[Cost, ...], dict[int, list[int]]]:
    """Count late and dropped rows for each bound, in one pass.

    Args:
        batches: rows, in any order.
        named: bound, ms -> its names.
        window: also count the rows that these windows would drop; None for late rows only.

    Returns:
        (a cost per bound, smallest bound first; start of a window, ms -> rows dropped under each bound).

    Raises:
        CapabilityError: CAPABILITY-022, too many windows lose rows.
    """
    bounds = np.array(sorted(named), dtype=np.int64)
    late, lost = np.zeros(len(bounds), dtype=np.int64), dict[int, list[int]]()
    for rows in batches:
        late += _beyond(rows.delays, bounds)
        if window is not None:
            _count_lost(rows, bounds, window, lost)
    costs = []
    for at, bound in enumerate(bounds.tolist()):
        cost = Cost(bound=bound, names=named[bound], late=int(late[at]))
        if window is not None:
            losses = [counts[at] for counts in lost.values() if counts[at]]
            cost = replace(cost, dropped=sum(losses), windows=len(losses))
        costs.append(cost)
    return tuple(costs), lost


def fronts(
    watermarks: Milliseconds, sequences: Milliseconds, decisions: Sequence[Decision]
) -> tuple[Milliseconds, npt.NDArray[np.bool_]]:
    """(front of each row, ms; True for each row whose stamp determines its front).

    Args:
        watermarks: the rows' stamps, ms.
        sequences: the rows' order of arrival.
        decisions: the bounds that the log has had, oldest first.
    """
    at = np.searchsorted(np.array([d.sequence for d in decisions]), sequences, side="right") - 1
    bound, held = (np.array([getattr(d, name) for d in decisions], dtype=np.int64)[at] for name in ("bound", "held"))
    waiting = (held > NEVER) & (watermarks <= held)
    return np.where(watermarks == NEVER, NEVER, watermarks + bound + 1), ~waiting


def picture(report: BoundReport) -> str:
    """The share of rows late under every bound, as SVG; both axes are logarithmic."""
    shares = [(bound, rows / max(report.rows, 1)) for bound, rows in _tail(report.delays)]
    none = math.floor(math.log10(min((share for _, share in shares if share), default=1.0))) - 1
    points = [(_across(bound), math.log10(share) if share else float(none)) for bound, share in shares]
    marks = {"in force": _across(report.in_force)}
    if report.proposed is not None:
        marks["proposed"] = _across(report.proposed)
    widest = max([_across(report.delays.largest), *marks.values(), 1.0])
    across = {text: _across(size) for text, size in _SPANS.items() if _across(size) <= widest}
    up = {"none": float(none)} | {f"{100 * 10.0**power:g}%": float(power) for power in range(none + 1, 1)}
    title = f"{report.source}: share of rows late, by the watermark's bound"
    return curve(points, across=across, up=up, marks=marks, title=title)


_SPANS = {"0": 0, "1 s": 1000, "10 s": 10_000, "1 min": 60_000, "10 min": 600_000, "1 h": 3_600_000, "6 h": 21_600_000}
_SPANS |= {"1 day": 86_400_000, "1 week": 604_800_000, "1 month": 2_592_000_000, "1 year": 31_536_000_000}


def _across(bound: int) -> float:
    return math.log10(1 + bound / 1000)


def _tail(delays: Delays) -> list[tuple[int, int]]:
    """(bound, rows late under the bound) for the end of every bucket of delays, up to a bound under which no row is late."""
    buckets = sorted(delays.counts)
    on_time = accumulate(delays.counts[bucket] for bucket in buckets)
    return [(min(last_of(b), delays.largest), delays.rows - n) for b, n in zip(buckets, on_time, strict=True)]


def _named(delays: Delays, bounds: Sequence[int], in_force: int, proposed: int | None) -> dict[int, tuple[str, ...]]:
    wanted = [(bound, "") for bound in bounds]
    if not wanted and delays.rows:
        wanted = [(delays.bound(share), f"{100 * share:g}%") for share in QUANTILES]
    wanted.append((in_force, "in force"))
    if proposed is not None:
        wanted.append((proposed, "proposed"))
    named: dict[int, tuple[str, ...]] = {}
    for bound, name in wanted:
        named[bound] = (*named.get(bound, ()), *([name] if name else []))
    return named


def _beyond(delays: Milliseconds, bounds: Milliseconds) -> Milliseconds:
    """For each bound, the number of rows with a larger delay."""
    counts: Milliseconds = len(delays) - np.searchsorted(np.sort(delays), bounds, side="right")
    return counts


def _count_lost(rows: Rows, bounds: Milliseconds, window: Window, lost: dict[int, list[int]]) -> None:
    """Add to ``lost`` the rows that each window drops: rows that arrive when the watermark is past the window's end plus the allowed lateness."""
    starts = rows.moments - rows.moments % window.size
    behind = rows.fronts - (starts + window.size + window.lateness)
    losing = np.flatnonzero(behind >= bounds[0])
    losing = losing[np.argsort(starts[losing], kind="stable")]
    others = np.flatnonzero(np.diff(starts[losing])) + 1
    for some in np.split(losing, others) if len(losing) else []:
        counts = lost.setdefault(int(starts[some[0]]), [0] * len(bounds))
        counts[:] = [n + int(more) for n, more in zip(counts, _beyond(behind[some], bounds - 1), strict=True)]
    if len(lost) > MOST_WINDOWS:
        fix = "Name larger windows, or larger bounds: --window '1 day'."
        where, expected = f"windows of {describe_span(window.size)}", f"at most {MOST_WINDOWS:,} that lose rows"
        raise CapabilityError(where, expected, f"{len(lost):,} and more", fix, code="CAPABILITY-022")


def _landed(source: Source, lake: Lake) -> tuple[DeltaTable, tuple[Decision, ...], BoundEstimate | None]:
    where, path = f"source '{source.name}'", lake.log(source.name)
    if isinstance(source.watermark, FromColumn):
        fix = "Weigh a source with BoundedOutOfOrderness, Ascending, Punctuated or Learned."
        got = f"FromColumn('{source.watermark.column}'), which says its watermark itself"
        raise CapabilityError(where, "a watermark with a bound", got, fix, code="CAPABILITY-021")
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        table = None
    _, last = next(
        history.standing_of(path, Landing), (None, None)
    )  # read after the table, so that the decisions cover every row of the table
    if last is None or table is None:
        fix = f"Land it first: floodmark land {source.name}"
        raise ExecutionError(where, f"a Delta table at {path}", "none", fix, code="EXECUTION-002")
    if last.state.learned is not None:
        return table, last.state.learned.decisions, last.state.learned
    bound = bound_of(last.definition)
    assert bound is not None
    return table, (Decision(0, bound),), None


def _scanned(table: DeltaTable, decisions: Sequence[Decision]) -> Iterator[tuple[Rows, int]]:
    """(rows, number of rows left out) for each batch of a log."""
    columns = ["_event_time", "_watermark", "_sequence"]
    rows = table.to_pyarrow_dataset().scanner(
        columns=columns,
        filter=ds.field("_kind") == ROW,
        batch_size=_BATCH_ROWS,
        batch_readahead=4,
        fragment_readahead=2,
    )
    for batch in rows.to_batches():
        moments, watermarks, sequences = (batch.column(n).cast(pa.int64()).to_numpy() for n in columns)
        at, known = fronts(watermarks, sequences, decisions)
        yield Rows((moments // 1000)[known], at[known]), int((~known).sum())
