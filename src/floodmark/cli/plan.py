"""The verb plan: what has changed since a stream was started, and what it means for its state and its tables."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from floodmark.cli.console import Console
from floodmark.cli.invocation import Invocation, pass_invocation, shared
from floodmark.cli.workspace import opened_lake
from floodmark.lifecycle.plan import Plan


@click.command()
@click.argument("operators", nargs=-1)
@shared
@pass_invocation
def plan(invocation: Invocation, operators: tuple[str, ...]) -> None:
    """Compare OPERATORS, by default all, with what their streams were started with. Changes nothing."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    asked = {opened.workspace.operator(name).name for name in operators}
    from floodmark.engines.spark.checkpoint import Checkpoint
    from floodmark.engines.spark.lake import Lake
    from floodmark.lifecycle.plan import plan as planned

    lake, found = Lake(opened.lake, logs=opened.logs), []
    for operator in opened.workspace.operators:
        if not asked or operator.name in asked:
            checkpoint = Checkpoint(lake.internal("operators", operator.name, "checkpoint"))
            found.append(planned(checkpoint.deployed(), operator))
            _say(console, found[-1])
    console.document({"lake": opened.lake, "plans": [_document(one) for one in found]})


def _say(console: Console, found: Plan) -> None:
    if found.deployed is None:
        console.say(f"{found.defined}: no stream; floodmark run {found.operator} --unbounded starts one")
        return
    if not found.changes:
        console.say(f"{found.defined}: no-op, it means what its stream was started with")
        return
    console.say(f"{found.deployed} -> {found.defined}: {found.verdict}")
    for change in found.changes:
        words = {(False, True): "new:", (True, False): "gone:"}.get((bool(change.before), bool(change.after)), "")
        told = " -> ".join(text for text in (change.before, change.after) if text)
        console.say(f"  {change.where}: {words} {told}".replace(":  ", ": "))
        console.say(f"    {change.verdict}: {change.otherwise}")
    console.say(
        f"  restore the code of {found.deployed} to go on from its state; or compute all of it with the new code:"
    )
    console.say(f"    floodmark run {found.operator} --unbounded --from-scratch")


def _document(found: Plan) -> dict[str, Any]:
    return asdict(found) | {"verdict": found.verdict}
