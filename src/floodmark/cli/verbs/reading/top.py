"""The verb top: a live look at all started streams of a lake."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.signals import stopping
from floodmark.cli.shell.store import fleet, known
from floodmark.core.time import END, NEVER, describe, describe_roughly

if TYPE_CHECKING:
    from rich.console import Group

    from floodmark.control.streams.vitals import Vitals

_COLOURS = {"ok": "green", "low": "yellow", "warning": "yellow", "high": "red", "error": "red"}
"""Level of health or of backpressure -> colour."""
_COLUMNS = (
    "stream",
    "state",
    "pressure",
    "progress",
    "lag",
    "behind now",
    "waiting",
    "rows/s",
    "busy",
    "last",
    "crashes",
)
_TEXTS = {"stream", "state", "pressure", "progress"}
_EXTRA = {"progress", "busy", "last"}
"""Columns that a screen narrower than ``_WIDE`` does without."""
_WIDE = 124


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

    from floodmark.control.processes.holding import Holding
    from floodmark.control.streams.vitals import vitals
    from floodmark.observe.backlog import Backlogs

    streams, backlogs, holding = fleet(opened, console.note), Backlogs(), Holding()
    screen = Screen(width=None if sys.stdout.isatty() else _WIDE)

    def look() -> list[Vitals]:
        return vitals(streams.store, streams.here, backlogs, holding)

    if invocation.json:
        console.document({"lake": opened.lake, "streams": [one.as_json() for one in look()]})
        return
    if once:
        screen.print(frame(look(), screen.width))
        return
    with (
        stopping(console, "the next frame") as stop,
        Live(frame(look(), screen.width), console=screen, screen=screen.is_terminal, auto_refresh=False) as live,
    ):
        while not stop.wait(every):
            live.update(frame(look(), screen.width), refresh=True)


def frame(streams: Sequence[Vitals], width: int) -> Group:
    """One frame: a table, without some columns where the screen is narrow, and why streams do not run.

    Args:
        streams: to show.
        width: of the screen, in characters.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = [name for name in _COLUMNS if width >= _WIDE or name not in _EXTRA]
    table = Table(title=time.strftime("%H:%M:%S", time.gmtime()), title_justify="left", box=None, pad_edge=False)
    for name in shown:
        table.add_column(name, justify="left" if name in _TEXTS else "right", no_wrap=True)
    reasons = list[Text]()
    for stream in streams:
        cells, health = _cells(stream), stream.health
        styles = {"state": _COLOURS[health.level], "pressure": _COLOURS.get(stream.pressure or "", "")}
        table.add_row(*(Text(cells[name], style=styles.get(name, "")) for name in shown))
        if health.level != "ok":
            mend = f" ({health.mend})" if health.mend else ""
            reasons.append(Text(f"{stream.name}: {health.reason}{mend}", style=_COLOURS[health.level]))
    return Group(table, *reasons)


def _cells(stream: Vitals) -> dict[str, str]:
    """Column -> text."""
    last = stream.measured.last
    return {
        "stream": stream.name,
        "state": stream.health.condition,
        "pressure": stream.pressure or "",
        "progress": _progress(stream.progress),
        "lag": _span(stream.behind_input),
        "behind now": _span(stream.behind_now),
        "waiting": _waiting(stream),
        "rows/s": f"{stream.rate:,.1f}",
        "busy": f"{stream.busy:.0%}",
        "last": _span(None if last is None else stream.at - last.at),
        "crashes": f"{stream.measured.totals.crashes:,}",
    }


def _progress(progress: int) -> str:
    return "" if progress == NEVER else "end of input" if progress == END else describe(progress - progress % 1000)


def _span(seconds: float | None) -> str:
    return "" if seconds is None else describe_roughly(seconds)


def _waiting(stream: Vitals) -> str:
    backlog = stream.backlog
    if backlog is None:
        return ""
    if stream.deployment.kind == "source":
        return f"{backlog.commits:,} files" if stream.waiting_rows is None else f"{stream.waiting_rows:,} rows"
    return f"{'' if backlog.whole else '>'}{backlog.rows:,} rows"
