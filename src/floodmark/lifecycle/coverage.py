"""Coverage: the stretches of event time that bounded runs have computed, and the stretches that are still missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.core.fingerprint import compare
from floodmark.core.time import Interval
from floodmark.spec.values.run import LateRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One committed bounded run, as the metadata of its commit describes it.

    Args:
        interval: the event time that the run computed.
        version: of the operator, ``name@3f9a2c1b``.
        fingerprint: of the operator.
        late_rows: how the run treated late rows.
        inputs: input table -> the versions that the run read.
        at: time of the commit, for people.
    """

    interval: Interval
    version: str
    fingerprint: str
    late_rows: str
    inputs: Mapping[str, Mapping[str, Any]]
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageCheck:
    """The current definition and inputs, against which computed stretches are checked.

    Args:
        version: of the operator now.
        fingerprint: of the operator now.
        late_rows: the requested treatment of late rows.
        stale: (entry, piece) -> why the rows that the entry read for the piece have changed since; None if they are unchanged.
        pieces: stretch -> the pieces that are decided one by one.
    """

    version: str
    fingerprint: str
    late_rows: LateRows
    stale: Callable[[Entry, Interval], str | None]
    pieces: Callable[[Interval], Iterable[Interval]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of event time that one bounded run computed.

    Args:
        interval: the part of the run's interval that no later run has computed again.
        entry: the run.
        stale: why the stretch must be computed again; empty if the stretch counts as covered.
    """

    interval: Interval
    entry: Entry
    stale: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingIntervals:
    """The stretches that a bounded run has to compute, with reasons.

    Args:
        missing: stretches to compute, in time order.
        covered: stretches to skip, in time order.
        reasons: for people, one per stretch that is skipped or computed again.
    """

    missing: tuple[Interval, ...]
    covered: tuple[Interval, ...]
    reasons: tuple[str, ...]


def todo(interval: Interval, newest_first: Iterable[Entry], now: CoverageCheck) -> MissingIntervals:
    """Decide every stretch of an interval by the newest run that computed it; arguments as of ``segments``."""
    covered, reasons = [], []
    for segment in segments(interval, newest_first, now):
        if segment.stale:
            reasons.append(f"{segment.interval} is computed again: {segment.stale}")
        else:
            covered.append(segment.interval)
            reasons.append(f"{segment.interval} is covered already: by {segment.entry.version} at {segment.entry.at}")
    covered.sort(key=lambda part: part.start)
    return MissingIntervals(missing=tuple(interval.minus(covered)), covered=tuple(covered), reasons=tuple(reasons))


def segments(interval: Interval, newest_first: Iterable[Entry], now: CoverageCheck) -> Iterator[Segment]:
    """Every computed stretch of an interval, each attributed to the newest run that computed the stretch; newest run first.

    Args:
        interval: of event time.
        newest_first: runs whose rows may still be in the table.
        now: the definition and inputs against which the runs are checked.
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
            else [(p, now.stale(entry, p) or "") for part in parts for p in now.pieces(part)]
        )
        yield from (Segment(interval=part, entry=entry, stale=why) for part, why in _joined(pieces))
        if not undecided:
            return


def _joined(pieces: list[tuple[Interval, str]]) -> Iterator[tuple[Interval, str]]:
    """Merges adjacent pieces that have the same reason."""
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
