"""Standing: how far the stream of a source, an operator or a delivery has got, by the commits of its table, and since when it is behind its inputs. Reads no rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from floodmark.core.time import END, NEVER
from floodmark.lake.stream.delivered import Delivered, read_position
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import progress_of

_COMMITS = 50
"""Most commits that are read of one table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a stream has got.

    Args:
        progress: of its table, ms UTC; ``NEVER`` before the first commit.
        at: time of its newest commit, s since 1970; 0 before the first commit.
        lag: event time by which it is behind its inputs, ms; None before its first progress, and while it has not read their end.
        behind_since: time since which each input has commits beyond its progress, s since 1970, as far as their newest commits tell; None if one has none.
    """

    progress: int = NEVER
    at: float = 0.0
    lag: int | None = None
    behind_since: float | None = None


def standing(table: str, inputs: Sequence[str] = ()) -> Standing:
    """How far a stream has got.

    Args:
        table: path of its log, or of its first output.
        inputs: paths of the tables that it reads.
    """
    own = _newest(table)
    if own.progress > NEVER:
        own = replace(own, lag=0)
    unread = [_unread(path, own.progress) for path in inputs]
    if not unread or not all(unread):  # progress is the least of all inputs: one that brings nothing new holds it
        return own
    behind, since = min(some[0][0] for some in unread), max(some[-1][1] for some in unread)
    lag = behind - own.progress if own.progress > NEVER and behind < END else None
    return replace(own, lag=lag, behind_since=since)


def standing_of_delivery(file: str, table: str) -> Standing:
    """How far a delivery has got.

    Args:
        file: with its position.
        table: path of the output that it delivers.
    """
    position, output = read_position(file) or Delivered(), _newest(table)
    progress = position.progress
    own = Standing(progress=progress, at=position.at / 1000)
    if output.progress > NEVER and progress > NEVER:
        own = replace(own, lag=max(0, output.progress - progress) if output.progress < END else None)
    newest = entries.newest(table)
    if newest is None or newest <= position.version:
        return own
    unread = entries.entry(table, position.version + 1)
    since = position.at if unread is None else int(entries.commit_info(unread).get("timestamp", 0))
    return replace(own, behind_since=since / 1000)


def _newest(path: str) -> Standing:
    for commit in history.standing(path, _COMMITS):
        progress = progress_of(commit.record)
        if progress is not None:
            return Standing(progress=progress, at=commit.at / 1000)
    return Standing()


def _unread(path: str, progress: int) -> list[tuple[int, float]]:
    """(progress, time in s) of the newest commits of a table that are beyond a progress, newest first."""
    beyond = list[tuple[int, float]]()
    for commit in history.standing(path, _COMMITS):
        reached = progress_of(commit.record)
        if reached is None:
            continue
        if reached <= progress:
            break
        beyond.append((reached, commit.at / 1000))
    return beyond
