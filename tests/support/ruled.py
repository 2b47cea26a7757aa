"""An operator with broadcast state and rows that wait for their turn, and a log of its input."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from events import START, Event

from floodmark import BroadcastProcessFunction, BroadcastState, Contract, ListState, Operator, Stream, operator
from floodmark.testing.log import Log

ROWS, KEYS = 240, 40


class Ruled(Contract):
    """A value that a rule has raised."""

    raised: int
    last: list[int]


def _ruling() -> BroadcastProcessFunction:
    class Ruling(BroadcastProcessFunction):
        rules, last = BroadcastState(str, int), ListState(int)

        def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
            self.last.update([*list(self.last.get())[-2:], row["value"]])
            yield {"raised": row["value"] + (self.rules.get("more") or 0), "last": list(self.last.get())}

        def on_broadcast(self, row: Any, ctx: Any) -> None:
            self.rules.put("more", row["value"])

    return Ruling()


def _ruled(events: Stream[Event]) -> Stream:
    """Broadcast state, which every key group has, and rows that wait for their turn."""
    rules = events.filter("value % 31 = 0")
    return events.key_by("key").connect(rules.broadcast()).process(_ruling(), schema=Ruled)


RULED: Operator = operator(_ruled, name="ruled")


def spread(code: Operator, seed: int) -> Log:
    """The ended log of an operator's input: events of 40 keys, up to 24 minutes late."""
    rng, log = random.Random(seed), Log(code.inputs[0].schema)
    late = [
        {"at": START + timedelta(minutes=n - rng.randrange(25)), "key": f"k{rng.randrange(KEYS)}", "value": n}
        for n in range(ROWS)
    ]
    log.rows(late, "at", 60_000)
    log.end()
    return log
