"""``floodmark run``: one operator, or all, bounded over an interval or unbounded until stopped; and ``floodmark sql``: a statement, which writes nothing."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, open_workspace, opened_lake
from floodmark.cli.shell.signals import stopping
from floodmark.cli.shell.spark import computing
from floodmark.core.cores import limited
from floodmark.core.errors import ExecutionError
from floodmark.core.time import END, NEVER, Interval, describe, parse_instant
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.budget import Budget
from floodmark.spec.values.run import BatchInfo, LateRows, RunResult
from floodmark.spec.windowing.partitions import named
from floodmark.spec.workspace import Engine, Workspace

if TYPE_CHECKING:
    import threading

    from floodmark.control.processes.engine import Computing
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.replayed import Beginning


@click.command()
@click.argument("operators", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every operator, upstream first.")
@click.option("--from", "start_text", metavar="TIME", help="Bounded: from this date or time on.")
@click.option("--to", "end_text", metavar="TIME", help="Bounded: up to this date or time, exclusive.")
@click.option(
    "--partition",
    metavar="NAME",
    help="Bounded: this asset partition, or FIRST...LAST: '2013-01-01', '2013-01-01...2013-01-31'.",
)
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of --from and --to without an offset.")
@click.option(
    "--late-rows",
    type=click.Choice(["as_landed", "all"]),
    help="Bounded: rows that landed late are late (as_landed, the default), or no row is late (all).",
)
@click.option("--force", is_flag=True, help="Bounded: compute again what is covered already.")
@click.option(
    "--preview",
    "only_preview",
    is_flag=True,
    help="Bounded: show what would be computed, read and written. Starts no engine.",
)
@click.option(
    "--budget",
    "budget_text",
    metavar="LIMITS",
    help="Bounded: cores=1,memory=512,lag=1 minute, any of them: cores, memory in MB, and how far the streams beside it may be behind.",
)
@click.option("--unbounded", is_flag=True, help="Run as a stream, until Ctrl-C.")
@click.option("--until-caught-up", is_flag=True, help="Unbounded: stop when all landed rows have been read.")
@click.option("--files-per-batch", type=click.IntRange(min=1), help="Unbounded: most files of a log per micro-batch.")
@click.option(
    "--from-scratch", is_flag=True, help="Unbounded: discard checkpoint and output, and read the whole log again."
)
@click.option(
    "--engine", type=click.Choice(["spark", "embedded"]), help="Engine of the run. Default: the engine of the settings."
)
@shared
@pass_invocation
def run(  # noqa: PLR0913 - click hands over each option by name
    invocation: Invocation,
    *,
    operators: tuple[str, ...],
    everything: bool,
    start_text: str | None,
    end_text: str | None,
    partition: str | None,
    timezone: str,
    late_rows: LateRows | None,
    force: bool,
    only_preview: bool,
    budget_text: str | None,
    unbounded: bool,
    until_caught_up: bool,
    files_per_batch: int | None,
    from_scratch: bool,
    engine: Engine | None,
) -> None:
    """Run OPERATORS, upstream first, bounded over all of time or an interval, or --unbounded."""
    if bool(operators) == everything:
        msg = "name one operator or more, or give --all"
        raise click.UsageError(msg)
    bounded_only: dict[str, object] = {
        "--from": start_text,
        "--to": end_text,
        "--partition": partition,
        "--late-rows": late_rows,
        "--force": force,
        "--preview": only_preview,
        "--budget": budget_text,
    }
    unbounded_only: dict[str, object] = {
        "--until-caught-up": until_caught_up,
        "--files-per-batch": files_per_batch,
        "--from-scratch": from_scratch,
    }
    _refuse(bounded_only if unbounded else unbounded_only, unbounded=unbounded)
    several = everything or len(operators) > 1
    if several and unbounded and not until_caught_up:
        msg = "--unbounded of several operators needs --until-caught-up: they run one after the other here"
        raise click.UsageError(msg)
    if partition is not None and (start_text is not None or end_text is not None):
        msg = "--partition says which interval; leave out --from and --to"
        raise click.UsageError(msg)
    interval = Interval(
        start=NEVER if start_text is None else parse_instant(start_text, "--from", timezone),
        end=END + 1 if end_text is None else parse_instant(end_text, "--to", timezone),
    )
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    workspace = opened.workspace
    asked = {workspace.operator(name).name for name in operators}
    chosen = tuple(one for one in workspace.operators if everything or one.name in asked)
    if not chosen:
        console.say("the workspace has no operators; list them in its definitions: Workspace(operators=[...])")
        console.document({"lake": opened.lake, "runs": []})
        return
    engine = engine or workspace.settings.engine
    if unbounded:
        how = _Unbounded(until_caught_up=until_caught_up, files_per_batch=files_per_batch, from_scratch=from_scratch)
        results = _unbounded(opened, chosen, console, how, engine)
    else:
        intervals = [interval if partition is None else _interval(workspace, one, partition) for one in chosen]
        if only_preview:
            _previewed(
                opened, chosen, console, intervals, late_rows=late_rows or "as_landed", force=force, engine=engine
            )
            return
        budget = None if budget_text is None else Budget.parse(budget_text)
        with limited(None if budget is None else budget.cores):
            results = _bounded(
                opened,
                chosen,
                console,
                intervals,
                late_rows=late_rows or "as_landed",
                force=force,
                engine=engine,
                budget=budget,
            )
    documents = [result.as_json() for result in results]
    console.document({"lake": opened.lake, "runs": documents} if several else {"lake": opened.lake, **documents[0]})


def _interval(workspace: Workspace, operator: Operator, partition: str) -> Interval:
    from floodmark.observe.partitions import partitions_of

    return named(partitions_of(workspace.asset(operator.name)), partition, "--partition")


def _refuse(options: dict[str, object], *, unbounded: bool) -> None:
    for name in (name for name, value in options.items() if value):
        mode, other = ("an unbounded", "Leave out --unbounded") if unbounded else ("a bounded", "Add --unbounded")
        msg = f"{name} means nothing for {mode} run. {other}, or leave out {name}."
        raise click.UsageError(msg)


def _bounded(
    opened: LoadedWorkspace,
    operators: tuple[Operator, ...],
    console: Console,
    intervals: list[Interval],
    *,
    late_rows: LateRows,
    force: bool,
    engine: Engine,
    budget: Budget | None,
) -> list[RunResult]:
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.results.readiness import covered, readiness
    from floodmark.observe.replayed import Beginning

    lake, results = Lake.of(opened.workspace.settings), list[RunResult]()
    computed = computing(opened, console, engine, budget)
    for operator, interval in zip(operators, intervals, strict=True):
        ready = readiness(operator, lake, interval, late_rows=late_rows, force=force)
        if not ready.todo.missing:  # no engine is needed for this answer
            results.append(covered(operator, interval, ready.todo))
            _say(console, results[-1], Beginning(operator, lake, NEVER, interval))
            continue
        computed.start(operator)
        with console.step(f"{operator.version} bounded, {interval}"):
            result = computed.run_bounded(
                operator,
                lake,
                interval,
                late_rows=late_rows,
                force=force,
                on_step=lambda step: console.note(f"  {step}"),
                budget=budget,
            )
        _say(console, result, Beginning(operator, lake, NEVER, interval))
        results.append(result)
    return results


def _previewed(
    opened: LoadedWorkspace,
    operators: tuple[Operator, ...],
    console: Console,
    intervals: list[Interval],
    *,
    late_rows: LateRows,
    force: bool,
    engine: Engine,
) -> None:
    """Print what bounded runs of operators would do, upstream first."""
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.results.preview import chain

    lake, workspace = Lake.of(opened.workspace.settings), opened.workspace
    runs = list(zip(operators, intervals, strict=True))
    previews = chain(runs, lake, engine=engine, operators=workspace.operators, late_rows=late_rows, force=force)
    for preview in previews:
        head, *facts = preview.lines()
        console.say(head)
        for fact in facts:
            console.say(f"  {fact}")
    console.document({"lake": opened.lake, "previews": [one.as_json() for one in previews]})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unbounded:
    """The options of an unbounded run."""

    until_caught_up: bool
    files_per_batch: int | None
    from_scratch: bool


def _unbounded(
    opened: LoadedWorkspace, operators: tuple[Operator, ...], console: Console, how: _Unbounded, engine: Engine
) -> list[RunResult]:
    from floodmark.lake.folder.paths import Lake

    lake, before, computed = Lake.of(opened.workspace.settings), set[str](), computing(opened, console, engine)
    for operator in operators:
        made = None if how.from_scratch else computed.take_over(operator, lake)
        if made is not None:
            text = f"{operator.name} resumes on engine {computed.name}, from micro-batch {made.manifest.batch} on"
            console.say(f"{text}; how it was before: savepoint {made.id}")
        computed.check_stream(operator, lake, from_scratch=how.from_scratch, filled=before)
        before.add(operator.name)
    computed.start(*operators)
    with stopping(console, "this micro-batch") as stop:
        return [
            _stream(computed, opened.workspace.asset(operator.name), lake, console, stop, how)
            for operator in operators
            if not stop.is_set()
        ]


def _stream(
    computed: Computing,
    asset: OperatorAsset,
    lake: Lake,
    console: Console,
    stop: threading.Event,
    how: _Unbounded,
) -> RunResult:
    """Run a stream, and print its progress and its result."""
    from floodmark.engines.pacing import within
    from floodmark.observe.replayed import Beginning

    operator, pace = asset.operator, asset.checkpoints.options
    beginning = Beginning.of_stream(operator, lake, from_scratch=how.from_scratch)
    console.note(f"{operator.version} unbounded{', until caught up' if how.until_caught_up else '; Ctrl-C stops it'}")
    result = computed.run_unbounded(
        operator,
        lake,
        until_caught_up=how.until_caught_up,
        stop=stop,
        from_scratch=how.from_scratch,
        on_batch=lambda batch: console.note(_batch(batch)),
        within=within(asset.checkpoints, operator.name, partial(_end_overdue, console)),
        **pace if how.files_per_batch is None else pace | {"files_per_batch": how.files_per_batch},
    )
    if stop.is_set():
        console.note(
            f"stopped at a micro-batch boundary, at {describe(result.watermark)}; run it again to resume from there"
        )
    _say(console, result, beginning)
    return result


def _end_overdue(console: Console, error: ExecutionError, stack: str) -> None:
    """Print why this process ends, and end it: threads that hang end in no other way."""
    console.note(stack)
    if console.as_json:
        with suppress(SystemExit):
            console.document({}, error)
        sys.stdout.flush()
    else:
        console.error(error.as_json())
    os._exit(1)


def _batch(batch: BatchInfo) -> str:
    rows = ", ".join(f"{table} {count:,}" for table, count in batch.rows.items()) or "none"
    late = f", late: {batch.late:,} taken in, {batch.dropped:,} dropped" if batch.late or batch.dropped else ""
    read = (
        f"{batch.rows_in:,} rows in ({batch.rows_in / batch.seconds:,.0f} rows/s), out: "
        if batch.rows_in and batch.seconds
        else ""
    )
    reached = f"; up to {describe(batch.progress)}" if batch.progress > NEVER else ""
    unmet = "".join(
        f"\n  warning: {count:,} rows of '{table}' do not meet expectation '{name}'"
        for table, counts in batch.unmet.items()
        for name, count in counts.items()
    )
    warnings = unmet + "".join(f"\n  warning: {text}" for text in batch.warnings)
    return f"  micro-batch {batch.batch_id}: {read}{rows}{late}{reached}; {batch.seconds:.1f} s{warnings}"


def _say(console: Console, result: RunResult, beginning: Beginning) -> None:
    for reason in result.reasons:
        console.say(reason)
    for warning in result.warnings:
        console.say(f"warning: {warning}")
    rows = ", ".join(f"{table} {count:,} rows" for table, count in result.rows.items()) or "nothing to do"
    late = f"late: {result.late:,} taken in, {result.dropped:,} dropped"
    console.say(
        f"{result.version} {result.mode}: {rows}; {late}; up to {describe(result.watermark)}; {result.seconds:.1f} s"
    )
    if any(result.rows.values()):
        replayed = beginning.replayed(result.watermark, result.seconds)
        if replayed is not None:
            console.note(f"  {replayed}")


@click.command()
@click.argument("statement")
@click.option("--unbounded", is_flag=True, help="Follow the tables: print results as they come, until Ctrl-C.")
@click.option("--until-caught-up", is_flag=True, help="Unbounded: stop when all rows there are now have been read.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "arrow"]),
    default="table",
    show_default=True,
    help="A table; a JSON object or a line of CSV per row; or a stream of Arrow.",
)
@click.option(
    "--lateness", default="0 s", show_default=True, help="Rows at most this late revise the result of a window."
)
@shared
@pass_invocation
def sql(
    invocation: Invocation, *, statement: str, unbounded: bool, until_caught_up: bool, form: str, lateness: str
) -> None:
    """Answer STATEMENT, a SELECT or a file of one, over the lake's tables. Writes nothing to the lake."""
    console = Console(as_json=invocation.json)
    opened = open_workspace(invocation)
    text = Path(statement).read_text("utf-8") if statement.endswith(".sql") and Path(statement).is_file() else statement
    from floodmark.cli.asking.question import Question
    from floodmark.cli.asking.rows import Printed
    from floodmark.engines.embedded.sail.session import shared as shared_sail
    from floodmark.lake.folder.paths import Lake

    printed = Printed("json" if invocation.json else form)
    sail = shared_sail(opened.workspace.settings.memory)
    sail.begin()
    asked = Question(text, opened.workspace, Lake.of(opened.workspace.settings), sail, lateness)
    if unbounded or until_caught_up:
        with stopping(console, "this micro-batch") as stop:
            asked.follow(printed.rows, until_caught_up=until_caught_up, stop=stop)
    else:
        printed.rows(asked.answer())
    printed.end()
