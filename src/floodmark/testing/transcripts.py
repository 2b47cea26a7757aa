"""Transcripts: a time-semantics case as a list of steps (rows, watermarks, ticks, what is expected), run on every engine and mode.

    python -m floodmark.testing.transcripts FILE... [--engine memory|embedded|spark] [--mode unbounded|bounded|both] [--case NAME]

It prints one line per case and engine: ``pass``, ``fail: expected ... got ...`` or ``n/a: reason``, and exits with 1 on any fail. The grammar
is in docs/testing.md. In memory every case runs in all variants: as written, all in one micro-batch, one entry per
micro-batch, restarted after each step, with 1 and 3 key groups, and bounded. On the embedded engine and on Spark it runs over Delta tables. Source of the idea: Beam's ``trigger_transcripts.yaml``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pyarrow as pa
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from floodmark.core.errors import CapabilityError, FloodmarkError
from floodmark.core.time import from_ms, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.testing.grammar import Result, Step, Transcript, plain, transcript, wrong
from floodmark.testing.lakes import LakeCase
from floodmark.testing.log import Log, Logs


def entries(log: Logs, step: Step) -> None:
    """Append a step's rows, watermark, tick or end to the logs."""
    match step.word:
        case "rows" | "left" | "right":
            name = "events" if step.word == "rows" else step.word
            for key, value, time in step.argument:
                log.row(name, {"key": key, "value": value, "at": from_ms(time)}, time)
        case "watermark":
            log.move(step.argument)
        case "processing_time":
            log.tick(step.argument)
        case "end":
            log.end()
        case _:
            pass


class _Emitted:
    """The emitted rows of a run, in the form in which transcripts expect them."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.late: list[Result] = []
        self.final: Counter[Result] = Counter()

    def take(self, outputs: Mapping[str, pa.Table]) -> None:
        for row in outputs[""].to_pylist():
            if "result" in row:
                bounds = (_ms(row.get("window_start")), _ms(row.get("window_end")))
                result: Result = (plain(row["key"]), plain(row["result"]), *bounds)
            else:
                result = tuple(plain(row[name]) for name in ("value", "right_value") if name in row)
            if row["_kind"] == ROW:
                self.results.append(result)
                self.final[result] += 1
            elif row["_kind"] == RETRACTION:
                self.final[result] -= 1
        if "late" in outputs:
            self.late += [
                (r["key"], r["value"], _ms(r["at"])) for r in outputs["late"].to_pylist() if r["_kind"] == ROW
            ]


def _ms(moment: Any) -> int | None:
    return None if moment is None else to_ms(moment)


def _differs(name: str, expected: Sequence[Result], got: Sequence[Result]) -> str | None:
    if Counter(expected) == Counter(got):
        return None
    return f"{name}: expected {_format_results(expected)} got {_format_results(got)}"


def _unequal(wanted: Counter[Result], got: Counter[Result]) -> str | None:
    """The difference of final results for people; None if equal. A retraction without its row is a difference."""
    left = {result: (wanted[result], got[result]) for result in {*wanted, *got} if wanted[result] != got[result]}
    return f"bounded: expected and got so often: {left}" if left else None


def _format_results(results: Sequence[Result]) -> str:
    return "[" + ", ".join(str(list(r)) for r in sorted(results, key=repr)) + "]"


def _in_memory(case: Transcript, *, single: bool = False, restarts: bool = False, groups: int = 64) -> str | None:
    """Run the steps as written; compare at each ``expect``."""
    run = MemoryRun(_grouped(case.operator, groups))
    log, done, out, seen = _log(case), 0, _Emitted(), [0, 0]
    for number, step in enumerate(case.steps):
        entries(log, step)
        size = 1 if single else max(1, len(log.order) - done)
        while done < len(log.order):
            out.take(run.batch(log.tables(done, done + size)))
            done = min(done + size, len(log.order))
        if step.word == "restart" or restarts:
            run = MemoryRun(run.operator, run.savepoint())
        where = f"step {number + 1}"
        if step.word == "expect":
            if why := _differs(where, step.argument, out.results[seen[0] :]):
                return why
            seen[0] = len(out.results)
        elif step.word == "expect_late":
            if why := _differs(f"{where}, late", step.argument, out.late[seen[1] :]):
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
    out.take(MemoryRun(_grouped(case.operator, groups)).batch(log.tables()))
    return _all(case, out)


def _all(case: Transcript, out: _Emitted) -> str | None:
    return _differs("all steps", case.expected("expect"), out.results) or _differs(
        "all steps, late", case.expected("expect_late"), out.late
    )


def _bounded(case: Transcript) -> str | None:
    """Compare the final results of one batch over the ended input with those of one entry per micro-batch."""
    log, single, whole = _log(case), _Emitted(), _Emitted()
    for step in case.steps:
        entries(log, step)
    log.end()
    run = MemoryRun(case.operator)
    for position in range(len(log.order)):
        single.take(run.batch(log.tables(position, position + 1)))
    whole.take(MemoryRun(case.operator).batch(log.tables()))
    return _unequal(single.final, whole.final)


def _log(case: Transcript) -> Logs:
    log = Logs({given.name: Log(given.schema) for given in case.operator.inputs})
    if case.clocked:
        log.tick(0)
    return log


def _grouped(operator: Operator, groups: int) -> Operator:
    return operator.grouped(groups)


VARIANTS: dict[str, Callable[[Transcript], str | None]] = {
    "as written": _in_memory,
    "one entry per micro-batch": lambda case: _in_memory(case, single=True),
    "restart after each step": lambda case: _in_memory(case, restarts=True),
    "one key group": lambda case: _in_memory(case, groups=1),
    "three key groups": lambda case: _in_memory(case, groups=3),
    "all in one micro-batch": _whole,
}


def check_in_memory(case: Transcript, mode: str) -> str | None:
    """Run every variant in memory; the first difference, or None."""
    variants: dict[str, Callable[[Transcript], str | None]] = dict(VARIANTS) if mode != "bounded" else {}
    if mode != "unbounded":
        variants["bounded"] = _bounded
    for name, variant in variants.items():
        if why := variant(case):
            return f"{why} ({name})"
    return None


def check_in_lake(case: Transcript, mode: str, make: Callable[[Operator, str], LakeCase], folder: str) -> str | None:
    """Run on an engine: unbounded in parts with a restart between them, and bounded. The first difference, or None.

    Where the clock moves, every move is a restart, and the bounded run replays what the stream has recorded.

    Args:
        case: to run.
        mode: unbounded, bounded or both.
        make: operator and folder -> the operator on the engine, with its lake in the folder.
        folder: of two lakes.
    """
    log, stream = _log(case), make(case.operator, f"{folder}/unbounded")
    for step in case.steps:
        entries(log, step)
    if mode != "bounded" or case.clocked:
        for clock, start, stop in _pieces(log):
            _land(stream, log, start, stop)
            stream.run_unbounded(clock)
        out = _Emitted()
        out.take(stream.outputs())
        if why := _all(case, out):
            return f"{why} (unbounded)"
    if mode != "unbounded":
        log.end()
        batch, memory = make(case.operator, f"{folder}/bounded"), MemoryRun(case.operator)
        _land(batch, log, 0, len(log.order))
        batch.replay(stream)
        batch.run_bounded()
        got, wanted = _Emitted(), _Emitted()
        got.take(batch.outputs())
        wanted.take(memory.batch(log.tables()))
        if why := _unequal(wanted.final, got.final):
            return f"{why} (bounded)"
    return None


def check_spark(case: Transcript, mode: str, spark: Any, folder: str) -> str | None:
    """``check_in_lake`` on real Spark."""
    from floodmark.testing.spark import SparkCase  # noqa: PLC0415 - other engines need no Spark

    return check_in_lake(case, mode, lambda operator, lake: SparkCase(spark, operator, lake), folder)


def check_embedded(case: Transcript, mode: str, folder: str) -> str | None:
    """``check_in_lake`` on the embedded engine."""
    from floodmark.testing.embedded import EmbeddedCase  # noqa: PLC0415 - needs pysail

    return check_in_lake(case, mode, EmbeddedCase, folder)


def _land(case: LakeCase, log: Logs, start: int, stop: int) -> None:
    """Land entries of all inputs, one commit per input. The first call creates every input's table."""
    for name, input_log in log.logs.items():
        case.land(input_log, *log.bounds(name, start, stop), name=name)


def _pieces(log: Logs) -> list[tuple[int | None, int, int]]:
    """(clock, first entry, entry after the last) of each part of a log: from one tick to the next, or two halves."""
    moves: list[tuple[int, int | None]] = list(log.ticks) or [(0, None), (len(log.order) // 2, None)]
    places = [place for place, _ in moves]
    return [(clock, place, stop) for (place, clock), stop in zip(moves, [*places[1:], len(log.order)], strict=True)]


# ---- command line


ENGINES = ("memory", "embedded", "spark")


def verdicts(cases: Sequence[Transcript], engines: Sequence[str], mode: str) -> Iterator[tuple[Transcript, str, str]]:
    """(case, engine, ``pass`` | ``fail: ...`` | ``n/a: ...``) for each."""
    spark: Any = None
    for engine in engines:
        if engine == "spark":
            from floodmark.engines.spark.session.builder import spark_session  # noqa: PLC0415 - only where asked for

            spark = spark_session(app="transcripts")
        for case in cases:
            try:
                with TemporaryDirectory() as folder:
                    why = _checked(case, engine, mode, spark, folder)
            except CapabilityError as error:
                yield case, engine, f"n/a: {error}"
            except FloodmarkError as error:
                yield case, engine, f"fail: expected a result got {error}"
            else:
                yield case, engine, f"fail: {why}" if why else "pass"
    if spark is not None:
        spark.stop()


def _checked(case: Transcript, engine: str, mode: str, spark: Any, folder: str) -> str | None:
    match engine:
        case "memory":
            return check_in_memory(case, mode)
        case "embedded":
            return check_embedded(case, mode, folder)
        case _:
            return check_spark(case, mode, spark, folder)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--engine", type=click.Choice(ENGINES), default=None, help="By default all.")
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
            raise SystemExit(f"{path}: not YAML: {error}") from None
        for number, case in enumerate(raw if isinstance(raw, list) else [raw]):
            if name is not None and (not isinstance(case, Mapping) or case.get("name") != name):
                continue
            try:
                if not isinstance(case, Mapping):
                    raise wrong(f"{path.name}[{number}]", "a case: name, operator, steps", type(case).__name__)
                cases.append(transcript(case, f"{path.name}[{number}]"))
            except FloodmarkError as error:
                failed += 1
                label = case.get("name", number) if isinstance(case, Mapping) else number
                click.echo(f"{label}: fail: expected a case of the grammar got {error}")
    for case, where, verdict in verdicts(cases, [engine] if engine else ENGINES, mode):
        failed += verdict.startswith("fail")
        click.echo(f"{case.name} [{where}]: {' '.join(verdict.split())}")
    if not cases and not failed:
        click.echo(f"no case named '{name}'" if name else "no cases")
        failed = 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
