"""The verb alerts: shows what was told of the health of streams, and what could not be."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from dataclasses import asdict

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.store import known
from floodmark.core.time import iso


@click.command()
@click.argument("stream", metavar="[NAME]", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Most messages to show of a stream, newest first.",
)
@shared
@pass_invocation
def alerts(invocation: Invocation, stream: str | None, limit: int) -> None:
    """Show the messages of alerts about the stream of NAME, or about all streams: what they told, and whether they were received."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.control.state.messages import Messages

    there = known(opened, console.say)
    names = [] if there is None else [there.named(stream)] if stream else [one.operator for one in there.here]
    messages = (
        [] if there is None else [one for name in names for one in Messages(there.store).of(there.stream(name), limit)]
    )
    messages.sort(key=lambda message: -message.change.at)
    rows = [
        (iso(int(one.change.at * 1000)), str(one.change), f"alert {one.alert + 1}", one.state, one.tries, one.error)
        for one in messages
    ]
    if not rows:
        console.say("no alert has told of a stream: Workspace(alerts=[...]) declares them")
    console.table(("at", "told", "to", "state", "tries", "error"), rows)
    console.document({"lake": opened.lake, "messages": [asdict(one) for one in messages]})
