"""``python -m demo``: the reference workspace from its inbox to a comparison of all answers, and an experiment."""

from __future__ import annotations

import shutil
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
from filelock import FileLock, Timeout

from floodmark.cli.main import Program
from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import open_workspace
from floodmark.cli.shell.spark import computing
from floodmark.core.errors import LifecycleError

if TYPE_CHECKING:
    from demo.places import Places

_MARK = ".floodmark-demo"
_ROOT = Path(__file__).resolve().parents[1]
"""Of the reference workspace."""


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
    "--keep", is_flag=True, help="Leave the lakes (0.2 GB) there afterwards; the inbox and the report always stay."
)
@click.option("--with-spark", is_flag=True, help="On Spark too, which needs Java 17 or newer.")
@click.option("--kafka", metavar="HOST:PORT", default="", help="Send the rows through Kafka before they land.")
@click.option("--open", "open_report", is_flag=True, help="Open the report in a browser.")
@shared
@pass_invocation
def demo(
    invocation: Invocation,
    *,
    days: int | None,
    folder: Path,
    keep: bool,
    with_spark: bool,
    open_report: bool,
    kafka: str,
) -> None:
    """A year of New York's departures: bounded, unbounded through a kill, and in DuckDB; all answers must agree. Then two predictors as an experiment."""
    folder = folder.absolute()
    _prepare(folder)
    with _alone(folder):
        _run(invocation, days, folder, keep=keep, with_spark=with_spark, open_report=open_report, kafka=kafka)


def _run(
    invocation: Invocation,
    days: int | None,
    folder: Path,
    *,
    keep: bool,
    with_spark: bool,
    open_report: bool,
    kafka: str,
) -> None:
    """Run the demo in a folder that is prepared."""
    console = Console(as_json=invocation.json)
    opened = open_workspace(Invocation(lake=str(folder / "landed")), _ROOT)
    console.lake(str(folder), "demo")
    from demo.places import ENGINES, Places
    from demo.report import write_report
    from demo.run import lines, run_demo

    # the whole year is what the workspace itself reads; some days are an inbox of the demo's own
    places = Places(folder=folder, root=_ROOT, inbox=(_ROOT if days is None else folder) / "inbox")
    _remove_lakes(places)  # of an earlier demo
    # a year of small days: no file for each
    workspace = opened.workspace.having(replace(opened.workspace.settings, divided=False))
    engines = ENGINES if with_spark else ENGINES[:1]
    try:
        outcome = run_demo(
            workspace,
            places,
            console,
            days=days,
            engines=engines,
            engine=cache(lambda name: computing(opened, console, name)),
            kafka=kafka,
        )
    finally:
        if not keep:  # also of a demo that failed, such as on a full disk
            _remove_lakes(places)
    for line in lines(outcome):
        console.say(line)
    report = folder / "report.html"
    write_report(report, outcome, workspace)
    for problem in outcome.problems:
        console.say(f"FAILED {problem}")
    verdict = f"all {outcome.answers_compared} answers agree" if not outcome.problems else "they do not agree"
    console.say(f"{verdict}; {outcome.seconds:.0f} s; report {report}")
    console.document(
        {
            "report": str(report),
            "seconds": outcome.seconds,
            "problems": outcome.problems,
            "landed": [asdict(one) for one in outcome.landed],
            "outputs": [{"table": c.table, "rows": c.rows, "differences": c.differences} for c in outcome.compared],
            "lateness": outcome.lateness,
            "experiment": None if outcome.contest is None else outcome.contest.as_json(),
            "engines": {
                engine: {"micro_batches": followed.micro_batches, "killed_after_commits": followed.killed_after}
                for engine, followed in outcome.followed.items()
            },
        }
    )
    if open_report:
        webbrowser.open(report.as_uri())
    if outcome.problems:
        raise click.exceptions.Exit(1)


def _prepare(folder: Path) -> None:
    """Mark the folder as a demo's; leave one alone that holds something else."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        fix = "Give --folder a new or empty folder; nothing was changed."
        raise LifecycleError(
            f"folder {folder}", "an empty folder, or one of an earlier demo", "other files", fix, code="LIFECYCLE-021"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder, whose lakes a demo removes.

    Raises:
        LifecycleError: LIFECYCLE-195, another demo is at work there.
    """
    lock = FileLock(folder / "_lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        fix = "Wait until it has ended, or give this one another folder: .venv/bin/python -m demo --folder .floodmark/other"
        raise LifecycleError(
            f"folder {folder}", "no other demo at work there", "another one", fix, code="LIFECYCLE-195"
        ) from None
    try:
        yield
    finally:
        lock.release()
        (folder / "_lock").unlink(missing_ok=True)


def _remove_lakes(places: Places) -> None:
    for lake in places.lakes:
        shutil.rmtree(lake.root, ignore_errors=True)


if __name__ == "__main__":
    demo()
