"""Logs of sources with one column, landed without Spark: the rules of the lander around the real walk, written by delta-rs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from floodmark.core.time import NEVER
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs.log import bound_of
from floodmark.lake.table.commits import Landing, encode
from floodmark.semantics.time.watermarks import (
    WHOLE,
    Trace,
    WatermarkState,
    advance,
    candidates,
    decide,
    delays_of,
    forget_idle,
    unclamped,
)
from floodmark.spec.rows.source import Learned, Source

_MICROSECONDS = pa.timestamp("us", tz="UTC")
Row = tuple[int, str]
"""Event time, ms, and source partition."""


def trace(rows: Sequence[Row], bound: int) -> Trace:
    """Rows as watermarks with that bound see them."""
    moments = np.array([moment for moment, _ in rows], dtype=np.int64)
    return Trace(candidates(moments, bound=bound), [key for _, key in rows])


def learn(
    state: WatermarkState, rows: Sequence[Row], *, now: int = 0, idle_timeout: int | None = None
) -> tuple[list[int], WatermarkState]:
    """The stamps of more rows of a source that learns its bound, and the state after them."""
    assert state.learned is not None
    given = trace(rows, state.learned.bound)
    stamps, after = advance(state, given, now=now, idle_timeout=idle_timeout)
    apart, then = advance(unclamped(state), given, now=now, idle_timeout=idle_timeout)
    learned = state.learned.measured(then.watermark, delays_of(apart, given.candidates))
    return stamps.tolist(), replace(after, learned=learned)


def land(source: Source, lake: Lake, rows: Sequence[Row], last: Landing | None = None, *, now: int = 0) -> Landing:
    """Land rows as one commit behind ``last``."""
    last = last or Landing(source=source.name)
    bound = source.watermark.bound  # type: ignore[union-attr]  # the tests' sources have one
    state, before = last.state, last.next_sequence
    seen = [(moment, key if source.partition_by else WHOLE) for moment, key in rows]
    if isinstance(source.watermark, Learned):
        state = decide(state, bound=bound, was=bound_of(last.definition), sequence=before)
        stamps, state = learn(state, seen, now=now, idle_timeout=source.idle_timeout)
    else:
        walked, state = advance(state, trace(seen, bound), now=now, idle_timeout=source.idle_timeout)
        stamps = walked.tolist()
    landing = Landing(
        source=source.name,
        ordinal=last.ordinal + 1,
        next_sequence=before + len(rows) + 1,
        state=forget_idle(state),
        rows=len(rows),
        definition=source.canonical(),
        fingerprint=source.fingerprint,
    )
    said = CommitProperties(custom_metadata={"userMetadata": encode(landing)})
    Path(lake.log(source.name)).parent.mkdir(parents=True, exist_ok=True)
    write_deltalake(lake.log(source.name), _table(rows, stamps, landing), mode="append", commit_properties=said)
    return landing


def _table(rows: Sequence[Row], stamps: Sequence[int], landing: Landing) -> pa.Table:
    watermarks, first = [*stamps, landing.state.watermark], landing.next_sequence - len(rows) - 1
    return pa.table(
        {
            "sensor": pa.array([*(key for _, key in rows), None], pa.string()),
            "_event_time": pa.array([*(moment * 1000 for moment, _ in rows), None], _MICROSECONDS),
            "_watermark": pa.array(watermarks, pa.int64()),
            "_progress": pa.array(watermarks, pa.int64()),
            "_sequence": pa.array(range(first, landing.next_sequence), pa.int64()),
            "_kind": pa.array([*(0 for _ in rows), 1], pa.int32()),
        }
    )


def late(rows: Sequence[Row], bound: int) -> int:
    """Rows that a bound makes late, by the definition: its walk from the beginning, each row against its own stamp."""
    stamps, _ = advance(WatermarkState(), trace(rows, bound), now=0)
    return sum(moment <= stamp for (moment, _), stamp in zip(rows, stamps.tolist(), strict=True) if stamp > NEVER)
