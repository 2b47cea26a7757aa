"""What bounded runs have computed already, and what is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.core.fingerprint import compare
from floodmark.core.time import Interval
from floodmark.spec.run import LateRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One committed bounded run, as its commit's metadata tells it.

    Args:
        interval: what it computed.
        version: of the operator, ``name@3f9a2c1b``.
        fingerprint: of the operator.
        late_rows: how it treated late rows.
        inputs: input table -> what was read of it.
        at: when, for people.
    """

    interval: Interval
    version: str
    fingerprint: str
    late_rows: str
    inputs: Mapping[str, Mapping[str, Any]]
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What computed stretches are held against.

    Args:
        version: of the operator now.
        fingerprint: of the operator now.
        late_rows: asked for.
        stale: why what an entry read for a piece is no longer there; None when it is.
        cut: a stretch into pieces that are decided one by one.
    """

    version: str
    fingerprint: str
    late_rows: LateRows
    stale: Callable[[Entry, Interval], str | None]
    cut: Callable[[Interval], Iterable[Interval]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of event time that one bounded run computed.

    Args:
        interval: the part of it no later run has computed again.
        entry: the run.
        stale: why it does not count any more; empty when it does.
    """

    interval: Interval
    entry: Entry
    stale: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """What a bounded run has to compute, and why.

    Args:
        missing: in time order.
        covered: in time order; nothing is done there.
        reasons: for people, one per stretch that is skipped or computed again.
    """

    missing: tuple[Interval, ...]
    covered: tuple[Interval, ...]
    reasons: tuple[str, ...]


def todo(interval: Interval, newest_first: Iterable[Entry], now: Now) -> Todo:
    """Decide every stretch of an interval by the newest run that computed it; arguments as of ``segments``."""
    covered, reasons = [], []
    for found in segments(interval, newest_first, now):
        if found.stale:
            reasons.append(f"{found.interval} is computed again: {found.stale}")
        else:
            covered.append(found.interval)
            reasons.append(f"{found.interval} is covered already: by {found.entry.version} at {found.entry.at}")
    covered.sort(key=lambda part: part.start)
    return Todo(missing=tuple(interval.minus(covered)), covered=tuple(covered), reasons=tuple(reasons))


def segments(interval: Interval, newest_first: Iterable[Entry], now: Now) -> Iterator[Segment]:
    """Every stretch of an interval that was computed, by the newest run that did; newest run first.

    Args:
        interval: asked for.
        newest_first: runs whose rows may still be in the table.
        now: what they are held against.
    """
    undecided = [interval]
    for entry in newest_first:
        parts = [part for piece in undecided if (part := _overlap(piece, entry.interval))]
        if not parts:
            continue
        undecided = [left for piece in undecided for left in piece.minus([entry.interval])]
        same = compare(entry.fingerprint, now.fingerprint)
        if same == "other":
            why = f"the code changed: it was computed by {entry.version}, now it is {now.version}"
        elif same == "unknown":
            why = f"another release of floodmark computed it, as {entry.version}; its code cannot be compared with {now.version}"
        elif entry.late_rows != now.late_rows:
            why = f"it was computed with late rows {entry.late_rows}, now asked for {now.late_rows}"
        else:
            why = ""
        pieces = (
            [(part, why) for part in parts]
            if why
            else [(p, now.stale(entry, p) or "") for part in parts for p in now.cut(part)]
        )
        yield from (Segment(interval=part, entry=entry, stale=why) for part, why in _joined(pieces))
        if not undecided:
            return


def _joined(pieces: list[tuple[Interval, str]]) -> Iterator[tuple[Interval, str]]:
    """Neighbours with one verdict as one."""
    held: tuple[Interval, str] | None = None
    for piece, why in pieces:
        if held is not None and held[1] == why and held[0].end == piece.start:
            held = Interval(start=held[0].start, end=piece.end), why
            continue
        if held is not None:
            yield held
        held = piece, why
    if held is not None:
        yield held


def _overlap(a: Interval, b: Interval) -> Interval | None:
    start, end = max(a.start, b.start), min(a.end, b.end)
    return Interval(start=start, end=end) if start < end else None
