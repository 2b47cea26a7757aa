"""The verbs check, gate and data-docs: expectations judged by hand, gates of asset partitions whose blocking checks have failed, and a site of Great Expectations'."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, opened_lake
from floodmark.cli.shell.spark import computing
from floodmark.cli.shell.store import known
from floodmark.core import machine
from floodmark.core.errors import ExecutionError, FloodmarkError, LifecycleError
from floodmark.core.time import Interval, iso
from floodmark.spec.windowing.partitions import Partitions, named, split

if TYPE_CHECKING:
    from floodmark.control.processes.engine import Computing
    from floodmark.observe.checking import Checked
    from floodmark.spec.rows.criterion import Judged


@click.command()
@click.argument("operator")
@click.option(
    "--partition",
    metavar="NAME",
    help="Judge the rows of this asset partition, or of each of FIRST...LAST. Default: all rows together.",
)
@shared
@pass_invocation
def check(invocation: Invocation, operator: str, partition: str | None) -> None:
    """Judge the expectations of OPERATOR now, as its asset checks do, close and release gates, and tell its alerts. Status 1 if a blocking one is not met."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    machine.refuse_read_only(opened.lake, f"lake {opened.lake}")
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.checking import outputs_of
    from floodmark.observe.partitions import partitions_of

    asset = opened.workspace.asset(operator)
    outputs = outputs_of(asset, Lake.of(opened.workspace.settings))
    if not outputs:
        fix = f"Give it some: operator_asset({operator}, expectations=[Expectation(...)])."
        raise LifecycleError(f"operator '{operator}'", "expectations", "none", fix, code="LIFECYCLE-303")
    pieces: list[tuple[str | None, Interval]] = [(None, Interval())]
    if partition is not None:
        every = partitions_of(asset)
        pieces = [(key, interval) for key, interval in split(every, named(every, partition, "--partition"))]
    engine = computing(opened, console, None)
    judgements = [
        judgement
        for checked in outputs.values()
        for key, interval in pieces
        for judgement in _judged(opened, engine, console, checked, asset.partitions, key, interval)
    ]
    document = {"lake": opened.lake, "operator": operator, "checks": judgements}
    console.document(document, _failure(operator, judgements))


def _judged(
    opened: LoadedWorkspace,
    engine: Computing,
    console: Console,
    checked: Checked,
    by: Partitions | None,
    key: str | None,
    interval: Interval,
) -> list[dict[str, Any]]:
    """Judge the rows of a table in an interval, and print the results.

    Raises:
        LifecycleError: LIFECYCLE-304, there are no rows that could be judged.
    """
    from floodmark.engines.outcome import described
    from floodmark.lake.table.entries import is_table
    from floodmark.observe.checking import partition_name

    assert checked.table is not None
    table, name = checked.table.rsplit("/", 1)[-1], partition_name(key, interval)
    complete = by is None or key is None or checked.complete(interval)
    there = is_table(checked.table)
    if not there or (not complete and not engine.with_session(partial(checked.has_rows, interval))):
        got = "no rows, and it is not complete" if there else "no table"
        computed = f"floodmark run {checked.stream}{'' if key is None else f' --partition {key}'}"
        fix = f"Compute it first: {computed}. Which partitions are complete: floodmark partitions {checked.stream}"
        raise LifecycleError(f"check of '{table}', {name}", "computed rows", got, fix, code="LIFECYCLE-304")
    with console.step(f"judging '{table}', {name}"):
        results = engine.with_session(partial(checked.judge, interval))
    console.say(f"{table}, {name}{'' if complete else ': not complete, so no gate is closed or released'}")
    documents = []
    for result in results:
        expectation, passed, numbers = result
        gate_text = checked.gate(result, key, interval) if complete else ""
        if complete:
            _tell_alerts(opened, console, checked, result, key, interval)
        kind = "blocking, " if expectation.blocking else ""
        console.say(f"  {'met' if passed else 'NOT MET'}  {expectation.name}: {kind}{described(numbers)}")
        if gate_text:
            console.say(f"    gate {gate_text}")
        about = {"table": table, "partition": name, "complete": complete, "check": expectation.name}
        result_of = {"blocking": expectation.blocking, "met": passed, "numbers": numbers, "gate": gate_text}
        documents.append(about | result_of)
    return documents


def _tell_alerts(
    opened: LoadedWorkspace,
    console: Console,
    checked: Checked,
    result: Judged,
    key: str | None,
    interval: Interval,
) -> None:
    """Tell the alerts of the stream; a store that is unreachable is no reason for a check to fail."""
    from floodmark.control.health.expecting import tell

    with suppress(FloodmarkError):
        if (streams := known(opened, console.note)) is not None:
            tell(streams.store, streams.stream(checked.stream), checked, result, key, interval)


def _failure(operator: str, judgements: list[dict[str, Any]]) -> ExecutionError | None:
    """The error of a check in which blocking expectations are not met; None if all are met."""
    from floodmark.engines.outcome import described

    unmet = [one for one in judgements if one["blocking"] and not one["met"]]
    if not unmet:
        return None
    lines = [f"{one['table']}, {one['partition']}: {one['check']}: {described(one['numbers'])}" for one in unmet]
    fix = f"Mend the rows and check them again; closed gates: floodmark gate list {operator}"
    where = f"check of operator '{operator}'"
    return ExecutionError(
        where, "rows that meet its blocking expectations", "; ".join(lines), fix, code="EXECUTION-133"
    )


@click.group()
@shared
def gate() -> None:
    """Show or release gates: asset partitions that readers wait for, because a blocking check of them has failed."""


@gate.command(name="list")
@click.argument("operator", required=False)
@shared
@pass_invocation
def list_gates(invocation: Invocation, operator: str | None) -> None:
    """Show the closed gates of OPERATOR, or of all operators, and asset partitions that readers do not read before they are judged."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.control.streams.gating import closed, unjudged
    from floodmark.lake.folder.paths import Lake

    workspace, lake = opened.workspace, Lake.of(opened.workspace.settings)
    assets = [workspace.asset(operator)] if operator else list(workspace.operator_assets)
    gates = [one for asset in assets for _, one in closed(asset, lake)]
    if not gates:
        console.say("no gate is closed")
    rows = [(one.table, one.partition, one.check, iso(int(one.at * 1000)), one.reason) for one in gates]
    waiting = [one for asset in assets for one in unjudged(asset, lake)]
    rows += [(table, partition, check, "", "not judged") for table, partition, check in waiting]
    console.table(("table", "partition", "check", "closed", "reason"), rows)
    unread = [dict(zip(("table", "partition", "check"), one, strict=True)) for one in waiting]
    console.document({"lake": opened.lake, "gates": [asdict(one) for one in gates], "not_judged": unread})


@gate.command()
@click.argument("operator")
@click.option(
    "--partition", required=True, metavar="NAME", help="Its asset partition, as `gate list` shows it, or FIRST...LAST."
)
@click.option(
    "--reason", required=True, metavar="TEXT", help="Why readers may take it in as it is; kept with the gate."
)
@shared
@pass_invocation
def release(invocation: Invocation, operator: str, partition: str, reason: str) -> None:
    """Release the closed gates of an asset partition of OPERATOR, whose readers then take it in as it is."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    machine.refuse_read_only(opened.lake, f"lake {opened.lake}")
    from floodmark.control.streams.gating import release as released_by_hand
    from floodmark.lake.folder.paths import Lake

    asset, there = opened.workspace.asset(operator), known(opened, console.say)
    lake, store = Lake.of(opened.workspace.settings), None if there is None else there.store
    gates = released_by_hand(asset, lake, partition, reason, store)
    for opened_gate in gates:
        console.say(f"released: {opened_gate.describe()}")
    console.document({"lake": opened.lake, "released": [asdict(one) for one in gates]})


@click.command(name="data-docs")
@click.argument("operator")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--partition", metavar="NAME", help="Judge the rows of this asset partition, or of FIRST...LAST. Default: all rows."
)
@shared
@pass_invocation
def data_docs(invocation: Invocation, operator: str, folder: Path, partition: str | None) -> None:
    """Judge the expectations of OPERATOR by Great Expectations, and write its data docs, a site of HTML, into FOLDER."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.data_docs import write
    from floodmark.observe.partitions import partitions_of

    asset, lake = opened.workspace.asset(operator), Lake.of(opened.workspace.settings)
    interval = Interval() if partition is None else named(partitions_of(asset), partition, "--partition")
    engine = computing(opened, console, None)
    with console.step(f"judging {len(asset.expectations)} outputs of {operator}"):
        index, met = engine.with_session(partial(write, asset, lake, interval, folder.absolute()))
    console.say(f"{'all expectations are met' if met else 'some expectations are not met'}: {index}")
    console.document({"lake": opened.lake, "index": str(index), "met": met})
