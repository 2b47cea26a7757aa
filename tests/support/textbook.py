"""The books' examples as programs for real engines: an operator, what arrives before which restart, and the rows that must be there then."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.testing.lakes import LakeCase
from floodmark.testing.log import Log, Logs
from floodmark.testing.runs import final

Rows = Counter[tuple[Any, ...]]


class Reading(fm.Contract):
    """What a sensor says."""

    at: fm.EventTime
    sensor: str
    value: int


class Switch(fm.Contract):
    """Something was switched at a sensor."""

    since: fm.EventTime
    device: str
    number: int


class Note(fm.Contract):
    """A text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An operator and its input.

    Args:
        operator: reads logs only.
        logs: its inputs.
        columns: output -> the columns compared.
        expected: per part of the input, output -> the rows that must be there after it; None: not compared.
        cuts: where the parts end, in entries of all inputs.
        clocks: processing time of each part, ms; empty where the operator has no clock.
    """

    operator: fm.Operator
    logs: Logs
    columns: Mapping[str, tuple[str, ...]]
    expected: tuple[Mapping[str, Rows] | None, ...]
    cuts: tuple[int, ...]
    clocks: tuple[int, ...] = field(default=())


def check_unbounded(program: Program, case: LakeCase) -> None:
    """Each part is landed and computed by a run of its own, which goes on from the state of the last one."""
    clocks = program.clocks or (None,) * len(program.expected)
    for (start, stop), expected, clock in zip(
        pairwise((0, *program.cuts, len(program.logs.order))), program.expected, clocks, strict=True
    ):
        _land(program, case, start, stop)
        case.run_unbounded(clock)
        if expected is not None:
            assert _rows(program, case.outputs()) == expected


def check_bounded(program: Program, case: LakeCase, stream: LakeCase | None = None) -> None:
    """All at once; ``stream`` is a run whose clock is repeated."""
    if stream is not None:
        case.replay(stream)
    _land(program, case, 0, None)
    case.run_bounded()
    assert _rows(program, case.outputs()) == program.expected[-1]


def _land(program: Program, case: LakeCase, start: int, stop: int | None) -> None:
    for given in program.operator.inputs:
        case.land(program.logs.logs[given.name], *program.logs.bounds(given.name, start, stop), name=given.name)


def _rows(program: Program, outputs: Mapping[str, pa.Table]) -> dict[str, Rows]:
    return {
        name: Counter(tuple(row[column] for column in columns) for row in final([outputs[name]]))
        for name, columns in program.columns.items()
        if name in outputs
    }


def _readings(operator: fm.Operator, rows: Iterable[tuple[int, str, int]], bound: int) -> Logs:
    """An ended log of (time, sensor, value), whose watermark follows ``bound`` ms behind."""
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    log = logs.logs["readings"]
    for time, sensor, value in rows:
        logs.row("readings", {"at": from_ms(time), "sensor": sensor, "value": value}, time)
        log.watermark = max(log.watermark, time - bound - 1)
    logs.end()
    return logs


def _disorder(seed: int, rows: int) -> list[tuple[int, str, int]]:
    """One reading a millisecond, at most 12 ms late."""
    rng = random.Random(seed)
    return [(n - rng.randrange(13), rng.choice("abc"), rng.randrange(100)) for n in range(100, 100 + rows)]


# Classes and functions of programs are defined in functions, so that workers get the code with them.


def own_windows() -> Program:
    """Assigner, trigger and evictor are the program's: small values in long windows, a pane for each peak, the last three rows count."""

    class BySize(fm.WindowAssigner):
        def assign(self, time: int, row: Mapping[str, Any]) -> list[tuple[int, int]]:
            length = 10 if row["value"] >= 50 else 40
            return [(time - time % length, time - time % length + length)]

    class Peaks(fm.Trigger):
        def on_element(self, time: int, row: Mapping[str, Any], context: fm.TriggerContext) -> fm.Decision:
            assert context.window is not None
            context.at_event_time(context.window[1] - 1)
            context.state["n"] = context.state.get("n", 0) + 1
            if row["value"] > 90 or row["value"] in range(40, 45):
                return fm.Decision.FIRE
            return fm.Decision.PURGE if context.state["n"] % 4 == 0 else fm.Decision.CONTINUE

        def on_event_time(self, time: int, context: fm.TriggerContext) -> fm.Decision:
            return fm.Decision.FIRE_AND_PURGE

    @fm.operator
    def own_windows(readings: fm.Stream[Reading]) -> fm.Stream:
        windowed = readings.key_by("sensor").window(BySize(), trigger=Peaks(), evictor=fm.KeepLast(3))
        return windowed.aggregate(n=fm.count(), total=fm.sum("value"))

    rows = _disorder(1, 240)
    held: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    seen, last, wanted = Counter[tuple[str, int, int]](), dict[tuple[str, int, int], tuple[int, int]](), Rows()
    for time, sensor, value in rows:
        length = 10 if value >= 50 else 40
        window = (sensor, time - time % length, time - time % length + length)
        held[window].append(value)
        seen[window] += 1
        if value > 90 or value in range(40, 45):
            held[window] = held[window][-3:]
            last[window] = len(held[window]), sum(held[window])
        elif seen[window] % 4 == 0:  # what is said of rows that are forgotten is said for good
            held[window] = []
            wanted.update([(sensor, *map(from_ms, window[1:]), *last.pop(window))] if window in last else [])
    last |= {window: (len(left[-3:]), sum(left[-3:])) for window, left in held.items() if left}
    columns = ("sensor", "window_start", "window_end", "n", "total")
    wanted.update((s, from_ms(start), from_ms(end), *pane) for (s, start, end), pane in last.items())
    logs = _readings(own_windows, rows, 20)
    return Program(
        operator=own_windows, logs=logs, columns={"": columns}, expected=(None, {"": wanted}), cuts=(len(rows) // 2,)
    )


def own_sessions() -> Program:
    """A trigger of sessions, which merge: at the third row, a second of the clock after the first one, and at the end."""

    class Third(fm.Trigger):
        def on_element(self, time: int, row: Mapping[str, Any], context: fm.TriggerContext) -> fm.Decision:
            state = context.state
            state["n"] = state.get("n", 0) + 1
            self._ask(context, state.setdefault("due", context.clock + 1000))
            if state["n"] < 3 or state.get("said"):
                return fm.Decision.CONTINUE
            state["said"] = True
            return fm.Decision.FIRE

        def on_event_time(self, time: int, context: fm.TriggerContext) -> fm.Decision:
            assert context.window is not None
            return fm.Decision.FIRE if time >= context.window[1] - 1 else fm.Decision.CONTINUE

        def on_processing_time(self, time: int, context: fm.TriggerContext) -> fm.Decision:
            return fm.Decision.FIRE

        def on_merge(self, states: list[dict[str, Any]], context: fm.TriggerContext) -> None:
            context.state["n"] = sum(state["n"] for state in states)
            context.state["due"] = min(state["due"] for state in states)
            self._ask(context, context.state["due"])

        def _ask(self, context: fm.TriggerContext, due: int) -> None:
            assert context.window is not None
            context.at_processing_time(due)
            context.at_event_time(context.window[1] - 1)

    @fm.operator
    def own_sessions(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("sensor").window(fm.Session("10ms"), trigger=Third()).aggregate(n=fm.count())

    logs = Logs({one.name: Log(one.schema) for one in own_sessions.inputs})
    cuts = []
    for part in ([(0, "a"), (25, "a")], [(8, "a"), (16, "a"), (5, "b")], [], [(30, "a")]):
        for time, sensor in part:
            logs.row("readings", {"at": from_ms(time), "sensor": sensor, "value": 0}, time)
        cuts.append(len(logs.order))
    logs.end()
    columns = ("sensor", "window_start", "window_end", "n")
    merged, alone = ("a", from_ms(0), from_ms(35), 4), ("b", from_ms(5), from_ms(15), 1)
    expected = (
        {"": Counter[tuple[Any, ...]]()},
        {"": Counter([merged])},  # the row at 16 joins both sessions: three rows and itself
        {"": Counter([merged, alone])},  # the clock has come
        {"": Counter([("a", from_ms(0), from_ms(40), 5), alone])},
    )
    return Program(
        operator=own_sessions,
        logs=logs,
        columns={"": columns},
        expected=expected,
        cuts=(cuts[0], cuts[1], cuts[2]),
        clocks=(1_000, 1_500, 2_600, 2_700),
    )


def late_readings(folder: Path) -> Program:
    """Late readings go to a side output; whoever works for a sensor holds its file in ``folder``, which two at a time could not."""

    class Late(fm.ProcessFunction):
        due = fm.Timer()

        def __init__(self, folder: str) -> None:
            self.folder = folder

        def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> list[dict[str, Any]]:
            with self._alone(ctx):
                if ctx.timestamp <= ctx.watermark:
                    ctx.output("late_readings", {"text": f"{ctx.timestamp} of {row['value']}"})
                    return []
                self.due.set(ctx.timestamp + 5)
                return [{"text": f"{ctx.timestamp} of {row['value']}"}]

        def on_timer(self, timer: str, ctx: fm.Context) -> list[dict[str, Any]]:
            with self._alone(ctx):
                return [{"text": f"{timer} {ctx.timestamp}"}]

        @contextmanager
        def _alone(self, ctx: fm.Context) -> Iterator[None]:
            path = os.path.join(self.folder, ctx.key["sensor"])  # noqa: PTH118 - as text it is part of the version
            held = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            try:
                os.fsync(held)
                yield
            finally:
                os.close(held)
                os.unlink(path)  # noqa: PTH108 - the same

    @fm.operator
    def late_readings(readings: fm.Stream[Reading]) -> fm.Stream:
        keyed = readings.key_by("sensor")
        return keyed.process(Late(str(folder)), schema=Note, sides={"late_readings": Note})

    rows, newest = _disorder(2, 160), 0
    told, late, timers = Rows(), Rows(), set[tuple[str, str]]()
    for time, sensor, value in rows:
        if time <= newest - 6 - 1:
            late[sensor, f"{time} of {value}"] += 1
        else:
            told[sensor, f"{time} of {value}"] += 1
            timers.add((sensor, f"due {time + 5}"))
        newest = max(newest, time)
    told.update(timers)
    assert sum(late.values()) > 20
    wanted = {"": told, "late_readings": late}
    return Program(
        operator=late_readings,
        logs=_readings(late_readings, rows, 6),
        columns=dict.fromkeys(wanted, ("sensor", "text")),
        expected=(None, wanted),
        cuts=(len(rows) // 2,),
    )


def joined() -> Program:
    """Readings and switches of one sensor in one window, and those without the other."""

    @fm.operator
    def joined(readings: fm.Stream[Reading], switches: fm.Stream[Switch]) -> fm.Stream:
        window = fm.Tumbling("20ms")
        return readings.key_by("sensor").window_join(switches.key_by("device"), window, kind="full")

    rng, logs = random.Random(3), Logs({one.name: Log(one.schema) for one in joined.inputs})
    sides: tuple[list[tuple[int, str, int]], ...] = ([], [])
    for number in range(120):
        time, sensor, side = number - rng.randrange(10) + 100, rng.choice("abcdefgh"), rng.random() < 0.4
        sides[side].append((time - time % 20, sensor, number))
        if side:
            logs.row("switches", {"since": from_ms(time), "device": sensor, "number": number}, time)
        else:
            logs.row("readings", {"at": from_ms(time), "sensor": sensor, "value": number}, time)
        for log in logs.logs.values():
            log.watermark = max(log.watermark, number + 80)
    half = len(logs.order) // 2
    logs.end()
    wanted = Rows()
    for mine, others, turned in ((*sides, False), (*sides[::-1], True)):
        for start, sensor, number in mine:
            found: list[int | None] = [other for s, key, other in others if (s, key) == (start, sensor)]
            for other in (found or [None]) if not turned else ([] if found else [None]):
                wanted[(sensor, from_ms(start), *((other, number) if turned else (number, other)))] += 1
    assert any(row[2] is None for row in wanted)
    assert any(row[3] is None for row in wanted)
    columns = ("sensor", "window_start", "value", "number")
    return Program(operator=joined, logs=logs, columns={"": columns}, expected=(None, {"": wanted}), cuts=(half,))


def rolling_reduce() -> Program:
    """Each row is folded into those of its key before it, in their order; the last fold of a key stays."""

    @fm.operator
    def rolling_reduce(readings: fm.Stream[Reading]) -> fm.Stream:
        rolling = readings.key_by("sensor").window(fm.Global(), trigger=fm.AfterCount(1))
        return rolling.reduce(lambda before, row: {**row, "value": (before["value"] * 31 + row["value"]) % 9973})

    rows, parts = _disorder(4, 120), list[dict[str, int]]()
    folds: dict[str, int] = {}
    for number, (_, sensor, value) in enumerate(rows, 1):
        folds[sensor] = (folds[sensor] * 31 + value) % 9973 if sensor in folds else value
        if number in {60, len(rows)}:
            parts.append(dict(folds))
    return Program(
        operator=rolling_reduce,
        logs=_readings(rolling_reduce, rows, 20),
        columns={"": ("sensor", "value")},
        expected=tuple({"": Counter[tuple[Any, ...]](part.items())} for part in parts),
        cuts=(60,),
    )
