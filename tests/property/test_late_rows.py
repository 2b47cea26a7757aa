"""Late rows of one window are computed at once: the same emissions, bit by bit, as one round of merging per late row."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field

from floodmark import Aggregate, Contract, EventTime, Sliding, Stream, Tumbling, operator
from floodmark.core.errors import ExecutionError
from floodmark.core.time import END
from floodmark.semantics.aggregates import accumulators, running
from floodmark.semantics.aggregates.sketch import KEPT_HASHES
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.kernels.columnar import Stage, pack
from floodmark.semantics.kernels.kernel import ColumnarWindowKernel
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.windowing.aggregates import LAWS, Builtin
from tests.support.aggregate_forms import accepts, declared
from tests.support.late_rounds import RoundsKernel


class Odd(Contract):
    """A column of each kind of arithmetic."""

    at: EventTime
    key: str | None = None
    i: int | None = None
    d: float | None = None
    m: Annotated[Decimal, Field(max_digits=20, decimal_places=2)] | None = None
    t: str | None = None
    b: bool | None = None


class InTurn(Aggregate):
    """Depends on the order in which values come, as an aggregate had better not."""

    type: ClassVar[str] = "string"

    def create(self) -> Any:
        return []

    def add(self, accumulator: Any, value: Any) -> Any:
        return [*accumulator, value]

    def merge(self, left: Any, right: Any) -> Any:
        return [*left, *right]

    def result(self, accumulator: Any) -> Any:
        return repr(accumulator)


class Drift(InTurn):
    """Takes values back."""

    def retract(self, accumulator: Any, value: Any) -> Any:
        return [*accumulator, -value]


TYPES = {"i": "bigint", "d": "double", "m": "decimal(20,2)", "t": "string", "b": "boolean"}
VALUES = {
    "i": st.one_of(st.sampled_from((2**53 + 1, -(2**62), 2**61)), st.integers(-4, 4)),
    "d": st.one_of(
        st.sampled_from((math.nan, math.inf, -math.inf, -0.0, 0.1, 1e16, -1e16, 1e9 + 0.1)), st.floats(-9, 9)
    ),
    "m": st.integers(1 - 10**20, 10**20 - 1).map(lambda units: Decimal(units).scaleb(-2)),
    "t": st.sampled_from(("", "a", "b", "ä")),
    "b": st.booleans(),
}
ROWS = st.lists(
    st.tuples(
        st.sampled_from(("a", "b", None)),
        st.integers(0, 19),  # event time
        st.sampled_from((-20, 9, 14, 19, 29, 60)),  # watermark when it came
        st.integers(0, 9),  # below 3 an older row is taken back with it
        *(st.one_of(st.none(), VALUES[name]) for name in TYPES),
    ),
    min_size=1,
    max_size=25,
)


def stage_of(window: Any, *, revisable: bool, only: Any = None) -> Stage:
    """All aggregates of all columns."""
    measures: dict[str, Any] = {
        f"{name}_{v}": declared(name, v)
        for v, kind in TYPES.items()
        for name, law in LAWS.items()
        if accepts(name, kind) and not law.in_order
    }
    measures |= {"rows": Builtin("count"), "drift": Drift("i")}
    if not revisable:  # a bag has no order of its own
        measures["in_turn"] = InTurn("i")

    @operator(name="odd")
    def odd(rows: Stream[Odd]) -> Stream[Any]:
        return rows.key_by("key").window(window, allowed_lateness="30 ms").aggregate(**(only or measures))

    step = odd.stateful
    assert step is not None
    return Stage.of(step, revisable=revisable)


def log_of(rows: list[Any], *, revisable: bool) -> list[dict[str, Any]]:
    """Rows with rising stamps; an older one that is taken back shares the sequence of the row that replaces it."""
    log: list[dict[str, Any]] = []
    live: list[dict[str, Any]] = []
    top = -20
    for s, (key, time, stamp, back, *values) in enumerate(rows):
        top = max(top, stamp)
        row = {"key": key, "at": time, "w": top, "s": s, "kind": 0, **dict(zip(TYPES, values, strict=True))}
        if revisable and live and back < 3:
            old = live.pop(s % len(live))
            log.append(old | {"w": top, "s": s, "kind": -1})
            row |= {"key": old["key"], "at": old["at"]} if back else {}
        if not (revisable and back == 1):  # else it is only taken back
            log.append(row)
            live.append(row)
    return log


def packed(stage: Stage, rows: list[dict[str, Any]]) -> list[dict[str, pa.Table]]:
    columns = {"group": pa.array([0] * len(rows), pa.int32()), "k0": pa.array([r["key"] for r in rows], pa.string())}
    for name, column, kind in (
        ("t", "at", "bigint"),
        ("w", "w", "bigint"),
        ("s", "s", "bigint"),
        ("kind", "kind", "int"),
    ):
        columns[name] = pa.array([r[column] for r in rows], arrow_type(kind))
    for j, value in enumerate(stage.values):
        columns[f"v{j}"] = pa.array([r[value.sql] for r in rows], arrow_type(value.type))
    return list(pack(stage, [pa.RecordBatch.from_pydict(columns)]).values())


def emissions(kernel: ColumnarWindowKernel, rows: list[dict[str, Any]], bounds: list[int]) -> Iterator[str]:
    """What comes out of each micro-batch; progress is that of the one before."""
    progress = -20
    try:
        for start, stop in itertools.pairwise(bounds):
            batch = rows[start:stop]
            yield repr(kernel.advance(packed(kernel.stage, batch) if batch else [], progress).results.to_pylist())
            progress = max([progress, *(row["w"] for row in batch)])
        yield repr(kernel.advance([], END).results.to_pylist())
    except ExecutionError as error:
        yield error.code


STAGES = {
    (name, revisable): stage_of(window, revisable=revisable)
    for name, window in (("tumbling", Tumbling("10 ms")), ("sliding", Sliding("10 ms", "5 ms")))
    for revisable in (False, True)
}


KEYS_THAT_ALTERNATE = [
    ("b", 12, 29, 9, None, None, None, None, None),
    ("a", 0, 9, 9, None, 0.1, None, "b", True),
    (None, 1, 19, 9, 2**61, None, Decimal("-8.37"), None, True),
    ("b", 12, 14, 9, 2**61, None, None, "", None),
    (None, 1, 9, 9, None, None, None, None, None),
]
"""Arrow's groups of these rows are in another order than the rows."""
NO_VALUES = (None,) * len(TYPES)
SIX_OF_ONE_TIME = [("a", 0, 9, 0, *NO_VALUES), *[("a", 0, -20, 0, *NO_VALUES)] * 5]
"""A row of these revises two windows that slide."""


@pytest.mark.feature("L8")
@pytest.mark.parametrize("program", STAGES, ids=str)
@example(rows=KEYS_THAT_ALTERNATE, cuts=[], small=False)
@example(rows=SIX_OF_ONE_TIME, cuts=[], small=False)
@settings(max_examples=8, deadline=None)
@given(rows=ROWS, cuts=st.lists(st.integers(1, 24), max_size=3), small=st.booleans())
@pytest.mark.few(2)
def test_late_rows_at_once_emit_what_one_round_per_row_emits(
    program: Any, rows: list[Any], cuts: list[int], small: bool
) -> None:
    log = log_of(rows, revisable=program[1])
    inside = {c for c in cuts if c < len(log) and log[c]["s"] != log[c - 1]["s"]}
    bounds = [0, *sorted(inside), len(log)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_BAG_ROWS", 7 if small else 1 << 20)
        at_once, by_round = (
            list(emissions(kind(STAGES[program], MemoryStore()), log, bounds))
            for kind in (ColumnarWindowKernel, RoundsKernel)
        )
    assert at_once == by_round


def test_a_sketch_of_many_values_is_revised_as_round_by_round() -> None:
    stage = stage_of(Tumbling("10 ms"), revisable=False, only={"different": Builtin("approx_count_distinct", "i")})
    row = {"key": "a", "at": 1, "kind": 0}
    log = [row | {"w": -20, "s": s, "i": s} for s in range(KEPT_HASHES - 10)]
    log += [row | {"w": 15, "s": s, "i": s * 7} for s in range(10_000, 10_040)]
    bounds = [0, KEPT_HASHES - 10, len(log)]
    at_once, by_round = (
        list(emissions(kind(stage, MemoryStore()), log, bounds)) for kind in (ColumnarWindowKernel, RoundsKernel)
    )
    assert at_once == by_round


@pytest.mark.parametrize("late", [50, 200])
def test_late_rows_of_one_window_are_merged_once_and_not_with_the_windows_of_other_keys(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(Tumbling("10 ms"), revisable=False, only={"n": Builtin("count"), "total": Builtin("sum", "i")})
    kernel, work = ColumnarWindowKernel(stage, MemoryStore()), []
    row = {"key": "0", "at": 1, "kind": 0, "i": 1}
    kernel.advance(packed(stage, [row | {"key": str(k), "w": -20, "s": k} for k in range(500)]), -20)
    assert kernel.advance([], 15).results.num_rows == 500
    rows = packed(stage, [row | {"w": 15, "s": s} for s in range(1000, 1000 + late)])
    grouped = accumulators.grouped
    monkeypatch.setattr(accumulators, "grouped", lambda table, *by: work.append(table.num_rows) or grouped(table, *by))
    results = kernel.advance(rows, 15).results.to_pylist()
    assert [r["total"] for r in results if r["_kind"] == 0] == list(range(2, late + 2))
    assert len(results) == 2 * late
    assert work == [late], "one group by of the late rows"


def fired_window(stage: Stage, keys: int) -> MemoryStore:
    """What a group holds of one window of so many keys that has fired."""
    store, row = MemoryStore(), {"at": 1, "kind": 0, "i": 1, "w": -20}
    kernel = ColumnarWindowKernel(stage, store)
    kernel.advance(packed(stage, [row | {"key": str(k), "s": k} for k in range(keys)]), -20)
    assert kernel.advance([], 15).results.num_rows == keys
    return store


SUMS = {"total": Builtin("sum", "i"), "median": Builtin("median", "i")}


def test_late_rows_write_what_the_window_has_of_their_keys_and_not_of_the_others() -> None:
    stage = stage_of(Tumbling("10 ms"), revisable=False, only=SUMS)
    written = []
    for keys in (1_000, 100_000):
        store = fired_window(stage, keys)
        for turn in range(8):
            before = dict(store.chunks)
            row = {"at": 1, "kind": 0, "i": 1, "w": 15}
            late = [row | {"key": str(7 * k + turn), "s": keys + 10 * turn + k} for k in range(10)]
            assert ColumnarWindowKernel(stage, store).advance(packed(stage, late), 15).results.num_rows == 20
            written.append(
                sum(len(c) for n, c in store.chunks.items() if before.get(n) is not c) + len(store.head or b"")
            )
    few, many = written[:8], written[8:]
    assert max(many) < 1.2 * max(few)


@pytest.mark.parametrize("keys", [3, 200])
def test_a_fired_window_an_older_release_kept_in_one_chunk_is_revised(keys: int) -> None:
    stage = stage_of(Tumbling("10 ms"), revisable=False, only=SUMS)
    now, before = fired_window(stage, keys), fired_window(stage, keys)
    index = json.loads(before.head or b"")
    index["fired"] = {end: number for end, [[number, _]] in index["fired"].items()}
    before.head = json.dumps(index).encode()
    row = {"at": 1, "kind": 0, "i": 5}
    for turn in range(20):
        late = packed(stage, [row | {"key": str(turn % 5), "w": 15, "s": keys + turn}])
        results = [
            repr(ColumnarWindowKernel(stage, store).advance(late, 15).results.to_pylist()) for store in (now, before)
        ]
        assert results[0] == results[1]
    for store in (now, before):
        ColumnarWindowKernel(stage, store).advance([], END)
        assert store == MemoryStore()
