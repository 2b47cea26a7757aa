"""``python -m demo``: the reference workspace from its inbox to a comparison of three answers."""

from __future__ import annotations

import shutil
import webbrowser
from dataclasses import asdict, replace
from pathlib import Path

import click

from floodmark.cli.console import Console
from floodmark.cli.invocation import Invocation, pass_invocation, shared
from floodmark.cli.loading import Opened, open_workspace
from floodmark.cli.main import Program
from floodmark.cli.spark import start
from floodmark.core.errors import LifecycleError

_MARK = ".floodmark-demo"
_ROOT = Path(__file__).resolve().parents[1]
"""Of the reference workspace."""
_LAKES = ("bounded", "unbounded", "complete")


@click.command("demo", cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--days", type=click.IntRange(min=1), help="Only the first so many days. Default: the whole year 2013.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(".floodmark/demo"),
    show_default=True,
    help="Where to work.",
)
@click.option(
    "--keep", is_flag=True, help="Leave the lakes (0.1 GB) there afterwards; the inbox and the report always stay."
)
@click.option("--open", "open_report", is_flag=True, help="Open the report in a browser.")
@shared
@pass_invocation
def demo(invocation: Invocation, *, days: int | None, folder: Path, keep: bool, open_report: bool) -> None:
    """A year of New York's departures: bounded, unbounded through a kill, and DuckDB; the three must agree."""
    console = Console(as_json=invocation.json)
    folder = folder.absolute()
    _prepare(folder)
    opened = open_workspace(Invocation(lake=str(folder / "bounded")), _ROOT)
    console.lake(str(folder / "bounded"), "demo")
    from demo.places import Places
    from demo.report import write_report
    from demo.run import lines, run_demo

    # the whole year is what the workspace itself reads; some days are an inbox of the demo's own
    places = Places(folder=folder, root=_ROOT, inbox=(_ROOT if days is None else folder) / "inbox")
    # a year of small days: no file for each
    workspace = opened.workspace.having(replace(opened.workspace.settings, divided=False))
    outcome = run_demo(workspace, places, console, days=days, open_session=lambda: start(_own_logs(opened), console)[0])
    for line in lines(outcome):
        console.say(line)
    report = folder / "report.html"
    write_report(report, outcome, workspace)
    if not keep:
        _remove_lakes(folder)
    for problem in outcome.problems:
        console.say(f"FAILED {problem}")
    verdict = "all three agree" if not outcome.problems else "they do not agree"
    console.say(f"{verdict}; {outcome.seconds:.0f} s; report {report}")
    console.document(
        {
            "report": str(report),
            "seconds": outcome.seconds,
            "problems": outcome.problems,
            "landed": [asdict(one) for one in outcome.landed],
            "outputs": [{"table": c.table, "rows": c.rows, "differences": c.differences} for c in outcome.compared],
            "lateness": outcome.lateness,
            "micro_batches": outcome.followed.micro_batches if outcome.followed else {},
            "killed_after_commits": outcome.followed.killed_after if outcome.followed else None,
        }
    )
    if open_report:
        webbrowser.open(report.as_uri())
    if outcome.problems:
        raise click.exceptions.Exit(1)


def _own_logs(opened: Opened) -> Opened:
    return replace(opened, logs=None)


def _prepare(folder: Path) -> None:
    """Empty the lakes of an earlier demo; leave a folder alone that is no demo's."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        fix = "Give --folder a new or empty folder; nothing was changed."
        raise LifecycleError(
            f"folder {folder}", "an empty folder, or one of an earlier demo", "other files", fix, code="LIFECYCLE-021"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    _remove_lakes(folder)


def _remove_lakes(folder: Path) -> None:
    for name in _LAKES:
        shutil.rmtree(folder / name, ignore_errors=True)


if __name__ == "__main__":
    demo()
