"""One declaration of each kind, with defaults and without: what ``tests/unit/test_fingerprints.py`` holds the digests of."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from chains import chain
from changing import CHANGING
from odd_programs import draw_program

import floodmark as fm
from floodmark.spec.graph.operator import Operator

REFERENCE = ("aircraft", "flights", "logs", "sensors", "weather")
WINDOW, WAIT, KEPT, TOTAL = fm.Tumbling("1 hour"), fm.Every("5 minutes"), fm.KeepLast(3), fm.sum("v")
SETTINGS = (fm.BoundedOutOfOrderness("1 minute"), fm.Files("inbox/*.csv"), fm.Daily("2013-01-01"))


class Event(fm.Contract, key=("k",)):
    """Rows of every declaration here."""

    at: fm.EventTime
    k: str
    v: int
    price: Decimal
    note: str | None = None


class Out(fm.Contract):
    """Rows of functions."""

    n: int
    note: str | None = None


class Numbered(fm.Contract):
    """What is added to a row."""

    n: int


class Span(fm.Aggregate):
    """An aggregate of the user's."""

    type = "bigint"

    def __init__(self, expression: str, digits: int = 2) -> None:
        super().__init__(expression)
        self.digits = digits

    def create(self) -> Any:
        """Nothing."""
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        """The widest."""
        return [value, value] if accumulator is None else [min(accumulator[0], value), max(accumulator[1], value)]

    def merge(self, left: Any, right: Any) -> Any:
        """Both."""
        return left and right and [min(left[0], right[0]), max(left[1], right[1])]

    def result(self, accumulator: Any) -> Any:
        """The distance."""
        return accumulator and accumulator[1] - accumulator[0]


class Shift(fm.WindowAssigner):
    """A window assigner of the user's."""

    def __init__(self, hours: int) -> None:
        self.hours = hours

    def assign(self, time: int, row: Mapping[str, Any]) -> Iterable[tuple[int, int]]:
        """Shifts."""
        length = self.hours * 3_600_000
        return [(time - time % length, time - time % length + length)]


class Alarm(fm.Trigger):
    """A trigger of the user's."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def on_element(self, time: int, row: Mapping[str, Any], context: fm.TriggerContext) -> fm.Decision:
        """At values above the limit."""
        return fm.Decision.FIRE if row["v"] > self.limit else fm.Decision.CONTINUE


class Rises(fm.ProcessFunction):
    """A process function with a state of each kind."""

    last = fm.ValueState(float, ttl="1 day")
    seen = fm.ListState("timestamp", version=2, migrate=str)
    most = fm.MapState(str, int, ttl=timedelta(hours=1))
    total = fm.ReducingState(int, max)
    spread = fm.AggregatingState(Span("v"))
    whole = fm.ValueState(Out, version=3, migrate={2: dict, 3: dict})
    soon, later = fm.Timer(), fm.Timer("processing")

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit

    def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[dict[str, Any]]:
        """A row."""
        self.total.add(row["v"])
        ctx.output("odd", {"n": row["v"]})
        yield {"n": row["v"]}

    def on_timer(self, timer: str, ctx: fm.Context) -> Iterator[dict[str, Any]]:
        """A timer."""
        yield {"n": self.limit}


class Ruled(fm.BroadcastProcessFunction):
    """A function with rules."""

    rules = fm.BroadcastState(str, int, version=2, migrate=int)

    def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[dict[str, Any]]:
        """A row."""
        yield {"n": row["v"]}

    def on_broadcast(self, row: Mapping[str, Any], ctx: fm.Context) -> None:
        """A rule."""
        self.rules.put(row["k"], row["v"])


class Both(fm.CoProcessFunction):
    """A function over two streams."""

    def on_left(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[dict[str, Any]]:
        """A row."""
        yield {"n": row["v"]}

    def on_right(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[dict[str, Any]]:
        """A row."""
        yield {"n": row["v"]}


def split(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A function that reaches declarations."""
    yield {"n": row["v"], "note": repr((WINDOW, WAIT, KEPT, TOTAL, SETTINGS))}


async def answered(row: Mapping[str, Any]) -> dict[str, Any]:
    """A function that asks."""
    return {"n": len(row)}


def panes(pane: fm.Pane, rows: Any) -> Iterator[dict[str, Any]]:
    """A window function."""
    yield {"n": pane.index, "note": str(rows)}


def added(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """A function that reduces."""
    return {**left, "v": left["v"] + right["v"]}


WINDOWS: dict[str, Any] = {
    "tumbling": fm.Tumbling("1 hour"),
    "tumbling, offset": fm.Tumbling(timedelta(minutes=90), "-15 minutes"),
    "sliding": fm.Sliding("1 hour", "15 minutes"),
    "sliding, offset": fm.Sliding("1 hour", "15 minutes", offset="1 minute"),
    "calendar": fm.Calendar("day"),
    "calendar, offset": fm.Calendar("month", timezone="America/New_York", offset="6 hours"),
    "global": fm.Global(),
    "session": fm.Session("30 minutes"),
    "session, longest": fm.Session("30 minutes", "2 days"),
    "session, long gap": fm.Session("3 days"),
    "session, per row": fm.Session("v * 1000", "2 hours", per_row=True),
    "count": fm.Count(5),
    "count, slide": fm.Count(5, 2),
    "assigner": Shift(8),
}

TRIGGERS: dict[str, Any] = {
    "watermark": fm.AfterWatermark(),
    "early, late": fm.AfterWatermark().early(fm.Every("1 minute")).late(fm.AfterCount(2)),
    "count": fm.AfterCount(3),
    "every": fm.Every("1 minute"),
    "every, processing": fm.Every(timedelta(seconds=30), time="processing"),
    "delay": fm.AfterDelay("1 hour"),
    "end of input": fm.EndOfInput(),
    "purging": fm.Purging(fm.AfterCount(3)),
    "any": fm.AfterCount(3) | fm.Every("1 minute") | fm.AfterDelay("1 hour"),
    "all": fm.AfterCount(3) & (fm.Every("1 minute") | fm.AfterDelay("1 hour")),
    "own": fm.any_of(Alarm(5), fm.AfterCount(100)),
}

EVICTORS: dict[str, Any] = {
    "last": fm.KeepLast(4),
    "last, after": fm.KeepLast(0, when="after"),
    "within": fm.KeepWithin("10 seconds"),
    "within, after": fm.KeepWithin(timedelta(minutes=1), "after"),
    "near": fm.KeepNear(2, "v"),
    "near, after": fm.KeepNear(2.5, "v + 1", when="after"),
}

AGGREGATES: dict[str, Any] = {
    "count": fm.count(),
    "count of": fm.count("note"),
    "sum": fm.sum("v"),
    "sum of decimals": fm.sum("price"),
    "min_by": fm.min_by("note", "v"),
    "max_by": fm.max_by("note", "v"),
    "top_n": fm.top_n("v", 3),
    "distinct": fm.distinct("v"),
    "own": Span("v"),
    "own, digits": Span("v", digits=0),
}

ARRIVING: dict[str, Any] = {
    "bounded": fm.BoundedOutOfOrderness("5 minutes"),
    "ascending": fm.Ascending(),
    "punctuated": fm.Punctuated("v > 3"),
    "punctuated, bound": fm.Punctuated("v > 3", "1 minute"),
    "column": fm.FromColumn("v"),
    "learned": fm.Learned(bound="1 hour"),
    "learned, quantile": fm.Learned(0.5, bound="1 hour"),
}


class Told(fm.Contract, event_time="ingestion"):
    """Rows without a time of their own."""

    v: int


def sources() -> Iterator[tuple[str, fm.Source]]:
    """A source of each kind."""
    files = fm.Files("inbox/*.csv", format="csv", order_by="modified", null_values=("-",), delimiter=";")
    for name, strategy in ARRIVING.items():
        yield f"source, {name}", fm.Source("events", contract=Event, connector=files, watermark=strategy)
    plain = fm.BoundedOutOfOrderness("0 s")
    table = fm.DeltaTable("somewhere", starting_version=3, read="changes")
    yield "source, changes", fm.Source("events", contract=Event, connector=table, watermark=plain)
    rows = fm.Rows([{"v": 1}])
    yield "source, ingestion", fm.Source("told", contract=Told, connector=rows, watermark=plain)
    yield (
        "source, settings",
        fm.Source(
            "events",
            contract=Event,
            connector=fm.DeltaTable("somewhere"),
            watermark=plain,
            granularity="commit",
            partition_by="k",
            idle_timeout="1 minute",
            when_idle="clock",
            future_limit=None,
            files_per_commit=3,
        ),
    )


def _windowed(name: str, window: Any, **settings: Any) -> Operator:
    @fm.operator(name=name)
    def windowed(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("k").window(window, **settings).aggregate(n=fm.count(), total=fm.sum("v"))

    return windowed


def _measured(aggregate: Any) -> Operator:
    @fm.operator(name="measured")
    def measured(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("k").window(fm.Tumbling("1 hour")).aggregate(value=aggregate)

    return measured


def _flow(name: str, body: Any, **settings: Any) -> Operator:
    def flow(events: fm.Stream[Event], others: fm.Stream[Event]) -> Any:
        return body(events, others)

    def lone(events: fm.Stream[Event]) -> Any:
        return body(events)

    return fm.operator(name=name, **settings)(flow if body.__code__.co_argcount == 2 else lone)


def _flows() -> Iterator[tuple[str, Operator]]:
    """Each step with defaults and without, but for windows."""
    bodies: dict[str, Any] = {
        "read": lambda e: e,
        "filter": lambda e: e.filter("v > 3"),
        "filter, quarantine": lambda e: e.filter("v > 3", on_error="quarantine"),
        "select": lambda e: e.select("at", "k", twice="v * 2"),
        "columns, quarantine": lambda e: e.with_columns(twice="v * 2", on_error="quarantine"),
        "flat_map": lambda e: e.flat_map(split, schema=Out),
        "flat_map, quarantine": lambda e: e.flat_map(split, schema=Out, on_error="quarantine"),
        "call": lambda e: e.call(answered, schema=Out),
        "call, cache": lambda e: e.call(answered, schema=Numbered, cache="k", version="2", on_error="quarantine"),
        "union": lambda e, o: e.union(o),
        "outputs": lambda e: fm.Outputs(few=e.filter("v < 3"), many=e.filter("v >= 3")),
        "rolling": lambda e: e.key_by("k").rolling(n=fm.count()),
        "reduce": lambda e: e.key_by("k").window(WINDOW).reduce(added, uid="reduced"),
        "panes": lambda e: e.key_by("k").window(WINDOW).process(panes, schema=Out),
        "panes over aggregates": lambda e: e.window(fm.Global()).process(panes, schema=Out, n_rows=fm.count()),
        "process": lambda e: e.key_by("k").process(Rises(), schema=Out),
        "process, settings": lambda e: e.key_by("k").process(
            Rises(7), schema=Out, sides={"odd": Out}, uid="rises", order="event_time", on_error="quarantine"
        ),
        "connect": lambda e, o: e.key_by("k").connect(o.key_by("k")).process(Both(), schema=Out, order="arrival"),
        "broadcast": lambda e, o: e.key_by("k").connect(o.broadcast()).process(Ruled(), schema=Out),
        "deduplicate": lambda e: e.key_by("k").deduplicate("1 day"),
        "scd2": lambda e: e.key_by("k").scd2(),
        "scd2, settings": lambda e: e.key_by("k").scd2(deleted="v < 0", track=["note"], sequence="v", uid="history"),
        "interval_join": lambda e, o: e.key_by("k").interval_join(o.key_by("k"), "-1 hour", "1 hour", prefix="r_"),
        "interval_join, settings": lambda e, o: e.key_by("k").interval_join(
            o.key_by("k"), "0 s", "1 hour", kind="full", include="neither", prefix="r_", uid="joined"
        ),
        "join": lambda e, o: e.key_by("k").join(o.key_by("k"), ttl="1 hour", kind="semi"),
        "window_join": lambda e, o: e.key_by("k").window_join(o.key_by("k"), WINDOW, prefix="r_"),
        "co_group": lambda e, o: e.key_by("k").co_group(o.key_by("k"), WINDOW, panes, schema=Out),
        "temporal_join": lambda e, o: e.key_by("k").temporal_join(o.key_by("k"), prefix="r_"),
        "temporal_join, settings": lambda e, o: e.key_by("k").temporal_join(
            o.key_by("k"), kind="left", valid_until="at", allowed_lateness="1 hour", prefix="r_"
        ),
    }
    for name, body in bodies.items():
        yield name, _flow(name.replace(", ", "_").replace(" ", "_"), body)
    yield "revision", _flow("revised", bodies["filter"], revision=3)


RANKED = "SELECT a, k, RANK() OVER (PARTITION BY k ORDER BY a) AS p FROM lefts"
NUMBERS = {
    "read nowhere, joined": f"SELECT q.a, r.note FROM ({RANKED}) AS q JOIN rights AS r ON q.k = r.k",
    "read nowhere, in a semi-join": f"SELECT r.note FROM rights AS r LEFT SEMI JOIN ({RANKED}) AS q ON r.k = q.k",
    "read nowhere, in EXISTS": f"SELECT note FROM rights AS r WHERE EXISTS (SELECT 1 FROM ({RANKED}) AS q WHERE q.k = r.k)",
    "read nowhere, beside IN": f"SELECT a FROM ({RANKED}) AS q WHERE k IN (SELECT k FROM rights)",
    "read nowhere, beside a value": f"SELECT a, (SELECT MAX(b) FROM rights) AS m FROM ({RANKED}) AS q",
    "read nowhere, beside elements": f"SELECT a, x FROM ({RANKED}) AS q CROSS JOIN UNNEST(array(k, 7)) AS e(x)",
    "read nowhere, in WITH": f"WITH w AS ({RANKED}) SELECT x.a FROM w AS x JOIN w AS y ON x.k = y.k",
    "read of one table": f"WITH w AS ({RANKED}) SELECT x.a, y.p FROM w AS x JOIN w AS y ON x.k = y.k",
    "first ones beside elements": f"SELECT a, x FROM ({RANKED}) AS q CROSS JOIN UNNEST(array(k, 7)) AS e(x) WHERE p <= 2",
    "between columns": "SELECT a, RANK() OVER (PARTITION BY k ORDER BY a) AS p, k FROM lefts",
    "first in its order": f"{RANKED} ORDER BY a LIMIT 3",
}
"""SQL with EMIT CHANGES, of numbers of rows."""


def operators() -> Iterator[tuple[str, Operator]]:
    """Operators with each setting, those of ``operators/``, and programs drawn by a seed."""
    yield from _flows()
    for name, window in WINDOWS.items():
        yield f"window, {name}", _windowed("windowed", window)
    for name, trigger in TRIGGERS.items():
        window = fm.Global() if name in {"end of input", "delay"} else fm.Tumbling("1 hour")
        yield f"trigger, {name}", _windowed("triggered", window, trigger=trigger)
    for name, evictor in EVICTORS.items():
        yield f"evictor, {name}", _windowed("evicting", fm.Tumbling("1 hour"), evictor=evictor)
    for name, aggregate in AGGREGATES.items():
        yield f"aggregate, {name}", _measured(aggregate)
    settings: list[dict[str, Any]] = [
        {"allowed_lateness": "1 hour", "late": "side_output"},
        {"accumulation": "discarding", "order": "event_time", "on_error": "quarantine"},
        {"time": "processing", "order": "arrival"},
    ]
    for place, setting in enumerate(settings):
        yield f"settings {place}", _windowed("set", fm.Tumbling("1 hour"), **setting)
    for module in REFERENCE:
        for name, value in vars(importlib.import_module(f"operators.{module}")).items():
            if isinstance(value, Operator):
                yield f"operators.{module}.{name}", value
    for seed in range(40):
        yield f"odd {seed}", draw_program(seed).operator()
    for place, link in enumerate(chain(0)):
        yield f"chain {place}", link
    for name, sql in NUMBERS.items():
        read = {table: source for table, source in CHANGING.items() if table in sql}
        yield f"sql, number {name}", fm.sql_operator("numbered", f"{sql} EMIT CHANGES", inputs=read)


def declarations() -> Iterator[tuple[str, Any]]:
    """(name, canonical form) of all of them."""
    for name, made in operators():
        yield name, made.canonical()
    for name, source in sources():
        yield name, source.canonical()
