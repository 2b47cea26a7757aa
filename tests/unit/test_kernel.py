"""The kernel against a slow oracle: random disorder, random cuts into micro-batches, random progress in between."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any, ClassVar

import oracle_windows as oracle
import pyarrow as pa
import pytest

from floodmark import (
    Aggregate,
    Calendar,
    Contract,
    EventTime,
    Global,
    Sliding,
    Stream,
    Tumbling,
    approx_count_distinct,
    count,
    count_distinct,
    max,
    mean,
    min,
    operator,
    stddev,
    sum,
)
from floodmark.core.errors import ExecutionError
from floodmark.core.time import END
from floodmark.semantics.kernels.columnar import Stage, pack
from floodmark.semantics.kernels.kernel import ColumnarWindowKernel
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph.operator import Operator
from floodmark.spec.windowing.windows import Window

DAY = 86_400_000


class Event(Contract):
    """A keyed number."""

    at: EventTime
    key: str | None
    v: int | None


class Range(Aggregate):
    """Largest minus smallest."""

    type: ClassVar[str] = "bigint"

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        low, high = accumulator or (value, value)
        return [value if value < low else low, value if value > high else high]

    def merge(self, left: Any, right: Any) -> Any:
        return self.add(self.add(left, right[0]), right[1])

    def result(self, accumulator: Any) -> Any:
        return accumulator[1] - accumulator[0] if accumulator else None


FUNCTIONS = ["count", "count_values", "sum", "min", "max", "mean", "stddev", "count_distinct", "range"]


def define(window: Window, lateness: int) -> Operator:
    @operator
    def windowed(events: Stream[Event]) -> Stream:
        return (
            events.key_by("key")
            .window(window, allowed_lateness=f"{lateness}ms", late="side_output")
            .aggregate(
                count=count(),
                count_values=count("v"),
                sum=sum("v"),
                min=min("v"),
                max=max("v"),
                mean=mean("v"),
                stddev=stddev("v"),
                count_distinct=count_distinct("v"),
                range=Range("v"),
            )
        )

    return windowed


def stage_of(window: Window, lateness: int, *, revisable: bool = False) -> Stage:
    step = define(window, lateness).stateful
    assert step is not None
    return Stage.of(step, revisable=revisable)


def rows_of(seed: int, *, revisable: bool, unit: int = 1) -> list[dict[str, Any]]:
    """Rows with stamps as landing (or an upstream operator with refires) gives them."""
    rng, rows, top = random.Random(seed), [], -20
    for s in range(rng.randint(20, 80)):
        t = (s + rng.choice([0, 0, 0, -2, -4, -9, -15, -30])) * unit
        stamp = top - 4 * unit
        row = {
            "key": rng.choice(["a", "b", None]),
            "t": t,
            "v": rng.choice([None, *range(-3, 9)]),
            "w": stamp,
            "s": s,
            "kind": 0,
        }
        if revisable and rows and rng.random() < 0.3:
            old = rng.choice([r for r in rows if r["kind"] == 0])
            gone = old.get("gone")
            if not gone:
                late = {"w": stamp, "s": s}
                rows.append({k: v for k, v in old.items() if k != "gone"} | late | {"kind": -1, "p": stamp})
                old["gone"] = True
                row = {k: v for k, v in old.items() if k != "gone"} | late | {"v": rng.choice(range(20))}
        rows.append(row | {"p": stamp})
        top = row["t"] if row["t"] > top else top
    return rows


def batch(stage: Stage, rows: list[dict[str, Any]], marker: int | None = None) -> pa.RecordBatch:
    """Rows as the host sees them, with a marker among them."""
    n = len(stage.accumulators.values)
    columns: dict[str, Any] = {"group": [0 for _ in rows], "k0": [r["key"] for r in rows]}
    columns |= {name: [r[name] for r in rows] for name in ("t", "w", "s", "kind")}
    columns |= {f"v{j}": [r["v"] for r in rows] for j in range(n)}
    columns["side"] = [f"{r['key']}/{r['t']}/{r['s']}/{r['kind']}" for r in rows]
    if marker is not None:
        columns = {k: [*v, {"w": marker, "kind": 1}.get(k)] for k, v in columns.items()}
    types = {"group": pa.int32(), "k0": pa.string(), "kind": pa.int32(), "side": pa.string()}
    return pa.RecordBatch.from_pydict({k: pa.array(v, types.get(k, pa.int64())) for k, v in columns.items()})


def run_kernel(
    stage: Stage, rows: list[dict[str, Any]], rng: random.Random | None
) -> tuple[list[dict[str, Any]], list[str], Counter[int]]:
    """Feed the rows in random cuts; progress lags by one batch, as in a stream."""
    kernel, panes, side, dropped, known, position = (
        ColumnarWindowKernel(stage, MemoryStore()),
        [],
        [],
        Counter(),
        -(10**12),
        0,
    )
    while position < len(rows) or known < END:
        size = rng.choice([0, 1, 1, 2, 3, 7, 20]) if rng else len(rows)
        while 0 < position + size < len(rows) and rows[position + size]["s"] == rows[position + size - 1]["s"]:
            size += 1  # a retraction pair is written, and so read, together
        chunk, position = rows[position : position + size], position + size
        cuts = [chunk[i : i + 5] for i in range(0, len(chunk), 5)] if rng else [chunk]
        if rng:
            rng.shuffle(cuts)
        packed = [pack(stage, [batch(stage, cut, marker=0)]).get(0, {}) for cut in cuts if cut]
        side += [text for part in packed if "side" in part for text in part["side"]["side"].to_pylist()]
        for part in packed:
            if "dropped" in part:
                dropped.update(
                    dict(zip(part["dropped"]["end"].to_pylist(), part["dropped"]["n"].to_pylist(), strict=True))
                )
        emission = kernel.advance([part for part in packed if part], known)
        panes += emission.results.to_pylist()
        known = END if position >= len(rows) else sorted([known, *(r["p"] for r in chunk)])[-1] if chunk else known
        if position >= len(rows) and known == END:
            emission = kernel.advance([], END)
            panes += emission.results.to_pylist()
            assert emission.deadline is None
            break
    assert not kernel.store.chunks, "all state is freed at the end"  # type: ignore[attr-defined]
    return panes, side, dropped


def shown(panes: list[dict[str, Any]], functions: list[str], end_of: Any) -> list[dict[str, Any]]:
    return [
        {
            "key": (p["key"], end_of(p)),
            "value": tuple(p[f] for f in functions),
            "w": p["_watermark"],
            "kind": p["_kind"],
        }
        for p in panes
    ]


def same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    order = lambda r: (r["key"][1], str(r["key"][0]))  # noqa: E731
    ours, theirs = (
        sorted(ours, key=order),
        sorted(theirs, key=order),
    )  # stable: panes of one key and window keep their order
    assert [(r["key"], r["w"], r["kind"]) for r in ours] == [(r["key"], r["w"], r["kind"]) for r in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for x, y in zip(a["value"], b["value"], strict=True):
            assert (x is None) == (y is None) and (x is None or math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-12)), (a, b)


def ends_of_grid(size: int, slide: int, offset: int) -> Any:
    return lambda t: [s + size for s in range(t - size + 1, t + 1) if (s - offset) % slide == 0]


GRIDS = [(5, 5, 0), (10, 10, 3), (6, 2, 0), (7, 3, -1), (3, 5, 0)]


@pytest.mark.parametrize(
    ("lateness", "revisable"),
    [
        (0, False),
        pytest.param(30, True, marks=pytest.mark.feature("W1", "W2", "W3", "W11", "L6", "L7", "L8", "B9")),
        *(pytest.param(*some, marks=pytest.mark.soak) for some in ((0, True), (4, False), (4, True), (30, False))),
    ],
)
@pytest.mark.parametrize(("size", "slide", "offset"), GRIDS)
@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2)),
    ],
)
@pytest.mark.few(3)
def test_every_pane_is_the_oracles_however_the_rows_are_cut(
    size: int, slide: int, offset: int, lateness: int, revisable: bool, seed: int
) -> None:
    window = (
        Tumbling(f"{size}ms", f"{offset}ms") if size == slide else Sliding(f"{size}ms", f"{slide}ms", f"{offset}ms")
    )
    stage = stage_of(window, lateness, revisable=revisable)
    rows = rows_of(seed, revisable=revisable)
    panes, side, dropped = oracle.run(rows, ends_of_grid(size, slide, offset), lateness, FUNCTIONS)
    for cut in range(4):
        rng = random.Random(seed * 100 + cut) if cut else None
        ours, our_side, our_dropped = run_kernel(stage, rows, rng)
        same(shown(ours, FUNCTIONS, lambda p: p["_event_time"] + 1), panes)
        assert sorted(our_side) == sorted(f"{r['key']}/{r['t']}/{r['s']}/{r['kind']}" for r in side)
        assert +our_dropped == +dropped
    late = sum_(p["w"] != p["key"][1] - 2 for p in panes) + len(side)
    assert late, "the case is empty: nothing was late"


def sum_(values: Any) -> int:
    return len([v for v in values if v])


@pytest.mark.parametrize("lateness", [0, 20 * 3_600_000])
def test_calendar_days_follow_the_clocks(lateness: int) -> None:
    from datetime import UTC, datetime, timedelta
    from zoneinfo import ZoneInfo

    zone = ZoneInfo("America/New_York")
    start = datetime(2013, 3, 9, 12, tzinfo=UTC)

    def ends(t: int) -> list[int]:
        local = datetime.fromtimestamp(t / 1000, zone)
        midnight = datetime(local.year, local.month, local.day) + timedelta(days=1)
        return [int(midnight.replace(tzinfo=zone).timestamp() * 1000)]

    stage = stage_of(Calendar("day", "America/New_York"), lateness)
    for seed in range(4):
        rows = rows_of(seed, revisable=False, unit=3_600_000)
        for row in rows:
            for name in ("t", "w", "p"):
                row[name] += int(start.timestamp() * 1000)
        panes, _, dropped = oracle.run(rows, ends, lateness, FUNCTIONS)
        for cut in range(3):
            ours, _, our_dropped = run_kernel(stage, rows, random.Random(cut) if cut else None)
            same(shown(ours, FUNCTIONS, lambda p: p["_event_time"] + 1), panes)
            assert +our_dropped == +dropped
        lengths = {p["window_end"] - p["window_start"] for p in ours if p["window_start"].astimezone(zone).day == 10}
        assert lengths <= {timedelta(hours=23)}


@pytest.mark.feature("W9")
def test_global_fires_only_at_the_end_of_input() -> None:
    stage = stage_of(Global(), 0)
    kernel = ColumnarWindowKernel(stage, MemoryStore())
    rows = rows_of(1, revisable=False)
    emission = kernel.advance([pack(stage, [batch(stage, rows)])[0]], 10**9)
    assert emission.results.num_rows == 0
    assert emission.deadline == END
    panes = kernel.advance([], END).results.to_pylist()
    assert {p["key"]: p["count"] for p in panes} == Counter(r["key"] for r in rows)


def test_a_sum_that_leaves_bigint_is_an_error_and_not_wrapped_around() -> None:
    stage = stage_of(Tumbling("10ms"), 0)
    rows = [{"key": "a", "t": 1, "v": 2**62, "w": -10, "s": s, "kind": 0} for s in range(3)]
    packed = pack(stage, [batch(stage, rows)])
    with pytest.raises(ExecutionError, match="EXECUTION-001 sum '[a-z_]+' of 'v' of key key=a"):
        ColumnarWindowKernel(stage, MemoryStore()).advance(list(packed.values()), END)


def test_approximate_count_is_exact_for_few_and_near_for_many() -> None:
    @operator
    def visitors(events: Stream[Event]) -> Stream:
        return events.window(Tumbling("1 day")).aggregate(visitors=approx_count_distinct("v"))

    step = visitors.stateful
    assert step is not None
    stage = Stage.of(step, revisable=False)
    for n in (10, 4096, 50_000):
        rng = random.Random(n)
        hashes = [rng.randrange(-(2**63), 2**63) for _ in range(n)]
        found = set()
        for cuts in (1, 7):
            size = -(-n // cuts)
            kernel = ColumnarWindowKernel(stage, MemoryStore())
            parts = []
            for i in range(0, n, size):
                chunk = hashes[i : i + size]
                columns = {"t": [1] * len(chunk), "w": [-9] * len(chunk), "s": list(range(len(chunk))), "v0": chunk}
                table = {k: pa.array(v, pa.int64()) for k, v in columns.items()}
                table |= {
                    "group": pa.array([0] * len(chunk), pa.int32()),
                    "kind": pa.array([0] * len(chunk), pa.int32()),
                }
                parts.append(pack(stage, [pa.RecordBatch.from_pydict(table)])[0])
            found.add(kernel.advance(parts, END).results["visitors"][0].as_py())
        (estimate,) = found
        assert abs(estimate - n) <= (0 if n <= 4096 else 0.06 * n)
