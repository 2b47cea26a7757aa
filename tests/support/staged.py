"""Operators of several stages over keyed numbers (``events``)."""

from __future__ import annotations

from events import Event
from streams import Watched, _watching

from floodmark import Operator, Outputs, Session, Sliding, Stream, Tumbling, count, operator, sum
from floodmark import max as greatest


def _peaks(events: Stream[Event]) -> Stream:
    """The greatest of the sums of ten minutes within an hour, per key; late rows and failing ones beside them."""
    tens = events.filter("value % 7 <> 0").key_by("key").window(Tumbling("10 minutes"), late="side_output")
    sums = tens.aggregate(n=count(), total=sum("value"))
    hours = sums.filter("n > 0").key_by("key").window(Tumbling("1 hour"))
    hourly = hours.aggregate(tens=count(), most=greatest("total"))
    return hourly.with_columns(mean="most / (tens - 1)", on_error="quarantine")


def _busiest(events: Stream[Event]) -> Stream:
    """The keys with most rows of each half hour, every ten minutes: an aggregate joined with an aggregate of itself."""
    counts = events.key_by("key").window(Sliding("30 minutes", "10 minutes")).aggregate(n=count())
    most = counts.window(Tumbling("10 minutes")).aggregate(most=greatest("n"))
    named = counts.select(key="key", n="n", ends="window_end").key_by("ends")
    pairs = named.window_join(most.select(most="most", ends="window_end").key_by("ends"), Tumbling("10 minutes"))
    return pairs.filter("n = most").select(key="key", n="n", ends="ends")


def _both(events: Stream[Event]) -> Outputs:
    """The sums of ten minutes and those of an hour, and both together."""
    tens = events.key_by("key").window(Tumbling("10 minutes")).aggregate(total=sum("value"))
    hours = tens.key_by("key").window(Tumbling("1 hour")).aggregate(total=sum("total"))
    return Outputs(tens=tens.filter("total > 50"), hours=hours, all=tens.union(hours))


def _followed(events: Stream[Event]) -> Stream:
    """Two joins and an aggregate of their pairs."""
    keyed = events.key_by("key")
    next_ = keyed.interval_join(keyed, "1 minute", "6 minutes", prefix="next_")
    third = next_.key_by("key").interval_join(
        events.key_by("key"), "1 minute", "6 minutes", kind="left", prefix="third_"
    )
    return (
        third.key_by("key")
        .window(Tumbling("20 minutes"))
        .aggregate(n=count(), total=sum("value + next_value"), last=greatest("third_value"))
    )


def _quiet(events: Stream[Event]) -> Stream:
    """Sessions of what a process function with timers has told, and code between them."""
    told = events.key_by("key").process(_watching(), schema=Watched)
    return told.key_by("key").window(Session("20 minutes")).aggregate(n=count(), seen=greatest("seen"))


def _revised(events: Stream[Event]) -> Stream:
    """Sums of an hour of sums of ten minutes that late rows revise."""
    tens = (
        events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="15 minutes").aggregate(total=sum("value"))
    )
    return (
        tens.key_by("key")
        .window(Tumbling("1 hour"), allowed_lateness="30 minutes")
        .aggregate(total=sum("total"), most=greatest("total"), tens=count())
    )


def _joins(events: Stream[Event]) -> Outputs:
    """Joins of three kinds of the odd numbers with the even ones; a full one is among the programs of the book."""
    odd, even = events.filter("value % 2 <> 0").key_by("key"), events.filter("value % 2 = 0").key_by("key")
    kinds = ("left", "semi", "anti")
    return Outputs(
        **{
            kind: odd.regular_join(even, kind=kind, on="value < e_value AND value % 3 <> 0", prefix="e_")
            for kind in kinds
        }
    )


def hours_over(condition: str, size: str = "1 hour") -> Operator:
    """Sums of an hour of those sums of ten minutes for which a condition is true."""

    def hours(events: Stream[Event]) -> Stream:
        tens = events.key_by("key").window(Tumbling("10 minutes")).aggregate(total=sum("value"))
        hourly = tens.filter(condition).key_by("key").window(Tumbling(size))
        return hourly.aggregate(tens=count(), total=sum("total"))

    return operator(hours)


PEAKS: Operator = operator(_peaks, name="peaks")
BUSIEST: Operator = operator(_busiest, name="busiest")
BOTH: Operator = operator(_both, name="both")
FOLLOWED: Operator = operator(_followed, name="followed")
QUIET: Operator = operator(_quiet, name="quiet")
REVISED: Operator = operator(_revised, name="revised")
JOINS: Operator = operator(_joins, name="joins")
STAGED = {one.name: one for one in (PEAKS, BUSIEST, BOTH, FOLLOWED, QUIET, REVISED)}
