"""The verb top: a live look at all started streams of a lake."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.signals import stopping
from floodmark.cli.shell.store import fleet, known
from floodmark.core.time import END, NEVER, describe, describe_span

if TYPE_CHECKING:
    from rich.table import Table

    from floodmark.control.streams.vitals import Vitals

_COLOURS = {"running": "green", "ok": "green", "low": "yellow", "high": "red"}
_COLOURS |= dict.fromkeys(("crashed", "failed", "gone"), "red")
_COLUMNS = ("stream", "state", "backpressure", "progress", "behind input", "behind now", "waiting", "rows/s", "busy", "last commit", "crashes")  # fmt: skip
_LEFT = 4
"""Columns with texts; the others have numbers."""


@click.command()
@click.option("--once", is_flag=True, help="Show one frame, and end. So does --json.")
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Seconds between two frames."
)
@shared
@pass_invocation
def top(invocation: Invocation, *, once: bool, every: float) -> None:
    """Show all started streams, live until Ctrl-C: state, backpressure, lag, what waits, rows per second."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    if known(opened, console.note) is None:
        console.say("no stream was started here yet: floodmark start --all")
        console.document({"lake": opened.lake, "streams": []})
        return
    from rich.console import Console as Screen
    from rich.live import Live

    from floodmark.control.streams.vitals import vitals
    from floodmark.observe.backlog import Backlogs

    streams, backlogs, screen = fleet(opened, console.note), Backlogs(), Screen()

    def look() -> list[Vitals]:
        return vitals(streams.store, streams.here, backlogs)

    if invocation.json:
        console.document({"lake": opened.lake, "streams": [one.as_json() for one in look()]})
        return
    if once:
        screen.print(frame(look()))
        return
    with (
        stopping(console, "the next frame") as stop,
        Live(frame(look()), console=screen, screen=screen.is_terminal, auto_refresh=False) as live,
    ):
        while not stop.wait(every):
            live.update(frame(look()), refresh=True)


def frame(streams: Sequence[Vitals]) -> Table:
    """The table of one frame."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=time.strftime("%H:%M:%S", time.gmtime()), title_justify="left", box=None, pad_edge=False)
    for number, name in enumerate(_COLUMNS):
        table.add_column(name, justify="left" if number < _LEFT else "right", no_wrap=number < _LEFT)
    for stream in streams:
        cells = [stream.name, stream.health, stream.pressure or "", _progress(stream.progress)]
        numbers = [
            _span(stream.behind_input),
            _span(stream.behind_now),
            _waiting(stream),
            f"{stream.rate:,.1f}",
            f"{stream.busy:.0%}",
            _span(None if stream.measured.last is None else stream.at - stream.measured.last.at),
            f"{stream.measured.totals.crashes:,}",
        ]
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in (*cells, *numbers)))
        if stream.health in {"crashed", "failed", "gstream", "waiting"}:
            table.add_row(Text(f"  {stream.text}", style="dim", overflow="fold"))
    return table


def _progress(progress: int) -> str:
    return "" if progress == NEVER else "end of input" if progress == END else describe(progress)


def _span(seconds: float | None) -> str:
    return "" if seconds is None else describe_span(max(0, round(seconds)) * 1000)


def _waiting(stream: Vitals) -> str:
    backlog = stream.backlog
    if backlog is None:
        return ""
    if stream.deployment.kind == "source":
        return f"{backlog.commits:,} files"
    return f"{'' if backlog.whole else '>'}{backlog.rows:,} rows"
