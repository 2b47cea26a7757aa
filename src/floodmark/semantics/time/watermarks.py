"""Watermarks: how the rows of a source move its time, exactly and in any split.

A landing keeps one :class:`WatermarkState` per source, in the metadata of its commits. Each row has a *candidate*: the
watermark it asks for (:func:`candidates`), NEVER where it asks for none. :func:`advance` walks over candidates in arrival
order and gives every row its stamp: the watermark in force just before it.

Where the source learns its bound, the state also holds a :class:`~floodmark.semantics.time.learning.BoundEstimate`. A bound only shifts a
candidate, so how far a row comes behind the newest one before it is its stamp less its candidate, whatever the bound is.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from floodmark.core.time import END, NEVER
from floodmark.semantics.time.delays import Delays, Milliseconds
from floodmark.semantics.time.learning import BoundEstimate, Decision

WHOLE = ""
"""The key of the only source partition of a source without ``partition_by``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """What is known of one source partition.

    Args:
        watermark: the largest candidate of its rows, ms; NEVER before the first.
        seen: when its last row landed, ms by the landing clock.
        idle: it has left the minimum.
    """

    watermark: int = NEVER
    seen: int = NEVER
    idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkState:
    """The watermark of a source and what it was made from.

    Args:
        watermark: of the source, ms; never goes back.
        partitions: by key; WHOLE where the source has no ``partition_by``. Landing commits leave out those that
            :func:`forget_idle` forgets.
        learned: delays and decisions, where the source learns its bound.
    """

    watermark: int = NEVER
    partitions: dict[str, SourcePartition] = field(default_factory=dict)
    learned: BoundEstimate | None = None

    def as_json(self) -> dict[str, Any]:
        """For a commit's metadata."""
        partitions = {key: [p.watermark, p.seen, int(p.idle)] for key, p in self.partitions.items()}
        learned = {} if self.learned is None else {"learned": self.learned.as_json()}
        return {"watermark": self.watermark, "partitions": partitions, **learned}

    @staticmethod
    def from_json(value: dict[str, Any]) -> WatermarkState:
        """The state that :meth:`as_json` wrote."""
        partitions = {
            key: SourcePartition(watermark=watermark, seen=seen, idle=bool(idle))
            for key, (watermark, seen, idle) in value["partitions"].items()
        }
        learned = BoundEstimate.from_json(value["learned"]) if "learned" in value else None
        return WatermarkState(watermark=value["watermark"], partitions=partitions, learned=learned)


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows in arrival order, as far as they matter for watermarks.

    Args:
        candidates: ms, one per row.
        partitions: the key of each row's source partition; None when there is only one.
    """

    candidates: Milliseconds
    partitions: Sequence[str] | None = None

    @property
    def only(self) -> str | None:
        """The source partition of all rows; None if there are several."""
        if self.partitions is None:
            return WHOLE
        keys = set(self.partitions)
        return keys.pop() if len(keys) == 1 else None

    def as_json(self) -> dict[str, Any]:
        """For the few numbers a worker sends to the driver."""
        keys = None if self.partitions is None else list(self.partitions)
        return {"candidates": self.candidates.tolist(), "partitions": keys}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Trace:
        """The trace that :meth:`as_json` wrote."""
        return Trace(np.array(value["candidates"], dtype=np.int64), value["partitions"])


def candidates(moments: Milliseconds, *, bound: int = 0, moves: npt.NDArray[np.bool_] | None = None) -> Milliseconds:
    """The watermark each row asks for: its event time - bound - 1 ms.

    Args:
        moments: event times, ms.
        bound: how far behind a row others may come, ms; 0 for ascending times.
        moves: rows that move the watermark at all (punctuated); None is all of them.
    """
    asked = np.clip(moments, NEVER + bound + 1, END - 1) - bound - 1
    return asked if moves is None else np.where(moves, asked, NEVER)


def candidates_from_column(values: Milliseconds, valid: npt.NDArray[np.bool_]) -> Milliseconds:
    """The watermark each row states itself; a null states none. END is kept for the end of input."""
    return np.where(valid, np.clip(values, NEVER, END - 1), NEVER)


def leave_idle(state: WatermarkState, *, now: int, idle_timeout: int | None) -> WatermarkState:
    """The state once source partitions unseen for ``idle_timeout`` have left the minimum.

    When all are idle nobody holds the watermark back: it becomes the largest of theirs.

    Source: Flink, ``WatermarkStrategy.withIdleness`` and ``StatusWatermarkValve``.
    """
    if idle_timeout is None:
        return state
    partitions = {
        key: replace(p, idle=True) if not p.idle and now - p.seen >= idle_timeout else p
        for key, p in state.partitions.items()
    }
    active = [p.watermark for p in partitions.values() if not p.idle]
    combined = min(active) if active else max((p.watermark for p in partitions.values()), default=NEVER)
    return replace(state, watermark=max(state.watermark, combined), partitions=partitions)


def follow_clock(state: WatermarkState, *, now: int, idle_timeout: int) -> WatermarkState:
    """The state of a source all of whose partitions are idle and that has nothing new at ``now``: ``idle_timeout`` behind the clock.

    It moves by no less than ``idle_timeout``, so that markers stay few.

    Source: Beam, ``CustomTimestampPolicyWithLimitedDelay``: without a backlog the watermark is the clock less the delay.
    """
    waits = any(not p.idle for p in state.partitions.values()) or not state.partitions
    return state if waits or now - state.watermark < 2 * idle_timeout else replace(state, watermark=now - idle_timeout)


def forget_idle(state: WatermarkState) -> WatermarkState:
    """The state without the idle source partitions that can no longer move the watermark: every later stamp is the same.

    The watermark only ever takes the largest of itself and of a minimum (or, with all idle, a maximum) over source partitions, so a
    partition counts as the larger of its own watermark and the source's. A partition at or below the source's counts the same
    with its old watermark as with none, when it returns too, as the source's never goes back. Where the source learns its bound,
    delays are walked from the :func:`unclamped` watermark, which another bound shifts together with the partitions, so a
    partition has to be at or below that one. One partition always stays: it says that rows have landed (:func:`follow_clock`).
    """
    reached = state.watermark if state.learned is None else min(state.watermark, state.learned.unclamped())
    needed = {key: p for key, p in state.partitions.items() if not p.idle or p.watermark > reached}
    if not needed and state.partitions:
        last = max(state.partitions, key=lambda key: (state.partitions[key].seen, key))
        needed = {last: state.partitions[last]}
    return state if len(needed) == len(state.partitions) else replace(state, partitions=needed)


def advance(
    state: WatermarkState, trace: Trace, *, now: int, idle_timeout: int | None = None
) -> tuple[Milliseconds, WatermarkState]:
    """Walk over rows in arrival order.

    Args:
        state: before the first row.
        trace: the rows.
        now: the landing clock, ms; all rows of a commit see the same.
        idle_timeout: ms; None: no source partition ever goes idle.

    Returns:
        The watermark in force just before each row, and the state after the last. Walking over two pieces, one after the
        other at the same ``now``, gives the same as walking over both at once.
    """
    state = leave_idle(state, now=now, idle_timeout=idle_timeout)
    if not len(trace.candidates):
        return trace.candidates, state
    only = trace.only
    if only is not None:
        return _advance_one(state, trace.candidates, only, now)
    assert trace.partitions is not None
    return _advance_several(state, trace.candidates, trace.partitions, now)


def decide(state: WatermarkState, *, bound: int, was: int | None, sequence: int) -> WatermarkState:
    """The state of a source that learns its bound, once ``bound`` is the one in force.

    The watermark never decreases: a larger bound holds it where it is until maximum event time - bound reaches it; a smaller one moves
    it at once. Source partitions are shifted, as candidates are made with the bound.

    Args:
        state: after the last row stamped under another bound.
        bound: ms.
        was: the fixed bound before the source learned its bound, ms; None if nothing had landed.
        sequence: of the next row.
    """
    learned = state.learned or _unlearned(state, was)
    before = learned.bound if learned.decisions else bound
    if learned.decisions and before == bound:
        return replace(state, learned=learned)
    by = before - bound
    partitions = {key: replace(p, watermark=_shifted(p.watermark, by)) for key, p in state.partitions.items()}
    learned = learned.decided(Decision(sequence, bound))
    if learned.unclamped() < state.watermark:
        learned = replace(learned, decisions=(*learned.decisions[:-1], Decision(sequence, bound, state.watermark)))
    return WatermarkState(watermark=max(state.watermark, learned.unclamped()), partitions=partitions, learned=learned)


def _unlearned(state: WatermarkState, was: int | None) -> BoundEstimate:
    """The learning of a source that has had a fixed bound, or has not landed yet."""
    if was is None:
        return BoundEstimate()
    front = NEVER if state.watermark == NEVER else state.watermark + was + 1
    return BoundEstimate(front=front, decisions=(Decision(0, was),))


def _shifted(watermark: int, by: int) -> int:
    return NEVER if watermark == NEVER else min(max(watermark + by, NEVER), END - 1)


def unclamped(state: WatermarkState) -> WatermarkState:
    """The state with its unclamped watermark, which follows from the bound in force alone: for measuring delays."""
    assert state.learned is not None
    return replace(state, watermark=state.learned.unclamped())


def delays_of(stamps: Milliseconds, asked: Milliseconds) -> Delays:
    """The histogram of how far rows are behind the newest row before them.

    Args:
        stamps: the watermark in force just before each row, walked from an :func:`unclamped` state, ms.
        asked: the candidate of each, ms.
    """
    return Delays.of(stamps - asked)  # a candidate is at least NEVER, so rows before which nothing came have no delay


def compress(trace: Trace) -> Trace:
    """The fewest rows that move any state as the whole trace does.

    Between two first appearances of source partitions the set of active ones cannot change, so the minimum only grows and
    the largest candidate of each is all that matters; the newcomer comes first, because it may hold the others back.
    """
    if not len(trace.candidates):
        return trace
    if (only := trace.only) is not None:
        return Trace(trace.candidates.max(keepdims=True), None if trace.partitions is None else [only])
    assert trace.partitions is not None
    keys, first, index = np.unique(np.asarray(trace.partitions, dtype=object), return_index=True, return_inverse=True)
    starts = np.sort(first)
    stops = [*starts[1:], len(index)]
    values, rows = [], []
    for start, stop in zip(starts, stops, strict=True):
        present, inverse = np.unique(index[start:stop], return_inverse=True)
        largest = np.full(len(present), NEVER, dtype=np.int64)
        np.maximum.at(largest, inverse, trace.candidates[start:stop])
        order = np.argsort(present != index[start], kind="stable")
        values.append(largest[order])
        rows.append(present[order])
    return Trace(np.concatenate(values), [str(key) for key in keys[np.concatenate(rows)]])


def _advance_one(state: WatermarkState, asked: Milliseconds, key: str, now: int) -> tuple[Milliseconds, WatermarkState]:
    """All rows are of one source partition: the others hold the watermark where they are."""
    others = min((p.watermark for name, p in state.partitions.items() if name != key and not p.idle), default=END)
    before = state.partitions.get(key, SourcePartition()).watermark
    own = np.maximum(np.maximum.accumulate(asked), before)
    after = np.maximum(np.minimum(own, others), state.watermark)
    stamps = np.empty_like(after)
    stamps[0], stamps[1:] = state.watermark, after[:-1]
    partitions = {**state.partitions, key: SourcePartition(watermark=int(own[-1]), seen=now)}
    return stamps, replace(state, watermark=int(after[-1]), partitions=partitions)


def _advance_several(
    state: WatermarkState, asked: Milliseconds, keys: Sequence[str], now: int
) -> tuple[Milliseconds, WatermarkState]:
    """Row by row with a heap of the active watermarks; an entry that its source partition has outgrown is dropped lazily."""
    current = {key: p.watermark for key, p in state.partitions.items()}
    active = {key for key, p in state.partitions.items() if not p.idle}
    heap = [(current[key], key) for key in active]
    heapq.heapify(heap)
    overall, touched = state.watermark, set()
    stamps = np.empty_like(asked)
    for row, (value, key) in enumerate(zip(asked.tolist(), keys, strict=True)):
        stamps[row] = overall
        touched.add(key)
        before = current.get(key, NEVER)
        if value <= before and key in active:
            continue
        current[key] = max(value, before)
        active.add(key)
        heapq.heappush(heap, (current[key], key))
        while heap[0][0] != current[heap[0][1]]:
            heapq.heappop(heap)
        overall = max(overall, heap[0][0])
    partitions = {
        **state.partitions,
        **{key: SourcePartition(watermark=current[key], seen=now) for key in touched},
    }
    return stamps, replace(state, watermark=overall, partitions=partitions)
