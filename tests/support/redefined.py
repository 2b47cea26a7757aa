"""The streams ``windowed`` and ``plain`` in several definitions of one name: of other rows, and with a column more."""

from __future__ import annotations

from events import Event
from streams import PLAIN, WINDOWED

from floodmark import Operator, Stream, Tumbling, count, operator, sum


def _windowed_of_others(events: Stream[Event]) -> Stream:
    """Sums of other rows."""
    keyed = events.filter("value % 5 <> 0").key_by("key")
    wide = keyed.window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return wide.aggregate(n=count(), total=sum("value"))


def _windowed_with_mean(events: Stream[Event]) -> Stream:
    """Sums, and their mean."""
    keyed = events.filter("value % 7 <> 0").key_by("key")
    wide = keyed.window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return wide.aggregate(n=count(), total=sum("value")).with_columns(mean="total / n")


def _plain_of_others(events: Stream[Event]) -> Stream:
    """Other rows."""
    return events.filter("value % 2 = 0").with_columns(double="value * 2")


def _plain_with_triple(events: Stream[Event]) -> Stream:
    """A column more."""
    return events.filter("value % 3 = 0").with_columns(double="value * 2", triple="value * 3")


DEFINITIONS: dict[str, tuple[Operator, ...]] = {
    "windowed": (
        WINDOWED,
        operator(_windowed_of_others, name="windowed"),
        operator(_windowed_with_mean, name="windowed"),
    ),
    "plain": (PLAIN, operator(_plain_of_others, name="plain"), operator(_plain_with_triple, name="plain")),
}
"""Name of a stream -> its definitions."""
BY_VERSION = {code.version: code for codes in DEFINITIONS.values() for code in codes}
