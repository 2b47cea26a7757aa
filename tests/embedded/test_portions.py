"""Key groups that need not fit into memory: computed portion by portion, out of sorted runs and a store that spills."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from events import Event, disorder
from streams import ONCE, PAIRED, PATTERNED, VISITS, WATCHED

from floodmark import Contract, Operator, Stream, Tumbling, operator
from floodmark.core.errors import ExecutionError
from floodmark.engines.embedded.bounded import files, groups
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.frames.fast import joins
from floodmark.engines.frames.portions import Portions
from floodmark.engines.frames.sorting import sorted_batches
from floodmark.engines.frames.spilled import SpilledStore
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.run import LateRows
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final


class Values(Contract):
    """What a window has."""

    values: list[int]


def _whole(events: Stream[Event]) -> Stream:
    """Each window's rows, all of them at once."""

    def listed(pane: Any, rows: Iterable[Any]) -> Any:
        yield {"values": sorted(row["value"] for row in rows)}

    windowed = events.key_by("key").window(Tumbling("20 minutes"), allowed_lateness="10 minutes")
    return windowed.process(listed, schema=Values)


WHOLE: Operator = operator(_whole, name="whole")


@pytest.mark.feature("K10", "B4")
@pytest.mark.parametrize("late_rows", ["as_landed", "all"])
@pytest.mark.parametrize("code", [WATCHED, VISITS, ONCE, PAIRED, PATTERNED, WHOLE], ids=lambda code: code.name)
@pytest.mark.few(3)
def test_portions_of_a_few_rows_are_the_whole(
    sail: Sail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Operator, late_rows: LateRows
) -> None:
    lake, log = Lake(str(tmp_path)), disorder(code, 3, 400)
    land(lake, code, log)
    expected = {
        name: final([table]) for name, table in MemoryRun(code).batch({code.inputs[0].name: log.table()}).items()
    }
    run_bounded(sail, code, lake, late_rows=late_rows)
    before = {name: final([table]) for name, table in outputs(lake, code).items()}
    monkeypatch.setattr(groups, "Portions", partial(Portions, portion=700, held=500))
    monkeypatch.setattr(files, "_SORTED", 8_000)
    monkeypatch.setattr(joins, "possible", lambda *_: False)  # a plan of the engine before, its kernel now
    run_bounded(sail, code, lake, late_rows=late_rows, force=True)
    after = {name: final([table]) for name, table in outputs(lake, code).items()}
    assert after == before
    assert late_rows == "all" or after == expected
    assert any(after.values())


@pytest.mark.feature("K10")
def test_what_does_not_fit_is_refused_with_its_number(
    sail: Sail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log = Lake(str(tmp_path)), disorder(WHOLE, 3, 400)
    land(lake, WHOLE, log)
    monkeypatch.setattr(groups, "Portions", lambda **work: Portions(**work | {"memory": 3_000}))
    text = r"EXECUTION-120 step '.*', key group \d+: expected at most 0.0 MB of packed state .*, got 0.0 MB at once, of 0.0 MB of state, 0.0 MB of it of key \(key='\w+'\)"
    with pytest.raises(ExecutionError, match=text):
        run_bounded(sail, WHOLE, lake)
    assert not any(table.num_rows for table in outputs(lake, WHOLE).values()), "nothing is written"


@pytest.mark.parametrize("memory", [100, 3_000, 1_000_000])
@pytest.mark.parametrize("seed", range(5))
def test_rows_on_disk_are_sorted_as_rows_in_memory(seed: int, memory: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([0, 1, 5, 900])
    rows = [(rng.choice([0, 1, 1, 1, 7]), rng.randint(-5, 5), number) for number in range(size)]
    table = pa.table(
        {name: pa.array([row[n] for row in rows], pa.int64()) for n, name in enumerate(("group", "at", "row"))}
    )
    batches = table.to_batches(max_chunksize=rng.choice([1, 7, 1000]))
    got = [
        tuple(row.values()) for batch in sorted_batches(batches, ("group", "at"), memory) for row in batch.to_pylist()
    ]
    assert [row[:2] for row in got] == sorted(row[:2] for row in rows)
    assert sorted(got) == sorted(rows)


@pytest.mark.parametrize("seed", range(5))
def test_a_store_that_spills_has_what_was_put_last(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.engines.frames.spilled._COMPACT_BYTES", 2_000)
    rng, store, kept = random.Random(seed), SpilledStore(300, 1 << 30), dict[int, bytes]()
    for _ in range(2_000):
        number = rng.randrange(30)
        if number in kept and rng.random() < 0.3:
            store.remove(number)
            del kept[number]
        else:
            kept[number] = rng.randbytes(rng.randrange(1, 90))
            store.put(number, kept[number])
    assert {number: store.get(number) for number in kept} == kept
    assert store.size == sum(map(len, kept.values()))
    assert store.written < 20 * store.size, "what was removed is not kept for ever"
    store.close()
