"""The verb watermark: shows the cost of bounds for a source's watermark, the bound learned from its landings, and the line to write."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.duration import duration
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.core.time import describe, describe_span, iso
from floodmark.semantics.time.learning import next_bound
from floodmark.spec.rows.source import Learned, Punctuated, Source

if TYPE_CHECKING:
    from floodmark.observe.bounds import BoundReport

_WORST = 10
"""Windows shown that lose most rows; --json has all windows that lose rows."""


@click.command()
@click.argument("source")
@click.option(
    "--bound",
    "bounds",
    metavar="SPAN",
    multiple=True,
    help="Bound to weigh instead of the quantiles of delays. May be repeated.",
)
@click.option("--window", metavar="SPAN", help="Also count the rows that windows of this size would drop.")
@click.option(
    "--allowed-lateness", "lateness", metavar="SPAN", help="Allowed lateness of those windows. Default: none."
)
@click.option("--svg", metavar="FILE", help="Write a picture to FILE: share of late rows by bound.")
@shared
@pass_invocation
def watermark(
    invocation: Invocation,
    *,
    source: str,
    bounds: tuple[str, ...],
    window: str | None,
    lateness: str | None,
    svg: str | None,
) -> None:
    """Weigh bounds for the watermark of SOURCE: added latency against late rows. Starts no Spark."""
    if lateness is not None and window is None:
        msg = "--allowed-lateness means nothing without --window"
        raise click.UsageError(msg)
    weighed = [duration(bound, "--bound", least=0) for bound in bounds]
    size = None if window is None else duration(window, "--window", least=1)
    allowed = 0 if lateness is None else duration(lateness, "--allowed-lateness", least=0)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    chosen = opened.workspace.source(source)
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.bounds import Window, picture, report

    windows = None if size is None else Window(size=size, lateness=allowed)
    with console.step(f"reading the log of {chosen.name}"):
        bound_report = report(chosen, Lake.of(opened.workspace.settings), bounds=weighed, window=windows)
    _say_learned(console, chosen, bound_report)
    _say_costs(console, bound_report, windows=windows is not None)
    if svg is not None:
        Path(svg).write_text(picture(bound_report), "utf-8")
        console.say(f"picture: {svg}")
    console.document(_document(opened.lake, chosen, bound_report))


def line(source: Source, bound: int) -> str:
    """(source, bound in ms) -> the argument to write into the source for the bound to come into force."""
    quantile = source.watermark.quantile if isinstance(source.watermark, Learned) else 0.999
    return f'watermark=Learned({quantile:g}, bound="{describe_span(bound)}")'


def _say_learned(console: Console, source: Source, bound_report: BoundReport) -> None:
    console.say(
        f"{source.name}: bound in force {describe_span(bound_report.in_force)}; {bound_report.rows:,} rows weighed"
    )
    if bound_report.left_out:
        console.say(
            f"  {bound_report.left_out:,} rows left out: they came while the watermark waited for a larger bound"
        )
    if bound_report.learned is None or bound_report.proposed is None or not isinstance(source.watermark, Learned):
        if not isinstance(source.watermark, Punctuated):
            console.say(
                f"it does not learn; to let it, and to be free to change its bound: {line(source, bound_report.in_force)}"
            )
        return
    learned, quantile = bound_report.learned, source.watermark.quantile
    upcoming, adopts = next_bound(source.watermark, learned), source.watermark.adopt_after
    if upcoming != bound_report.in_force:
        whose = "the source says" if upcoming == source.watermark.bound else "the source adopts"
        console.say(f"  {whose} {describe_span(upcoming)}: in force from its next landing on")
    for decision in learned.decisions[1:]:
        console.say(f"  {describe_span(decision.bound)} since row {decision.sequence:,}")
    delays = learned.delays
    console.say(f"learned from {delays.rows:,} rows: the furthest came {_briefly(delays.largest)} behind")
    if delays.rows * (1 - quantile) < 1:
        console.say(f"  too few to tell {100 * quantile:g}% from all of them")
    if bound_report.proposed == upcoming:
        written = "as it is" if adopts is None or upcoming == bound_report.in_force else "adopted"
    elif adopts is not None:
        written = f"adopted once {adopts:,} rows are measured"
    else:
        written = f"to accept it, write: {line(source, bound_report.proposed)}"
    console.say(f"proposed for {100 * quantile:g}% on time: {describe_span(bound_report.proposed)}; {written}")


def _say_costs(console: Console, bound_report: BoundReport, *, windows: bool) -> None:
    columns = ["bound", "results come", "rows late", "share late", ""]
    rows: list[list[Any]] = []
    for cost in bound_report.costs:
        share = f"{100 * cost.late / max(bound_report.rows, 1):.3g}%"
        window_counts = [cost.dropped, cost.windows] if windows else []
        name = ", ".join(cost.names)
        rows.append(
            [
                describe_span(cost.bound),
                _latency(cost.bound - bound_report.in_force),
                cost.late,
                share,
                *window_counts,
                name,
            ]
        )
    if windows:
        columns[-1:] = ["rows dropped", "from windows", ""]
    console.table(columns, rows)
    if windows:
        _say_lost(console, bound_report)


def _say_lost(console: Console, bound_report: BoundReport) -> None:
    at = next(n for n, cost in enumerate(bound_report.costs) if cost.bound == bound_report.in_force)
    worst = sorted(((counts[at], start) for start, counts in bound_report.lost.items() if counts[at]), reverse=True)[
        :_WORST
    ]
    if worst:
        console.say(f"windows that lose most with {describe_span(bound_report.in_force)}, the bound in force:")
        console.table(("window", "rows dropped"), [(describe(start), rows) for rows, start in worst])
    else:
        console.say(f"no window loses a row with {describe_span(bound_report.in_force)}, the bound in force")


def _latency(against: int) -> str:
    if against == 0:
        return "as now"
    return f"{_briefly(abs(against))} {'later' if against > 0 else 'sooner'}"


def _briefly(span: int) -> str:
    """A length of time in ms, in words: cut to minutes from an hour on, to seconds from a minute on."""
    step = next((step for above, step in ((3_600_000, 60_000), (60_000, 1000)) if span >= above), 1)
    return describe_span(span - span % step)


def _document(lake: str, source: Source, bound_report: BoundReport) -> dict[str, Any]:
    learned = None
    if bound_report.learned is not None and bound_report.proposed is not None:
        learned = {
            "rows": bound_report.learned.delays.rows,
            "largest_ms": bound_report.learned.delays.largest,
            "proposed_ms": bound_report.proposed,
            "line": line(source, bound_report.proposed),
            "decisions": [{"sequence": d.sequence, "bound_ms": d.bound} for d in bound_report.learned.decisions],
        }
    costs = [
        {
            "bound_ms": cost.bound,
            "names": list(cost.names),
            "added_latency_ms": cost.bound,
            "against_in_force_ms": cost.bound - bound_report.in_force,
            "late": cost.late,
            "share_late": cost.late / max(bound_report.rows, 1),
            "dropped": cost.dropped,
            "windows": cost.windows,
        }
        for cost in bound_report.costs
    ]
    return {
        "lake": lake,
        "source": source.name,
        "in_force_ms": bound_report.in_force,
        "rows": bound_report.rows,
        "left_out": bound_report.left_out,
        "learned": learned,
        "bounds": costs,
        "windows": [{"start": iso(start), "dropped": bound_report.lost[start]} for start in sorted(bound_report.lost)],
    }
