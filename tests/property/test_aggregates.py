"""Random values with odd ones among them, random cuts: every form of every aggregate gives the oracle's answer."""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark import Contract, Cumulative, EventTime, Sliding, Stream, Tumbling, operator
from floodmark.core.errors import ExecutionError
from floodmark.core.time import from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.aggregates.sketch import (
    KEPT_HASHES,
    hash_of,
    hashes_of,
    sketch_add,
    sketch_count,
    sketch_merge,
)
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.spec.windowing.aggregates import LAWS
from floodmark.testing.log import Log
from tests.support.aggregate_forms import FUNCTIONS, NOTHING, accepts, declared, forms
from tests.support.oracle_aggregates import OVERFLOW, answer, same, tolerance

_ODD_INTS = (2**63 - 1, -(2**63), 2**62, -(2**62), 2**53 + 1, 0, 1, -1)
_ODD_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e9 + 0.1, 1e9 + 0.2, 1e16, -1e16, 1.0, 0.1)
_DIGITS = Context(prec=60)

VALUES = {
    "bigint": st.one_of(st.sampled_from(_ODD_INTS), st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5)),
    "int": st.one_of(st.sampled_from((2**31 - 1, -(2**31))), st.integers(-3, 3)),
    "double": st.one_of(
        st.sampled_from(_ODD_FLOATS), st.floats(1e-30, 1e30), st.floats(-1e30, -1e-30), st.floats(1e9, 1e9 + 1)
    ),
    "float": st.one_of(st.sampled_from((math.nan, -0.0, 0.5)), st.floats(-1024, 1024, width=16)),
    "decimal(38,2)": st.one_of(
        st.sampled_from((10**38 - 1, 1 - 10**38, 9 * 10**37, 1)), st.integers(1 - 10**38, 10**38 - 1)
    ).map(lambda units: Decimal(units).scaleb(-2, _DIGITS)),
    "decimal(9,2)": st.integers(1 - 10**9, 10**9 - 1).map(lambda units: Decimal(units).scaleb(-2)),
    "string": st.text(max_size=20).filter(lambda text: not any(0xD800 <= ord(c) < 0xE000 for c in text)),
    "binary": st.binary(max_size=20),
    "boolean": st.booleans(),
    "date": st.dates(),
}


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.few(4)
def test_any_values_in_any_cut_are_aggregated_as_the_oracle_does(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[kind]), min_size=1, max_size=9))
    cuts = data.draw(st.lists(st.integers(1, 9), max_size=3))
    function = data.draw(st.sampled_from([name for name in FUNCTIONS if accepts(name, kind)]))
    wanted, scale = answer(function, kind, values), tolerance(function, values)
    for form, got in forms(function, kind, values, cuts):
        assert got != NOTHING
        assert same(got, wanted, scale), f"{function}, {form}: {got!r}, not {wanted!r}"


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_value_has_one_hash_alone_and_in_a_column(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], max_size=12))
    column = pa.chunked_array([pa.array(values, arrow_type(kind))])
    assert hashes_of(column).to_pylist() == [hash_of(value, kind) for value in column.to_pylist()]
    assert hashes_of(column.slice(1)).to_pylist() == hashes_of(column).to_pylist()[1:]


def test_a_sketch_by_row_is_bounded_and_does_not_depend_on_the_cut() -> None:
    numbers = [hash_of(value, "bigint") for value in range(30_000)]
    whole: set[int] = set()
    for number in numbers:
        whole = sketch_add(whole, number)
        assert len(whole) <= 2 * KEPT_HASHES
    parts: list[set[int]] = [set(), set()]
    for i, number in enumerate(numbers):
        parts[i % 2] = sketch_add(parts[i % 2], number)
    assert sketch_count(sketch_merge(*parts)) == sketch_count(whole)
    assert abs(sketch_count(whole) - 30_000) <= 0.06 * 30_000


class Odd(Contract):
    """A float and an integer under a key that may be NaN."""

    at: EventTime
    key: float | None = None
    d: float | None = None
    i: int | None = None


def _program(window: Any, *, by_row: bool) -> Any:
    """All aggregates of both columns."""
    names = [name for name, law in LAWS.items() if by_row or not law.in_order]
    measures = {f"{name}_{v}": declared(name, v, v) for name in names for v in "di"}

    @operator(name="odd")
    def odd(rows: Stream[Odd]) -> Stream[Any]:
        settings: dict[str, Any] = {"order": "arrival"} if by_row else {}
        return rows.key_by("key").window(window, **settings).aggregate(**measures)

    return odd


PROGRAMS = {
    "tumbling": (_program(Tumbling("10 ms"), by_row=False), lambda t: [t // 10 * 10 + 10]),
    "sliding": (_program(Sliding("20 ms", "10 ms"), by_row=False), lambda t: [t // 10 * 10 + 10, t // 10 * 10 + 20]),
    "cumulative": (
        _program(Cumulative("20 ms", "10 ms"), by_row=False),
        lambda t: [e for e in (t // 20 * 20 + 10, t // 20 * 20 + 20) if e > t],
    ),
    "by row": (_program(Tumbling("10 ms"), by_row=True), lambda t: [t // 10 * 10 + 10]),
}
ROWS = st.lists(
    st.tuples(
        st.integers(0, 29),
        st.sampled_from((math.nan, None, 0.0, -0.0, 1.5)),
        st.one_of(st.none(), VALUES["double"]),
        st.one_of(st.none(), st.sampled_from((2**63 - 1, -(2**63), 2**62, 5)), st.integers(-9, 9)),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=15, deadline=None)
@given(rows=ROWS, cuts=st.lists(st.integers(1, 11), max_size=3))
@pytest.mark.few(2)
def test_any_rows_in_any_micro_batches_give_the_oracles_panes(program: str, rows: list[Any], cuts: list[int]) -> None:
    op, ends = PROGRAMS[program]
    panes: dict[tuple[str, int], list[Any]] = {}
    for row in rows:
        for end in ends(row[0]):
            panes.setdefault((_named(row[1]), end), []).append(row)
    log = Log(op.inputs[0].schema)
    for time, key, d, i in rows:
        log.row({"at": from_ms(time), "key": key, "d": d, "i": i}, time)
    log.end()
    bounds, run = [0, *sorted({c for c in cuts if c < len(rows)}), len(log.entries)], MemoryRun(op)
    batches = (run.batch({"rows": log.table(*part)})[""].to_pylist() for part in itertools.pairwise(bounds))
    if any(answer("sum", "bigint", [row[3] for row in pane]) == OVERFLOW for pane in panes.values()):
        with pytest.raises(ExecutionError, match=OVERFLOW):
            list(batches)
        return
    out = [row for batch in batches for row in batch if row["_kind"] == 0]
    assert sorted((_named(r["key"]), r["_event_time"] + 1) for r in out) == sorted(panes)
    for result in out:
        pane = panes[_named(result["key"]), result["_event_time"] + 1]
        for name, aggregate in op.stateful.aggregates:
            values = [row["di".index(str(aggregate.expression)) + 2] for row in pane]
            kind, function = {"d": "double", "i": "bigint"}[str(aggregate.expression)], aggregate.function
            assert same(result[name], answer(function, kind, values), tolerance(function, values)), name


def _named(key: float | None) -> str:
    return str(key if key is None else key + 0.0)
