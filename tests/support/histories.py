"""Operators whose results depend on all rows before them, and rows of several days in disorder, some a day late."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from deltalake import DeltaTable
from events import Event

import floodmark as fm
from floodmark.core.time import Interval, to_ms
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import MARKER

START = datetime(2020, 1, 1, tzinfo=UTC)
DAYS = 5
DAY_MS = 86_400_000
PARTITIONS = fm.Daily("2019-12-30")


class Rule(fm.Contract):
    """A limit that a key has from an instant on."""

    since: fm.EventTime
    device: str
    limit: int


class Text(fm.Contract):
    """What a function says of a key."""

    text: str


def day(number: int, days: int = 1) -> Interval:
    """The event time of days, the first one numbered from 0."""
    first = to_ms(START) + number * DAY_MS
    return Interval(start=first, end=first + days * DAY_MS)


ALL_DAYS = day(-2, DAYS + 6)


def _dwelling() -> fm.ProcessFunction:
    """Defined in here, the class travels to workers by value."""

    class Dwelling(fm.ProcessFunction):
        """State that spans days, a timer that fires a day after its row, a period, and a side output."""

        seen = fm.ValueState(int)
        recent = fm.MapState(int, int, ttl="30 hours")
        away, daily = fm.Timer(), fm.Timer()

        def on_element(self, row: Any, ctx: Any) -> Any:
            if not self.seen.exists():
                self.daily.set(ctx.timestamp + 86_400_000)
            self.seen.update(self.seen.get(0) + 1)
            self.recent.put(row["value"] % 9, ctx.timestamp)
            self.away.delete()
            self.away.set(ctx.timestamp + 26 * 3_600_000)
            if row["value"] % 5 == 0:
                ctx.output("fifth", {"text": f"{row['value']} is number {self.seen.get()}"})
            if row["value"] % 2 == 0:
                yield {"text": f"{row['value']} is number {self.seen.get()} with {len(self.recent)}"}

        def on_timer(self, timer: str, ctx: Any) -> Any:
            yield {"text": f"{timer} {self.seen.get()} {sorted(self.recent.items())}"}
            if timer == "daily":
                self.daily.set(ctx.timestamp + 86_400_000)
            else:
                ctx.output("fifth", {"text": f"away at {ctx.timestamp}"})
                self.seen.update(0)

    return Dwelling()


def _limiting() -> fm.BroadcastProcessFunction:
    class Limiting(fm.BroadcastProcessFunction):
        """Rows above the last limit of their key."""

        limits = fm.BroadcastState(str, int)
        above = fm.ReducingState(int, max)

        def on_element(self, row: Any, ctx: Any) -> Any:
            limit = self.limits.get(row["key"])
            if limit is not None and row["value"] % 100 > limit:
                self.above.add(row["value"] % 100)
                yield {"text": f"{row['value']} over {limit}, at most {self.above.get()}"}

        def on_broadcast(self, row: Any, ctx: Any) -> None:
            self.limits.put(row["device"], row["limit"])

    return Limiting()


@fm.operator
def dwelling(events: fm.Stream[Event]) -> fm.Stream:
    """In order of arrival."""
    return events.key_by("key").process(_dwelling(), schema=Text, sides={"fifth": Text})


@fm.operator
def sorted_dwelling(events: fm.Stream[Event]) -> fm.Stream:
    """In order of event time."""
    keyed = events.filter("value % 7 <> 0").key_by("key")
    return keyed.process(_dwelling(), schema=Text, sides={"fifth": Text}, order="event_time")


@fm.operator
def first_of_day(events: fm.Stream[Event]) -> fm.Stream:
    """The first row of each remainder within a day."""
    return events.with_columns(part="value % 40").key_by("part").deduplicate("1 day")


@fm.operator
def limited(events: fm.Stream[Event], rules: fm.Stream[Rule]) -> fm.Stream:
    """Two logs; every key sees the rules."""
    connected = events.key_by("key").connect(rules.broadcast())
    return connected.process(_limiting(), schema=Text)


@fm.operator
def valid(events: fm.Stream[Event], rules: fm.Stream[Rule]) -> fm.Stream:
    """Each row with the rule that was valid; rows more than an hour late are dropped."""
    versions = rules.key_by("device")
    return events.key_by("key").temporal_join(versions, kind="left", allowed_lateness="1 hour", prefix="rule_")


@fm.operator
def hourly(events: fm.Stream[Event]) -> fm.Stream:
    """Final windows, read by another operator."""
    return events.key_by("key").window(fm.Tumbling("1 hour")).aggregate(value=fm.sum("value"))


@fm.operator(inputs={"events": hourly})
def of_hours(events: fm.Stream) -> fm.Stream:
    """A process function over the output of an operator."""
    return events.key_by("key").process(_dwelling(), schema=Text, sides={"fifth": Text})


def partitioned(operator: fm.Operator) -> fm.Operator:
    """The operator with tables divided by day."""
    return replace(operator, partitions=PARTITIONS)


OPERATORS = (dwelling, sorted_dwelling, first_of_day, limited, valid)


def rows(seed: int, late: float = 0.03) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(events, rules) in order of arrival: up to 40 minutes out of order, some events hours late."""
    rng, events, rules = random.Random(seed), [], []
    for number in range(DAYS * 72):
        delay = rng.randrange(40 if rng.random() > late else 1500)
        at = START + timedelta(minutes=20 * number - delay)
        events.append({"at": at.isoformat(), "key": rng.choice("abc"), "value": number})
        if rng.random() < 0.1:
            since = START + timedelta(minutes=20 * number - rng.randrange(120))
            rules.append({"since": since.isoformat(), "device": rng.choice("abc"), "limit": rng.randrange(60)})
    return events, rules


def sources(events: list[dict[str, Any]], rules: list[dict[str, Any]]) -> dict[str, fm.Source]:
    """Sources of the rows."""
    bound = fm.BoundedOutOfOrderness("20 minutes")
    return {
        "events": fm.Source("events", contract=Event, connector=fm.Rows(events), watermark=bound),
        "rules": fm.Source("rules", contract=Rule, connector=fm.Rows(rules), watermark=bound),
    }


def written(lake: Lake, operator: fm.Operator, interval: Interval) -> Counter[Any]:
    """The rows of all outputs in an interval, with event time, stamp and kind."""
    counted: Counter[Any] = Counter()
    for output in operator.outputs:
        for row in DeltaTable(lake.output(output.table)).to_pyarrow_table().to_pylist():
            at = to_ms(row["_event_time"]) if row["_kind"] != MARKER else interval.end
            if interval.start <= at < interval.end:
                columns = tuple(repr(row[name]) for name in output.schema.names)
                counted[output.name, columns, at, row["_watermark"], row["_kind"]] += 1
    return counted
