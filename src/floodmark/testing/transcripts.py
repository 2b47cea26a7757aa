"""Transcripts: a time-semantics case as a list of steps (rows, watermarks, ticks, what is expected), run on every engine and mode.

    python -m floodmark.testing.transcripts FILE... [--engine local|spark] [--mode unbounded|bounded|both] [--case NAME]

It prints one line per case and engine: ``pass``, ``fail: expected ... got ...`` or ``n/a: reason``, and exits with 1 on any fail. The grammar
is in docs/testing.md. On the local engine every case runs in all variants: as written, all in one micro-batch, one entry per
micro-batch, restarted after each step, with 1 and 3 key groups, and bounded. Source of the idea: Beam's ``trigger_transcripts.yaml``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pyarrow as pa
import yaml

from floodmark.core.errors import CapabilityError, DefinitionError, FloodmarkError
from floodmark.core.time import from_ms, to_ms
from floodmark.engines.local.engine import LocalRun, Savepoint
from floodmark.spec import aggregates as known
from floodmark.spec.evictors import Evictor, KeepLast, KeepNear, KeepWithin
from floodmark.spec.operator import Input, Operator
from floodmark.spec.schema import RETRACTION, ROW, Column, Schema
from floodmark.spec.steps import Read
from floodmark.spec.stream import Stream
from floodmark.spec.triggers import (
    AfterCount,
    AfterDelay,
    AfterWatermark,
    EndOfInput,
    Every,
    Purging,
    Trigger,
    all_of,
    any_of,
)
from floodmark.spec.windows import Count, Global, Session, Sliding, Tumbling, Window
from floodmark.testing.log import Log

Result = tuple[Any, ...]
"""key, result, window start, window end; of a late row: key, value, event time."""

_FUNCTIONS: dict[str, Callable[[], known.Builtin]] = {
    "sum": lambda: known.sum("value"),
    "count": known.count,
    "collect": lambda: known.collect("value"),
    "max": lambda: known.max("value"),
    "min": lambda: known.min("value"),
    "mean": lambda: known.mean("value"),
}
_STEPS = ("rows", "watermark", "processing_time", "end", "restart", "expect", "expect_late")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a transcript: its word and what stands behind it."""

    word: str
    given: Any = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """One case.

    Args:
        name: of the case.
        operator: what it is about: reads ``events`` (key, value, at), writes ``result``.
        steps: in order.
    """

    name: str
    operator: Operator
    steps: tuple[Step, ...]

    @property
    def clocked(self) -> bool:
        """Whether processing time moves in it."""
        return any(step.word == "processing_time" for step in self.steps)

    def expected(self, word: str) -> list[Result]:
        """Everything all steps of that word expect."""
        return [found for step in self.steps if step.word == word for found in step.given]


# ---- reading


def load(path: Path) -> list[Transcript]:
    """The transcripts of a file.

    Raises:
        DefinitionError: DEFINITION-070, not in the grammar; unknown words are never passed over.
    """
    cases = yaml.safe_load(path.read_text())
    if not isinstance(cases, list):
        raise _wrong(str(path), "a list of cases", type(cases).__name__)
    return [transcript(case, f"{path.name}[{number}]") for number, case in enumerate(cases)]


def transcript(case: Mapping[str, Any], where: str) -> Transcript:
    """One case of the grammar."""
    _only(case, {"name", "source", "operator", "steps"}, where)
    name = str(case.get("name", where))
    where = f"case '{name}'"
    steps = tuple(_step(step, f"{where}, step {number + 1}") for number, step in enumerate(case.get("steps", ())))
    rows = [row for step in steps if step.word == "rows" for row in step.given]
    clocked = any(step.word == "processing_time" for step in steps)
    return Transcript(name, _operator(case.get("operator", {}), rows, where, clocked=clocked), steps)


def _step(step: Any, where: str) -> Step:
    word, given = (step, None) if isinstance(step, str) else next(iter(step.items()))
    if word not in _STEPS or (isinstance(step, Mapping) and len(step) != 1):
        raise _wrong(where, f"one of {', '.join(_STEPS)}", repr(step))
    if word in {"expect", "expect_late"}:
        return Step(word, [tuple(_plain(v) for v in found) for found in given or []])
    return Step(word, given)


def _operator(raw: Mapping[str, Any], rows: Sequence[Sequence[Any]], where: str, *, clocked: bool) -> Operator:
    _only(
        raw, {"window", "trigger", "evictor", "allowed_lateness", "late", "accumulation", "function"}, f"{where}, operator"
    )
    kinds = [_kind([row[i] for row in rows]) for i in (0, 1)]
    schema = Schema(
        (
            Column(name="key", type=kinds[0]),
            Column(name="value", type=kinds[1]),
            Column(name="at", type="timestamp", nullable=False),
        )
    )
    function = raw.get("function", "sum")
    if function not in _FUNCTIONS:
        raise _wrong(where, f"a function: {', '.join(_FUNCTIONS)}", repr(function))
    trigger = raw.get("trigger")
    windowed = (
        Stream(Read("events", schema), "result")
        .key_by("key")
        .window(
            _window(raw.get("window"), where),
            trigger=None if trigger is None else _trigger(trigger, where, clocked=clocked),
            evictor=_evictor(raw["evictor"], where) if raw.get("evictor") is not None else None,
            allowed_lateness=str(raw.get("allowed_lateness", "0s")),
            late=raw.get("late", "drop"),
            accumulation=raw.get("accumulation", "accumulating"),
        )
    )
    result = windowed.aggregate(result=_FUNCTIONS[function]())
    return Operator("result", (Input(name="events", table="events", schema=schema),), (("", result.step),))


def _kind(values: Sequence[Any]) -> str:
    present = [v for v in values if v is not None]
    if all(isinstance(v, bool) for v in present) and present:
        return "boolean"
    if all(isinstance(v, int) for v in present):
        return "bigint"
    return "double" if all(isinstance(v, (int, float)) for v in present) else "string"


def _window(raw: Any, where: str) -> Window:
    if raw == "global":
        return Global()
    match raw:
        case {"tumbling": size, **rest}:
            _only(rest, {"offset"}, f"{where}, window")
            return Tumbling(str(size), str(rest.get("offset", "0s")))
        case {"sliding": size, "slide": slide, **rest}:
            _only(rest, {"offset"}, f"{where}, window")
            return Sliding(str(size), str(slide), str(rest.get("offset", "0s")))
        case {"session": gap, **rest}:
            _only(rest, set(), f"{where}, window")
            return Session(str(gap))
        case {"count": size, **rest}:
            _only(rest, {"slide"}, f"{where}, window")
            return Count(size, rest.get("slide"))
        case _:
            raise _wrong(f"{where}, window", "tumbling, sliding, session, count or global", repr(raw))


def _trigger(raw: Any, where: str, *, clocked: bool) -> Trigger:
    def inner(part: Any) -> Trigger:
        return _trigger(part, where, clocked=clocked)

    match raw:
        case "after_watermark":
            return AfterWatermark()
        case "end_of_input":
            return EndOfInput()
        case {"after_count": n, **rest} if not rest:
            return AfterCount(n)
        case {"after_delay": delay, **rest} if not rest:
            return AfterDelay(str(delay))
        case {"every": period, **rest}:
            _only(rest, {"time"}, f"{where}, trigger")
            return Every(str(period), rest.get("time", "processing" if clocked else "event"))
        case {"purging": part, **rest} if not rest:
            return Purging(inner(part))
        case {"watermark": parts, **rest} if not rest:
            _only(parts or {}, {"early", "late"}, f"{where}, trigger")
            found = AfterWatermark()
            found = found.early(inner(parts["early"])) if parts and parts.get("early") is not None else found
            return found.late(inner(parts["late"])) if parts and parts.get("late") is not None else found
        case {"any_of": parts, **rest} if not rest:
            return any_of(*(inner(part) for part in parts))
        case {"all_of": parts, **rest} if not rest:
            return all_of(*(inner(part) for part in parts))
        case _:
            raise _wrong(f"{where}, trigger", "a trigger of the grammar", repr(raw))


def _evictor(raw: Any, where: str) -> Evictor:
    when = raw.get("when", "before") if isinstance(raw, Mapping) else "before"
    match raw:
        case {"keep_last": n, **rest} if not rest.keys() - {"when"}:
            return KeepLast(n, when)
        case {"keep_within": duration, **rest} if not rest.keys() - {"when"}:
            return KeepWithin(str(duration), when)
        case {"keep_near": threshold, **rest} if not rest.keys() - {"when"}:
            return KeepNear(threshold, "value", when)
        case _:
            raise _wrong(f"{where}, evictor", "keep_last, keep_within or keep_near", repr(raw))


def _only(raw: Mapping[str, Any], words: set[str], where: str) -> None:
    unknown = set(raw) - words
    if unknown:
        raise _wrong(where, f"only {', '.join(sorted(words)) or 'what was read'}", ", ".join(sorted(map(str, unknown))))


def _wrong(where: str, expected: str, got: str) -> DefinitionError:
    return DefinitionError(where, expected, got, "See the grammar in docs/testing.md.", code="DEFINITION-070")


def _plain(value: Any) -> Any:
    """Lists as tuples and floats rounded beyond what addition in another order changes, so that results can be counted."""
    if isinstance(value, list):
        return tuple(_plain(v) for v in value)
    return float(f"{value:.9e}") if isinstance(value, float) else value


# ---- running


def entries(log: Log, step: Step) -> None:
    """Write what a step brings into a log."""
    match step.word:
        case "rows":
            for key, value, time in step.given:
                log.row({"key": key, "value": value, "at": from_ms(time)}, time)
        case "watermark":
            log.move(step.given)
        case "processing_time":
            log.tick(step.given)
        case "end":
            log.end()
        case _:
            pass


class _Emitted:
    """What a run has sent out, as transcripts speak of it."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.late: list[Result] = []
        self.final: Counter[Result] = Counter()

    def take(self, outputs: Mapping[str, pa.Table]) -> None:
        for row in outputs[""].to_pylist():
            bounds = (_ms(row.get("window_start")), _ms(row.get("window_end")))
            found = (_plain(row["key"]), _plain(row["result"]), *bounds)
            if row["_kind"] == ROW:
                self.results.append(found)
                self.final[found] += 1
            elif row["_kind"] == RETRACTION:
                self.final[found] -= 1
        if "late" in outputs:
            self.late += [(r["key"], r["value"], _ms(r["at"])) for r in outputs["late"].to_pylist() if r["_kind"] == ROW]


def _ms(moment: Any) -> int | None:
    return None if moment is None else to_ms(moment)


def _differs(name: str, expected: Sequence[Result], got: Sequence[Result]) -> str | None:
    if Counter(expected) == Counter(got):
        return None
    return f"{name}: expected {_told(expected)} got {_told(got)}"


def _told(results: Sequence[Result]) -> str:
    return "[" + ", ".join(str(list(r)) for r in sorted(results, key=repr)) + "]"


def _local(case: Transcript, *, single: bool = False, restarts: bool = False, groups: int = 64) -> str | None:
    """As written, expectations where they stand."""
    run = LocalRun(_grouped(case.operator, groups))
    log, done, out, seen = _log(case), 0, _Emitted(), [0, 0]
    for number, step in enumerate(case.steps):
        entries(log, step)
        size = 1 if single else max(1, len(log.entries) - done)
        while done < len(log.entries):
            out.take(run.batch({"events": log.table(done, done + size)}))
            done = min(done + size, len(log.entries))
        if step.word == "restart" or restarts:
            run = LocalRun(run.operator, run.savepoint())
        where = f"step {number + 1}"
        if step.word == "expect":
            if why := _differs(where, step.given, out.results[seen[0] :]):
                return why
            seen[0] = len(out.results)
        elif step.word == "expect_late":
            if why := _differs(f"{where}, late", step.given, out.late[seen[1] :]):
                return why
            seen[1] = len(out.late)
    return _differs("after the last step", [], out.results[seen[0] :]) or _differs(
        "after the last step, late", [], out.late[seen[1] :]
    )


def _whole(case: Transcript, *, groups: int = 64) -> str | None:
    """All steps in one micro-batch."""
    log = _log(case)
    for step in case.steps:
        entries(log, step)
    out = _Emitted()
    out.take(LocalRun(_grouped(case.operator, groups)).batch({"events": log.table()}))
    return _all(case, out)


def _all(case: Transcript, out: _Emitted) -> str | None:
    return _differs("all steps", case.expected("expect"), out.results) or _differs(
        "all steps, late", case.expected("expect_late"), out.late
    )


def _bounded(case: Transcript) -> str | None:
    """The final results of the ended input in one piece are those of the stream."""
    log, single, whole = _log(case), _Emitted(), _Emitted()
    for step in case.steps:
        entries(log, step)
    log.end()
    run = LocalRun(case.operator)
    for place in range(len(log.entries)):
        single.take(run.batch({"events": log.table(place, place + 1)}))
    whole.take(LocalRun(case.operator, Savepoint()).batch({"events": log.table()}))
    return _differs("bounded", [*single.final.elements()], [*whole.final.elements()])


def _log(case: Transcript) -> Log:
    log = Log(case.operator.inputs[0].schema)
    if case.clocked:
        log.tick(0)
    return log


def _grouped(operator: Operator, groups: int) -> Operator:
    (name, step), *_ = operator.results
    return dataclasses.replace(operator, results=((name, dataclasses.replace(step, groups=groups)),))  # type: ignore[type-var]  # a window


LOCAL_VARIANTS: dict[str, Callable[[Transcript], str | None]] = {
    "as written": _local,
    "one entry per micro-batch": lambda case: _local(case, single=True),
    "restart after each step": lambda case: _local(case, restarts=True),
    "one key group": lambda case: _local(case, groups=1),
    "three key groups": lambda case: _local(case, groups=3),
    "all in one micro-batch": _whole,
}


def check_local(case: Transcript, mode: str) -> str | None:
    """Every variant on the local engine; the first difference, or None."""
    found: dict[str, Callable[[Transcript], str | None]] = dict(LOCAL_VARIANTS) if mode != "bounded" else {}
    if mode != "unbounded":
        found["bounded"] = _bounded
    for name, variant in found.items():
        if why := variant(case):
            return f"{why} ({name})"
    return None


def check_spark(case: Transcript, mode: str, spark: Any, folder: str) -> str | None:
    """On real Spark: a stream in two parts with a restart between them, and a bounded run. The first difference, or None."""
    from floodmark.testing.spark import SparkCase  # noqa: PLC0415 - the local engine needs no Spark

    log = _log(case)
    for step in case.steps[: len(case.steps) // 2]:
        entries(log, step)
    half = len(log.entries)
    for step in case.steps[len(case.steps) // 2 :]:
        entries(log, step)
    if mode != "bounded":
        stream = SparkCase(spark, case.operator, f"{folder}/unbounded")
        for start, stop in ((0, half), (half, len(log.entries))):
            stream.land(log, start, stop)
            stream.run_unbounded()
        out = _Emitted()
        out.take(stream.outputs())
        if why := _all(case, out):
            return f"{why} (Spark, unbounded)"
    if mode != "unbounded":
        log.end()
        batch, local = SparkCase(spark, case.operator, f"{folder}/bounded"), LocalRun(case.operator)
        batch.land(log, 0, len(log.entries))
        batch.run_bounded()
        got, wanted = _Emitted(), _Emitted()
        got.take(batch.outputs())
        wanted.take(local.batch({"events": log.table()}))
        if why := _differs("bounded", [*wanted.final.elements()], [*got.final.elements()]):
            return f"{why} (Spark, bounded)"
    return None


# ---- command line


def verdicts(
    cases: Sequence[Transcript], engines: Sequence[str], mode: str
) -> Iterator[tuple[Transcript, str, str]]:
    """(case, engine, ``pass`` | ``fail: ...`` | ``n/a: ...``) for each."""
    spark: Any = None
    for engine in engines:
        for number, case in enumerate(cases):
            try:
                if engine == "local":
                    why = check_local(case, mode)
                else:
                    if spark is None:
                        from floodmark.engines.spark.session import spark_session  # noqa: PLC0415 - only where asked for

                        spark = spark_session(app="transcripts")
                    with TemporaryDirectory() as folder:
                        why = check_spark(case, mode, spark, f"{folder}/{number}")
            except CapabilityError as error:
                yield case, engine, f"n/a: {error}"
            except FloodmarkError as error:
                yield case, engine, f"fail: expected a result got {error}"
            else:
                yield case, engine, f"fail: {why}" if why else "pass"
    if spark is not None:
        spark.stop()


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--engine", type=click.Choice(["local", "spark"]), default=None, help="By default both.")
@click.option("--mode", type=click.Choice(["unbounded", "bounded", "both"]), default="both", show_default=True)
@click.option("--case", "name", default=None, help="Only the case of this name.")
def main(files: tuple[Path, ...], engine: str | None, mode: str, name: str | None) -> None:
    """Run transcripts and say which pass."""
    failed = 0
    cases: list[Transcript] = []
    for path in files:
        try:
            raw = yaml.safe_load(path.read_text())
        except yaml.YAMLError as error:
            raise SystemExit(f"{path}: not YAML: {error}") from None  # noqa: TRY003 - one line for the command line
        for number, case in enumerate(raw if isinstance(raw, list) else [raw]):
            if name is not None and (not isinstance(case, Mapping) or case.get("name") != name):
                continue
            try:
                if not isinstance(case, Mapping):
                    raise _wrong(f"{path.name}[{number}]", "a case: name, operator, steps", type(case).__name__)
                cases.append(transcript(case, f"{path.name}[{number}]"))
            except FloodmarkError as error:
                failed += 1
                label = case.get("name", number) if isinstance(case, Mapping) else number
                print(f"{label}: fail: expected a case of the grammar got {error}")
    for case, where, verdict in verdicts(cases, [engine] if engine else ["local", "spark"], mode):
        failed += verdict.startswith("fail")
        print(f"{case.name} [{where}]: {' '.join(verdict.split())}", flush=True)
    if not cases and not failed:
        print(f"no case named '{name}'" if name else "no cases")
        failed = 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
