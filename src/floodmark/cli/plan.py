"""The verb plan: what has changed since a stream was started, and what it means for its state and its tables."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

from collections.abc import Iterator
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
    from floodmark.lake.paths import Lake
    from floodmark.lake.timeline import Timeline
    from floodmark.lifecycle.plan import plan as planned

    lake, found = Lake.of(opened.workspace.settings), []
    for operator in opened.workspace.operators:
        if not asked or operator.name in asked:
            found.append(planned(Timeline.current(lake, operator.name).identity.deployed(), operator))
            _say(console, found[-1])
    console.document({"lake": opened.lake, "plans": [document(one) for one in found]})


def _say(console: Console, found: Plan) -> None:
    if found.deployed is None:
        console.say(f"{found.defined}: no stream; floodmark run {found.operator} --unbounded starts one")
        return
    if not found.changes:
        console.say(f"{found.defined}: no-op, it means what its stream was started with")
        _say_packages(console, found)
        return
    console.say(f"{found.deployed} -> {found.defined}: {found.verdict}")
    for change in found.changes:
        words = {(False, True): "new:", (True, False): "gone:"}.get((bool(change.before), bool(change.after)), "")
        told = " -> ".join(text for text in (change.before, change.after) if text)
        console.say(f"  {change.where}: {words} {told}".replace(":  ", ": "))
        console.say(f"    {change.verdict}: {change.otherwise}")
    for name, what in found.code:
        console.say(f"  code: {name}: {what}")
    _say_packages(console, found)
    for command, words in _ways(found):
        console.say(f"  {words}: {command}")


def _say_packages(console: Console, found: Plan) -> None:
    for name, before, after in found.packages:
        console.say(
            f"  package {name} {before} -> {after}: the same version, unless you count up revision= of the operator"
        )


def _ways(found: Plan) -> Iterator[tuple[str, str]]:
    if found.verdict in {"stateless change", "compatible state"}:
        yield f"floodmark apply {found.operator}", "go on from its state with the new code"
    if found.verdict == "not comparable":
        yield f"floodmark apply {found.operator} --forward-only", "if its code has not changed, go on from its state"
    if found.verdict == "forward-only":
        yield f"floodmark apply {found.operator} --forward-only", "go on from its state all the same"
    yield (
        f"floodmark apply {found.operator} --rebuild",
        "compute all of it with the new code beside the stream, and switch",
    )
    yield f"restore the code of {found.deployed}", "or leave it as it was"


def document(found: Plan) -> dict[str, Any]:
    """A plan for programs."""
    return asdict(found) | {"verdict": found.verdict}
