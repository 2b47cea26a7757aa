"""Streams and what is done to them, in a process of its own that a test may kill: python chaos_process.py WORLD LAKE ENGINE. Reads actions as lines of JSON, answers each.

``{"do": "run", "die": "micro_batch.after_main:1"}`` kills it on the way.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Any, cast

from lifecycle_process import LARGEST, TOTALS, WIDER, largest
from operator_process import START, Event, source

import floodmark as fm
from floodmark import (
    Contract,
    EventTime,
    ListState,
    MapState,
    Operator,
    ProcessFunction,
    ReducingState,
    Stream,
    Timer,
    Tumbling,
    ValueState,
    operator,
)
from floodmark.control.processes.engine import Computing, OnSpark, computing
from floodmark.control.processes.upkeep import keep_up
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval, to_ms
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import cuts, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.workspace import Engine, Settings


class Sum(Contract):
    """What a key comes to."""

    at: EventTime
    total: int
    seen: int
    most: int
    last: list[int]


def sums() -> ProcessFunction:
    """Code with every kind of state and a timer; told what is taken back."""

    class Sums(ProcessFunction):
        totals, seen, last = MapState(int, int, ttl="2 hours"), ValueState(int), ListState(int)
        most, due = ReducingState(int, max), Timer()

        def on_element(self, row: Any, ctx: Any) -> Any:
            self.totals.put(ctx.timestamp, row["total"])
            self.seen.update(self.seen.get(0) + 1)
            self.most.add(row["total"])
            self.last.update([*self.last.get()[-2:], row["total"]])
            self.due.set(ctx.timestamp + 30 * 60_000)

        def on_retract(self, row: Any, ctx: Any) -> Any:
            self.totals.remove(ctx.timestamp)
            self.seen.update(self.seen.get(0) + 1)

        def on_timer(self, timer: Any, ctx: Any) -> Any:
            total = sum(value for _, value in self.totals.items())
            yield {
                "at": ctx.timestamp,
                "total": total,
                "seen": self.seen.get(),
                "most": self.most.get(),
                "last": self.last.get(),
            }

    return Sums()


def renamed(events: Stream[Event]) -> Stream:
    """As ``TOTALS``, its state under another name: an upgrade that restates nothing, as ``sums`` counts each row and each retraction."""
    windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return windowed.aggregate(uid="sums", n=fm.count(), total=fm.sum("value"))


def summed(totals: Stream) -> Stream:
    """Reads results that are taken back."""
    return totals.key_by("key").process(sums(), schema=Sum)


def paired(events: Stream[Event]) -> Stream:
    """The buffers of a join: each row with those of the next six minutes."""
    keyed = events.key_by("key")
    pairs = keyed.interval_join(keyed, "1 minute", "6 minutes", kind="left", prefix="next_")
    return pairs.with_columns(total="coalesce(next_value, value)")


def pairs_wider(events: Stream[Event]) -> Stream:
    """With a column more."""
    return paired(events).with_columns(double="total * 2")


def chain(one: Operator, wide: Operator, reader: Any) -> tuple[tuple[Operator, Operator], ...]:
    """Two streams, one after the other, each in its two versions."""
    plain, wider = (operator(reader, inputs={"totals": first}, name="reader") for first in (one, wide))
    return (one, wide), (plain, wider)


WORLDS = {
    "windows": ((TOTALS, WIDER), (LARGEST, operator(largest, inputs={"totals": WIDER}))),
    "retractions": chain(TOTALS, operator(renamed, name="totals"), summed),
    "buffers": chain(operator(paired, name="totals"), operator(pairs_wider, name="totals"), summed),
}
"""Streams by what is in their state."""


def versions(world: str, lake: Lake) -> tuple[Operator, ...]:
    """The definitions the streams go on with: those they were started with."""
    found = []
    for plain, wide in WORLDS[world]:
        deployed = Timeline.current(lake, plain.name).identity.deployed()
        found.append(wide if deployed is not None and deployed.version == wide.version else plain)
    return tuple(found)


def act(engine: Computing, world: str, lake: Lake, action: dict[str, Any]) -> Any:
    """Do it."""
    first, second = versions(world, lake)
    match action["do"]:
        case "land":
            engine.land(source(action["commits"]), lake, end=action["end"])
        case "run":
            for one in (first, second)[: action.get("streams", 2)]:
                engine.run_unbounded(one, lake, until_caught_up=True, files_per_batch=1)
        case "savepoint":
            return [one.manifest.id for one in cuts.create_coordinated_savepoints("totals", lake)]
        case "upgrade":
            for _, one in WORLDS[world]:  # only a rollback leads back
                upgrade(one, lake)
        case "rollback":
            roll_back(lake, savepoints.find(lake, action["to"]), backfills=True)
        case "rescale":
            from floodmark.engines.spark.state.rescale import rescale

            assert isinstance(engine, OnSpark)
            rescale(engine.spark, lake, "totals", action["partitions"])
        case "backfill":
            start = to_ms(START + timedelta(minutes=action["from"]))
            engine.run_bounded(first, lake, Interval(start=start, end=start + 1_800_000), force=True)
        case "fork":
            forked = fork(lake, savepoints.find(lake, action["to"]), action["into"])
            engine.run_unbounded(versions(world, forked)[0], forked, until_caught_up=True)
        case "upkeep":
            keep_up([lake], hours=0, days=0)
    return None


def main(world: str, root: str, name: Engine) -> None:
    """Until there is no more."""
    engine, lake = computing(Settings(memory=300), engine=name, app="chaos"), Lake(root)
    engine.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        action = json.loads(line)
        os.environ[crash.VARIABLE] = action.get("die", "")
        crash._hits.clear()
        try:
            answer = {"ok": act(engine, world, lake, action)}
        except FloodmarkError as error:
            answer = {"error": error.code, "text": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:3], cast("Engine", sys.argv[3]))
