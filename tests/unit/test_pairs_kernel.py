"""Joins in columns against the kernel that goes row by row: equal rows, in any order within a call, equal state, and either reads what the other kept."""

from __future__ import annotations

import random
import re
from unittest.mock import patch

import pyarrow as pa
import pytest
from kernel_pairs import POOLS, Event, advanced, cut, rows_of, stored, together

import floodmark as fm
from floodmark.core.time import Interval
from floodmark.semantics.kernels.elements import Clip, ProcessStage
from floodmark.semantics.kernels.functions import sides
from floodmark.semantics.kernels.functions.pairs import PairsKernel
from floodmark.semantics.kernels.functions.regular import RegularJoinKernel
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.rows.contract import schema
from floodmark.spec.values.schema import RETRACTION, ROW, TAG

FIELDS = ("text", "share", "value", "large", "amount", "since", "right")


def joined(keys=("value",), kind="inner", on="", fields=FIELDS, **settings):
    """A regular join of two logs of values of many types."""

    @fm.operator(name="joined")
    def build(lefts: fm.Stream[Event], rights: fm.Stream[Event]) -> fm.Stream:
        other = rights.select(*dict.fromkeys((*keys, *fields)))
        return lefts.key_by(*keys).regular_join(other.key_by(*keys), kind=kind, on=on, prefix="r_", **settings)

    return build


def stage(operator, clip=None) -> ProcessStage:
    return ProcessStage(stage_of(operator).step, by_time=False, clip=clip)


def pools(stage: ProcessStage, few: int) -> dict[str, object]:
    """For each column of both sides values of its type; keys of few values, so that many rows meet."""
    by_type = {column.type: POOLS.get(column.name, (0, 5_000_000)) for column in schema(Event).columns}
    made = {column.name: by_type.get(column.type, (0,)) for column in stage.step.parent.schema.columns}
    made |= {name: made[name][: few + 1] for name in stage.step.keys}
    return made | {TAG: (0, 1)}


def drawn(stage, rng, groups=1, taken_back=0.0):
    """Rows; some of them, and some that never came, are taken back."""
    rows = rows_of(stage, rng, groups, pools(stage, rng.choice([1, 2, 4])))
    if not taken_back:
        return rows
    gone = [place for place in range(rows.num_rows) if rng.random() < taken_back]
    whole = pa.concat_batches([rows, rows.take(pa.array(gone, pa.int64()))])
    late = [place + rng.randrange(-3, 40) for place in gone]
    order = sorted(range(whole.num_rows), key=lambda place: [*range(rows.num_rows), *late][place])
    kinds = [RETRACTION if place >= rows.num_rows or rng.random() < 0.02 else ROW for place in order]
    whole = whole.take(pa.array(order)).set_column(4, "kind", pa.array(kinds, pa.int32()))
    return whole.set_column(3, "s", pa.array(range(whole.num_rows), pa.int64()))


def sorted_rows(all_emitted):
    """The rows of each call sorted: kernels may differ in their order."""

    def ordered(emitted):
        rows, *others = emitted
        whole = [re.sub(r", '_order': \d+}", "}", row) for row in re.split(r"(?<=}), ", rows[1:-1])]
        return sorted(whole), *others

    return [ordered(emitted) for emitted in all_emitted]


def turns(kernels, stage, parts):
    """As ``advanced``, the rows of each call sorted."""
    return sorted_rows(advanced(kernels, stage, parts))


def check(stage, parts):
    """The kernel gives what the one by row does, and either reads what the other has kept."""
    expected = turns([RegularJoinKernel], stage, parts)
    for kernels in ([PairsKernel], [PairsKernel, RegularJoinKernel], [RegularJoinKernel, PairsKernel]):
        assert turns(kernels, stage, parts) == expected


@pytest.mark.feature("J6", "Q1")
@pytest.mark.parametrize("most", [64, 2])
@pytest.mark.parametrize("keys", [("value",), ("share", "text"), ("large",), ("amount", "right"), ("since",)], ids=str)
def test_rows_and_state_are_those_of_the_kernel_by_row(keys, most):
    for seed in range(4):
        rng = random.Random(f"{keys} {seed}")
        clip = Clip(interval=Interval(start=1010, end=1040), read=Interval(start=0, end=10_000)) if seed % 2 else None
        own = stage(joined(keys, fields=rng.choice([FIELDS, FIELDS[:1], ()])), clip)
        assert type(kernel_of(own, MemoryStore())) is PairsKernel
        with patch.multiple(sides, MOST=most, FEWEST=1):
            check(own, list(cut(drawn(own, rng), rng)))


@pytest.mark.feature("J6", "Q1")
@pytest.mark.parametrize("taken_back", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["inner", "left", "right", "full", "semi", "anti"])
def test_outer_and_one_sided_joins_and_rows_that_are_taken_back_are_those_of_the_kernel_by_row(kind, taken_back):
    for seed in range(6):
        rng = random.Random(f"{kind} {seed}")
        own = stage(joined(rng.choice([("value",), ("share",)]), kind, fields=rng.choice([FIELDS, FIELDS[:1]])))
        assert type(kernel_of(own, MemoryStore())) is PairsKernel
        with patch.multiple(sides, MOST=rng.choice([2, 64]), FEWEST=1):
            check(own, list(cut(drawn(own, rng, taken_back=taken_back), rng)))
            own = stage(joined(("text", "value"), kind))
            groups = list(cut(drawn(own, rng, 4, taken_back), rng))
            made, expected = (together(kernel, own, groups, 4) for kernel in (PairsKernel, RegularJoinKernel))
            assert sorted_rows(made) == sorted_rows(expected)


@pytest.mark.feature("J6", "Q1")
@pytest.mark.parametrize("most", [64, 2])
@pytest.mark.parametrize("kind", ["inner", "left", "right", "full", "semi", "anti"])
def test_retractions_that_wait_for_their_rows_keep_no_row_from_its_first_partner(kind, most):
    """More retractions than rows, or as many, lie on a side in several parts when the first row of the other side comes."""
    own = stage(joined(("value",), kind, fields=("text",)))
    for seed, (gone, there, side) in enumerate([(40, 40, 0), (40, 30, 0), (40, 41, 0), (40, 40, 1), (3, 3, 0)]):
        rng = random.Random(f"{kind} {most} {seed}")
        first = [(side, f"gone {number}", RETRACTION) for number in range(gone)]
        first += [(side, f"there {number}", ROW) for number in range(there)]
        later = [(1 - side, "other", ROW), *((side, f"gone {number}", ROW) for number in range(0, gone, 2))]
        columns = drawn(own, rng).schema
        rows, others = (written(columns, rows, 1000 + 100 * at) for at, rows in enumerate((first, later)))
        with patch.multiple(sides, MOST=most, FEWEST=1):
            check(own, [(rows, 900), (others, 900)])
            check(own, [(rows, 900), (others.slice(0, 1), 900), (others.slice(1), 900)])
            emitted = sum(made.results.num_rows for made in counted(own, [rows, others])[1])
            assert emitted or (kind, side) == ("anti", 1)  # there the rows that come have a partner


def written(columns, rows, since):
    """(the columns of a stage, (side, text, kind) of rows, time of the first) -> the rows, all of one key."""
    fields = [field.name for field in columns.field("row").type]
    structs = [
        dict.fromkeys(fields) | {"value": 1, TAG: side, "_right_text" if side else "_left_text": text}
        for side, text, _ in rows
    ]
    count, names = len(rows), {"t": range(since, since + len(rows)), "s": range(since, since + len(rows))}
    values = names | {
        "group": [0] * count,
        "w": [900] * count,
        "kind": [kind for _, _, kind in rows],
        "k0": [1] * count,
        "v0": [side for side, _, _ in rows],
        "row": structs,
    }
    return pa.RecordBatch.from_arrays([pa.array(list(values[own.name]), own.type) for own in columns], schema=columns)


@pytest.mark.feature("J6", "Q1")
def test_key_groups_in_one_call_give_what_they_give_one_by_one():
    for seed in range(5):
        rng = random.Random(seed)
        own = stage(joined(("text", "value")))
        parts = list(cut(drawn(own, rng, 4), rng))
        with patch.multiple(sides, MOST=rng.choice([2, 64]), FEWEST=1):
            made, expected = (together(kernel, own, parts, 4) for kernel in (PairsKernel, RegularJoinKernel))
            assert sorted_rows(made) == sorted_rows(expected)


def counted(own, batches):
    """(rows of each batch that went row by row, results) of batches one after the other."""
    store, numbers, results = MemoryStore(), [], []
    rest = RegularJoinKernel._rows_and_ticks

    def by_row(kernel, arrivals, start, stop, moves):
        numbers[-1] += stop - start
        rest(kernel, arrivals, start, stop, moves)

    with patch.object(RegularJoinKernel, "_rows_and_ticks", by_row):
        for batch in batches:
            numbers.append(0)
            made = PairsKernel(own, store).advance(list(own.pack([batch]).values()), 5_000)
            results.append(made)
    return numbers, results, store


@pytest.mark.feature("J6", "Q1")
def test_only_rows_of_keys_that_have_a_row_twice_go_one_by_one():
    own = stage(joined())
    for seed in range(6):
        batch = drawn(own, random.Random(seed))
        keys = [key for key in batch["k0"].to_pylist() if key is not None]
        if not keys:
            continue
        twice = batch.filter(pa.array([key == keys[0] for key in batch["k0"].to_pylist()]))
        again = pa.concat_batches([batch, twice.set_column(3, "s", pa.array(range(100, 100 + twice.num_rows)))])
        same = keys.count(keys[0])
        assert counted(own, [batch])[0] == [0]
        assert counted(own, [again])[0] == [2 * same]
        assert counted(own, [batch, twice])[0] == [0, same]
        _, results, store = counted(own, [batch, twice, again])
        expected = MemoryStore()
        for rows, made in zip([batch, twice, again], results, strict=True):
            given = RegularJoinKernel(own, expected).advance(list(own.pack([rows]).values()), 5_000)
            names = [name for name in given.results.column_names if name != "_order"]
            assert sorted(map(repr, made.results.select(names).to_pylist())) == sorted(
                map(repr, given.results.select(names).to_pylist())
            )
            assert (made.late, made.deadline) == (given.late, given.deadline)
        assert stored(store) == stored(expected)


@pytest.mark.feature("J6", "Q1")
def test_of_too_many_pairs_rows_go_one_by_one():
    own, rng = stage(joined()), random.Random(1)
    parts = list(cut(drawn(own, rng), rng))
    with patch("floodmark.semantics.kernels.functions.pairs._MOST_PAIRS", 0):
        check(own, parts)


def test_joins_with_a_condition_or_an_end_of_rows_go_row_by_row():
    others = [joined(on="value < r_large"), joined(kind="semi", on="value < r_large"), joined(ttl="1 hour")]
    for operator in others:
        assert type(kernel_of(stage_of(operator), MemoryStore())) is RegularJoinKernel
