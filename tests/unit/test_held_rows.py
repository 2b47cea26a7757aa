"""Rows that wait for progress: however many micro-batches bring them, few chunks hold them, and they come out as if they had come at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

import floodmark as fm
from floodmark.core.time import END, from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.encoding.plain import pack, unpack
from floodmark.semantics.kernels import arrivals, kernel
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.values.schema import MARKER
from floodmark.testing.log import Log, Logs


class Event(fm.Contract):
    """A keyed number."""

    at: fm.EventTime
    key: str
    n: int


@fm.operator
def late_rows(fast: fm.Stream[Event], slow: fm.Stream[Event]) -> fm.Stream:
    """Rows that are late by their stamps wait until the other input lets their window fire."""
    windowed = fast.union(slow).key_by("key").window(fm.Tumbling("1 second"), allowed_lateness="1 hour")
    return windowed.aggregate(n=fm.sum("n"), least=fm.min("n"))


@fm.operator
def sessions(fast: fm.Stream[Event], slow: fm.Stream[Event]) -> fm.Stream:
    """Rows of several inputs come in order of their times."""
    return fast.union(slow).key_by("key").window(fm.Session("5 milliseconds")).aggregate(n=fm.sum("n"))


@fm.operator
def pairs(fast: fm.Stream[Event], slow: fm.Stream[Event]) -> fm.Stream:
    """Rows wait for partners."""
    return fast.key_by("key").interval_join(slow.key_by("key"), "-1 second", "1 second", kind="full", prefix="slow_")


AHEAD = {late_rows.name: 2_000, sessions.name: -1, pairs.name: -1}
"""By how much the watermark of the fast input is before its rows, ms."""


def lasting(operator: fm.Operator, run: MemoryRun, logs: Logs, batches: range) -> None:
    """Micro-batches of one row of the fast input each, while the other one stands still."""
    for number in batches:
        start, time = len(logs.order), number * 7
        logs.logs["fast"].watermark = time + AHEAD[operator.name]
        logs.row("fast", {"at": from_ms(time), "key": "abc"[number % 3], "n": number}, time)
        run.batch(logs.tables(start))


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows and retractions, in an order of their own."""
    found = [row for row in rows if row["_kind"] != MARKER]
    stamps = {"_watermark", "_progress", "_sequence"}
    return sorted((tuple(row[name] for name in row if name not in stamps) for row in found), key=repr)


def chunks(run: MemoryRun) -> int:
    return sum(len(store.chunks) for store in run.state.stores.values())


@pytest.mark.parametrize("batches", [150, pytest.param(2_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("operator", [late_rows, sessions, pairs], ids=lambda one: one.name)
def test_chunks_do_not_grow_with_micro_batches(operator: fm.Operator, batches: int) -> None:
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    run, once = MemoryRun(operator), MemoryRun(operator)
    lasting(operator, run, logs, range(batches))
    assert 3 <= chunks(run) <= 36, "one for each doubling of the rows of each of three keys"
    once.batch(logs.tables(0))
    found, expected = list[dict[str, Any]](), list[dict[str, Any]]()
    for time in [*range(0, batches * 7, batches), END]:
        start = len(logs.order)
        logs.move(time)
        for one, rows in ((run, found), (once, expected)):
            rows.extend(one.batch(logs.tables(start))[""].to_pylist())
    assert told(found) == told(expected)
    assert told(found)
    assert chunks(run) == 0


def as_before(store: MemoryStore) -> None:
    """An index as a release has written it that did not count the rows of its chunks."""
    text = store.index()
    assert text is not None
    if text.startswith(b"{"):
        store.put_index(
            json.dumps({name: part for name, part in json.loads(text).items() if name != "waiting"}).encode()
        )
        return
    codec, extra, *rest = unpack(text)
    store.put_index(pack((codec, {name: part for name, part in extra.items() if name != "sizes"}, *rest)))


@pytest.mark.parametrize("operator", [late_rows, sessions], ids=lambda one: one.name)
def test_chunks_an_older_release_has_left_are_merged(operator: fm.Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    run = MemoryRun(operator)
    with monkeypatch.context() as patch:
        for module in (kernel, arrivals):
            patch.setattr(module, "TOGETHER", 0)
        lasting(operator, run, logs, range(60))
    assert chunks(run) == 60
    for store in run.state.stores.values():
        as_before(store)
    lasting(operator, run, logs, range(60, 63))
    assert chunks(run) <= 3
