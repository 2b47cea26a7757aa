"""Keys that grow for ever and state that does not: each key comes in one hour and never again, and what has a time to live is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from events import START, Event

from floodmark import Contract, Operator, ProcessFunction, Stream, ValueState, operator
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state.checkpoint import Checkpoint
from floodmark.engines.embedded.state.store import State
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log

HOURS, LIVING = 24, 4
"""Micro-batches, one an hour; the hours after which a key is forgotten."""


class Seen(Contract):
    """A row, and how often its key was seen."""

    n: int
    value: int


class Counted(ProcessFunction):
    """Each row with how often its key was seen within four hours."""

    seen = ValueState(int, ttl=timedelta(hours=LIVING))

    def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        """Count it."""
        del ctx
        self.seen.update(self.seen.get(0) + 1)
        yield {"n": self.seen.get(), "value": row["value"]}


@operator
def counted(events: Stream[Event]) -> Stream:
    return events.key_by("key").process(Counted(), schema=Seen)


@operator
def firsts(events: Stream[Event]) -> Stream:
    return events.key_by("key").deduplicate(timedelta(hours=LIVING))


def _hour(number: int, keys: int) -> list[dict[str, Any]]:
    """Two rows of each of the hour's keys."""
    begin, seconds = START + timedelta(hours=number), 3600 / (2 * keys)
    return [
        {"at": begin + timedelta(seconds=n * seconds), "key": f"{number}/{n % keys}", "value": n}
        for n in range(2 * keys)
    ]


def _bytes(lake: Lake, code: Operator) -> int:
    """Of all values of the state as of its last micro-batch."""
    state = State(Checkpoint(Timeline.current(lake, code.name).folder(CHECKPOINT)))
    return sum(len(state.get(key) or b"") for key in state.keys())  # noqa: SIM118 - it is no dictionary


@pytest.mark.parametrize("code", [counted, firsts], ids=lambda code: code.name)
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(100, marks=pytest.mark.feature("Z34")),
        pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
@pytest.mark.few(1)
def test_state_with_a_time_to_live_does_not_grow_with_the_keys(
    sail: Sail, lake: Lake, code: Operator, keys: int
) -> None:
    held, log, landed = list[int](), Log(code.inputs[0].schema), 0
    for number in range(HOURS):
        log.rows(_hour(number, keys), "at", 1_000)
        land(lake, code, log, landed, landed := len(log.entries))
        run_unbounded(sail, code, lake, until_caught_up=True)
        held.append(_bytes(lake, code))
    full = held[LIVING + 1]
    assert full > held[0]
    assert max(held[LIVING + 1 :]) < 1.1 * full, held
    rows = outputs(lake, code)[""]
    assert rows.num_rows >= keys * HOURS * (2 if code is counted else 1)
    bounded = Lake(f"{lake.root}-bounded", logs=lake.root)
    run_bounded(sail, code, bounded)
    again = outputs(bounded, code)[""]
    columns = ["key", "n", "value"] if code is counted else ["key", "value"]
    assert _sorted(again, columns) == _sorted(rows, columns)


def _sorted(table: pa.Table, columns: list[str]) -> pa.Table:
    of_rows = table.filter(pc.equal(table["_kind"], ROW)).select(columns)
    return of_rows.sort_by([(name, "ascending") for name in columns])
