"""A process function with state of every kind, and what a dictionary remembers of the same rows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asked import Asked, asked

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.lake.folder.paths import Lake
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

Rows = list[tuple[int, str | None, int]]


class Number(fm.Contract):
    """A number of a key."""

    at: fm.EventTime
    key: str | None
    value: int


class Seen(fm.Contract):
    """What a key has seen."""

    total: int


class Remember(fm.ProcessFunction):
    """Keeps a sum, the last values, counts by remainder, and what was there in the last second."""

    total = fm.ReducingState(int, lambda one, other: one + other)
    values = fm.ListState(int)
    counts = fm.MapState(int, int)
    recent = fm.ValueState(int, ttl="1 second")
    alarm = fm.Timer()

    def on_element(self, row: Mapping[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        """Count."""
        value = row["value"]
        self.total.add(value)
        self.values.update([*self.values.get(), value][-3:])
        self.counts.put(value % 3, self.counts.get(value % 3, 0) + 1)
        self.recent.update(value)
        self.alarm.set(ctx.timestamp + 3_600_000)
        yield {"total": self.total.get()}

    def on_timer(self, timer: str, ctx: Any) -> Iterator[dict[str, Any]]:
        """Nothing."""
        yield from ()


@fm.operator
def remembered(numbers: fm.Stream[Number]) -> fm.Stream:
    """All of it."""
    return numbers.key_by("key").process(Remember(), schema=Seen)


SOURCE = fm.Source("numbers", contract=Number, connector=fm.Files("inbox"), watermark=fm.Ascending())


def rows_of(count: int, keys: int) -> Rows:
    """Rows of some keys, null among them, a tenth of a second after each other."""
    drawn = random.Random(count)
    return [
        (n * 100, drawn.choice([None, *(f"k{k}" for k in range(keys))]), drawn.randrange(100)) for n in range(count)
    ]


def expected(rows: Rows, key: str | None, watermark: int) -> dict[str, Any]:
    """What a dictionary remembers."""
    mine = [(time, value) for time, k, value in rows if k == key]
    counts: dict[int, int] = {}
    for _, value in mine:
        counts[value % 3] = counts.get(value % 3, 0) + 1
    return {
        "total": sum(value for _, value in mine),
        "values": [value for _, value in mine[-3:]],
        "counts": [[remainder, count] for remainder, count in counts.items()],
        "recent": mine[-1][1] if mine[-1][0] + 1_000 > watermark else None,
    }


def states(answer: dict[str, Any]) -> dict[Any, Any]:
    """Key -> its state."""
    return {row["key"]: row["state"] for row in answer["rows"]}


def landed(lake: Lake, rows: Rows, begin: int = 0) -> None:
    """Rows land, each with the watermark a millisecond behind it."""
    log = Log(remembered.inputs[0].schema)
    log.rows([{"at": from_ms(time), "key": key, "value": value} for time, key, value in rows], "at", 0)
    land(lake, remembered, log, begin, len(rows))


def service(lake: Lake, tmp_path: Path) -> Any:
    """A service over the lake."""
    settings = fm.Settings(lake=lake.root, engine="embedded")
    return asked(fm.Workspace(sources=[SOURCE], operators=[remembered], settings=settings), lake, tmp_path / "copies")


def state_of(ask: Asked, parameters: list[tuple[str, str]]) -> tuple[int, dict[str, Any]]:
    """The answer about state, once it is copied."""
    end = time.monotonic() + 600
    while True:
        status, answer = ask.get("/v1/state/remembered", parameters)
        if status != 503 or answer["error"]["code"] != "SERVE-032":
            return status, answer
        assert time.monotonic() < end, answer
        time.sleep(0.1)


def assert_equal(ask: Asked, rows: Rows, savepoint: str = "") -> None:
    """All keys together and some alone have what the dictionary has."""
    as_of = [("as_of", savepoint)] if savepoint else []
    status, answer = state_of(ask, as_of)
    assert status == 200, answer
    watermark = answer["as_of"]["watermark_ms"]
    assert rows[-2][0] - 1 <= watermark <= rows[-1][0]
    wanted = {key: expected(rows, key, watermark) for key in {key for _, key, _ in rows}}
    assert states(answer) == wanted
    assert [row["key"] for row in answer["rows"]] == [None, *sorted(key for key in wanted if key is not None)]
    for key in (None, "k1", "k7"):
        asked_key = ("null", "key") if key is None else ("key.key", key)
        assert states(ask.get("/v1/state/remembered", [asked_key, *as_of])[1]) == {key: wanted[key]}
