"""After a match: which partial matches of the same rows are discarded. Source: Flink ``AfterMatchSkipStrategy``."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from floodmark.core.fingerprint import OMITTED, Declared

Strategy = Literal["no_skip", "skip_to_next", "skip_past_last_event", "skip_to_first", "skip_to_last"]


@frozen
class Skip(Declared):
    """A skip strategy.

    Args:
        strategy: its name.
        stage: the stage whose row ``skip_to_first`` and ``skip_to_last`` continue at.
        fails: whether a match without a row of the stage stops the run, as does a skip to the first row of the match.
    """

    entry = "skip"
    called = "skip"
    strategy: Strategy
    stage: str = field(default="", metadata=OMITTED)
    fails: bool = field(default=False, metadata=OMITTED)


def no_skip() -> Skip:
    """Every match is emitted; no partial match is discarded. The default."""
    return Skip("no_skip")


def skip_to_next() -> Skip:
    """A match discards the partial matches that begin with the same row."""
    return Skip("skip_to_next")


def skip_past_last_event() -> Skip:
    """A match discards the partial matches that began before the match ended: matches do not overlap."""
    return Skip("skip_past_last_event")


def skip_to_first(stage: str, *, fails: bool = False) -> Skip:
    """A match discards the partial matches that began before its first row of ``stage``.

    Args:
        stage: name of a stage.
        fails: a match without a row of the stage, or one that begins with that row, stops the run. Otherwise the match discards nothing.
    """
    return Skip("skip_to_first", stage, fails)


def skip_to_last(stage: str, *, fails: bool = False) -> Skip:
    """As ``skip_to_first``, with the last row of ``stage``."""
    return Skip("skip_to_last", stage, fails)
