"""The examples by which time and windows are explained, on a real engine: many in one log, so that one stream and one bounded run show them all.

An example is a key of its own in a stretch of time of its own, which begins with the watermark behind it: none knows of the others.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import floodmark as fm
from floodmark.core.time import from_ms, to_ms
from floodmark.engines.spark.state import canonical
from floodmark.lake.stream.timeline import Timeline
from floodmark.semantics.encoding.columns import decode
from floodmark.spec.values.run import RunResult
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.testing.lakes import LakeCase
from floodmark.testing.log import Log

Row = dict[str, Any]
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
APART = 24 * HOUR
"""From the beginning of one example to that of the next."""


class Event(fm.Contract):
    """A number of an example."""

    at: fm.EventTime
    example: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an operator has said in one mode.

    Args:
        mode: bounded or unbounded.
        outputs: name -> rows without those that were taken back; times are those of the log.
        late: rows that went to the late output, by its count.
        dropped: rows left out of windows, by its count.
    """

    mode: str
    outputs: Mapping[str, Sequence[Row]]
    late: int
    dropped: int

    def of(self, example: str, output: str = "") -> list[Row]:
        """The rows of one example; those of windows in their order."""
        mine = [row for row in self.outputs[output] if row["example"] == example]
        return sorted(mine, key=lambda row: row["window_start"]) if not output else mine

    def windows(self, example: str, column: str, since: int = 0) -> dict[float, Any]:
        """Seconds of the example at which a window begins -> what is said of it; of each window once."""
        rows = self.of(example)
        by_start = {(to_ms(row["window_start"]) - since) / SECOND: row[column] for row in rows}
        assert len(by_start) == len(rows), "a window is there twice"
        return by_start


def answer(outputs: Mapping[str, pa.Table], results: Sequence[RunResult]) -> Answer:
    """Of runs of one mode, and the tables they wrote."""
    left: dict[str, list[Row]] = {}
    for name, table in outputs.items():
        rows: list[Row] = []
        for row in table.to_pylist():
            values = {column: value for column, value in row.items() if not column.startswith("_")}
            if row["_kind"] == ROW:
                rows.append(values)
            elif row["_kind"] == RETRACTION:
                rows.remove(values)
        left[name] = rows
    counts = {name: sum(getattr(result, name) for result in results) for name in ("late", "dropped")}
    return Answer(mode=results[0].mode, outputs=left, **counts)


def answer_of(case: LakeCase, *results: RunResult) -> Answer:
    """What the runs of a case have written."""
    return answer(case.outputs(), results)


def in_both_modes(make: Callable[[str], LakeCase], log: Log, folder: str) -> tuple[LakeCase, tuple[Answer, Answer]]:
    """A stream over a log in two micro-batches, and what it and a bounded run have said."""
    stream, half = make(f"{folder}/unbounded"), len(log.entries) // 2
    stream.land(log, 0, half)
    stream.land(log, half)
    unbounded = answer_of(stream, stream.run_unbounded(files_per_batch=1))
    batch = make(f"{folder}/bounded")
    batch.land(log)
    return stream, (unbounded, answer_of(batch, batch.run_bounded()))


class Examples:
    """A log of one example after the other.

    Args:
        operator: reads it.
    """

    def __init__(self, operator: fm.Operator) -> None:
        self.log = Log(operator.inputs[0].schema)
        self.begins: dict[str, int] = {}

    def begin(self, *names: str) -> int:
        """The next stretch of time is that of these examples; its first ms."""
        start = APART * (len(set(self.begins.values())) + 1)
        self.begins.update(dict.fromkeys(names, start))
        return start

    def add(self, rows: Iterable[tuple[str, float, float]], start: int, bound: int) -> None:
        """Rows arrive: (example, ms since ``start``, value); the watermark follows them."""
        self.log.rows(
            [{"at": from_ms(start + round(at)), "example": name, "value": value} for name, at, value in rows],
            "at",
            bound,
        )


# ---- seconds


@fm.operator
def seconds(events: fm.Stream[Event]) -> fm.Stream:
    """Numbers of a second."""
    windowed = events.key_by("example").window(fm.Tumbling("1 s"), late="side_output")
    return windowed.aggregate(n=fm.count(), total=fm.sum("value"), top=fm.max("value"))


SHUFFLED = [(1_000, 5.0), (12_000, 7.0), (3_000, 2.0), (28_000, 9.0), (1_400, 4.0)]
"""Two of them in one second."""
RELEASED = {1977: 4, 1980: 5, 1983: 6, 1999: 1, 2002: 2, 2005: 3, 2015: 7}
"""Year -> episode."""
DISORDER = [second / 5 for second in (0, 4, 9, 2, 13, 8, 19, 1, 24, 17, 31, 11, 42)]
"""Seconds; the worst comes four behind the newest."""
BOUNDS = (0, 1_000, 2_400, 4_000, 6_000)
"""Only the last two cover it."""
SINE = [(10 * i, math.sin(2 * math.pi * i / 100)) for i in range(300)]


def examples_of_seconds() -> tuple[Examples, int]:
    """All of them, and the entry before which the watermark closes the window of ``closed`` and of no other."""
    examples = Examples(seconds)
    start = examples.begin("closed", "open")
    examples.add([("closed", 400, 1), ("closed", 999, 2), ("open", 1_000, 4)], start, HOUR)
    examples.log.move(start + 998)
    cut = len(examples.log.entries)
    examples.log.move(start + 999)

    orders = list(itertools.permutations(SHUFFLED))
    start = examples.begin(*(f"order {n}" for n in range(len(orders))))
    for n, order in enumerate(orders):
        examples.add([(f"order {n}", at, value) for at, value in order], start, 30 * SECOND)
    start = examples.begin(*(f"hasty {n}" for n in range(len(orders))))
    for n, order in enumerate(orders):
        examples.add([(f"hasty {n}", at, value) for at, value in order], start, 0)

    start = examples.begin("told", "released")
    films = list(RELEASED.items())
    examples.add([("told", SECOND * episode, episode) for _, episode in films], start, 8 * SECOND)
    examples.add([("released", SECOND * (year - 1900), episode) for year, episode in films], start, 8 * SECOND)

    rng = random.Random(5)
    delayed = sorted((at + rng.randrange(500), at, value) for at, value in SINE)
    start = examples.begin("sine")
    examples.add([("sine", at, value) for _, at, value in delayed], start, 500)
    start = examples.begin("sine by arrival")
    examples.add([("sine by arrival", arrived, value) for arrived, _, value in delayed], start, 0)

    for bound in BOUNDS:
        start = examples.begin(f"bound {bound}")
        examples.add([(f"bound {bound}", SECOND * at, 1) for at in DISORDER], start, bound)

    for name, behind in (("on time", 1), ("late", 0)):
        start = examples.begin(name)
        examples.log.move(start + 42_999 - behind)
        examples.add([(name, 42_999, 1)], start, HOUR)
    examples.log.end()
    return examples, cut


def in_seconds(log: Log) -> tuple[dict[tuple[str, int], list[float]], Counter[tuple[str, int]]]:
    """(example, start) -> the values of a second, and the rows that were late, by the stamps of the log alone."""
    held, late = defaultdict[tuple[str, int], list[float]](list), Counter[tuple[str, int]]()
    for entry in log.entries:
        if entry["_kind"] == ROW:
            start = entry["_event_time"] // SECOND * SECOND
            if start + SECOND - 1 <= entry["_watermark"]:
                late[entry["example"], entry["_event_time"]] += 1
            else:
                held[entry["example"], start].append(entry["value"])
    return dict(held), late


# ---- windows


def disorder(operator: fm.Operator, seed: int, rows: int, *, sensors: str = "ab", behind: int = 12) -> Log:
    """A number of each third second, up to ``behind`` seconds late, of one of some examples; the watermark follows four seconds behind."""
    rng, log = random.Random(seed), Log(operator.inputs[0].schema)
    moments = [(SECOND * n // 3 - rng.randrange(behind * SECOND), rng.choice(sensors)) for n in range(rows)]
    log.rows(
        [{"at": from_ms(at), "example": example, "value": float(n % 97)} for n, (at, example) in enumerate(moments)],
        "at",
        4 * SECOND,
    )
    log.end()
    return log


def in_windows(
    log: Log, size: int, slide: int, offset: int = 0, *, keyed: bool = True
) -> tuple[dict[tuple[str, int], list[float]], int]:
    """(example, start) -> values in order of arrival, and the (row, window) pairs that came too late, by the stamps of the log alone."""
    held, dropped = defaultdict[tuple[str, int], list[float]](list), 0
    for entry in (entry for entry in log.entries if entry["_kind"] == ROW):
        newest = (entry["_event_time"] - offset) // slide * slide + offset
        for start in range(newest, newest - size, -slide):
            if start + size - 1 <= entry["_watermark"]:
                dropped += 1
            else:
                held[entry["example"] if keyed else "", start].append(entry["value"])
    return dict(held), dropped


def in_sessions(log: Log, gap: int) -> dict[tuple[str, int, int], list[float]]:
    """(example, start, end) -> values of each session, where no row is late."""
    mine = defaultdict[str, list[tuple[int, float]]](list)
    for entry in (entry for entry in log.entries if entry["_kind"] == ROW):
        mine[entry["example"]].append((entry["_event_time"], entry["value"]))
    sessions = dict[tuple[str, int, int], list[float]]()
    for example, rows in mine.items():
        rows.sort()
        first = 0
        for place in range(1, len(rows) + 1):
            if place == len(rows) or rows[place][0] > rows[place - 1][0] + gap:
                some = rows[first:place]
                sessions[example, some[0][0], some[-1][0] + gap] = [value for _, value in some]
                first = place
    return sessions


@fm.operator
def folds(events: fm.Stream[Event]) -> fm.Stream:
    """Each five seconds, a tenth past them: every number is folded into those before it."""
    windowed = events.key_by("example").window(fm.Tumbling("5 s", "100ms"))
    return windowed.reduce(lambda before, row: {**row, "value": (before["value"] * 31 + row["value"]) % 9973})


@fm.operator
def lasting(events: fm.Stream[Event]) -> fm.Stream:
    """Minutes that begin with every second, of all examples together."""
    return events.window(fm.Sliding("60 s", "1 s")).aggregate(n=fm.count(), total=fm.sum("value"))


class Summary(fm.Contract):
    """What a function says of a window."""

    middle: float
    since: int
    until: int


def medians() -> fm.Operator:
    """A function that sees all rows of a window, and the window."""

    def middle(pane: fm.Pane, rows: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
        yield {"middle": median(row["value"] for row in rows), "since": pane.start, "until": pane.end}

    @fm.operator
    def medians(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("example").window(fm.Sliding("10 s", "5 s")).process(middle, Summary)

    return medians


def means() -> fm.Operator:
    """A function that sees two aggregates of a window, and the window, but no row."""

    def middle(pane: fm.Pane, values: Mapping[str, Any]) -> Iterator[Row]:
        yield {"middle": values["total"] / values["n"], "since": pane.start, "until": pane.end}

    @fm.operator
    def means(events: fm.Stream[Event]) -> fm.Stream:
        windowed = events.key_by("example").window(fm.Sliding("10 s", "5 s"))
        return windowed.process(middle, Summary, n=fm.count(), total=fm.sum("value"))

    return means


def kept(spark: SparkSession, case: LakeCase) -> list[tuple[int, int]]:
    """Rows and bytes of the state of a stream on Spark after each of its micro-batches."""
    checkpoint, sizes = Timeline.current(case.lake, case.operator.name).checkpoint, []
    for batch in range(checkpoint.last_committed() + 1):
        rows = canonical._rows(spark, checkpoint.path, batch).filter("chunk IS NOT NULL").select("chunk").collect()
        chunks = [bytes(row["chunk"]) for row in rows]
        sizes.append((sum(t.num_rows for chunk in chunks for t in decode(chunk).values()), sum(map(len, chunks))))
    return sizes
