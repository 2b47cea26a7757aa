"""The engine of a verb, and the lake it writes."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.loading import LoadedWorkspace
from floodmark.core import machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.control.processes.engine import Computing
    from floodmark.lake.folder.paths import Lake
    from floodmark.spec.values.budget import Budget
    from floodmark.spec.workspace import Engine


def start(opened: LoadedWorkspace, console: Console, *, writes: bool = True) -> tuple[SparkSession, Lake]:
    """Start Spark with the workspace's settings.

    Args:
        opened: the workspace.
        console: shows that Spark starts.
        writes: whether the verb writes into the lake, which must then be writable.

    Raises:
        SetupError: SETUP-001, no Java; SETUP-003, Delta's jars cannot be fetched; SETUP-004, no Spark; SETUP-051, a lake that cannot be
            written; SETUP-054, no such master.
    """
    if writes:
        machine.refuse_read_only(opened.lake, f"lake {opened.lake}")
    from floodmark.control.processes.engine import OnSpark
    from floodmark.lake.folder.paths import Lake

    settings = opened.workspace.settings
    return OnSpark(settings, "floodmark", console.step).spark, Lake.of(settings)


def computing(
    opened: LoadedWorkspace, console: Console, engine: Engine | None = None, budget: Budget | None = None
) -> Computing:
    """The engine of the workspace, or another engine. The session of the engine starts on first use.

    Args:
        opened: the workspace.
        console: shows that the session starts.
        engine: the engine to use; None for the engine of the settings.
        budget: limits of the engine.

    Raises:
        SetupError: SETUP-051, a lake that cannot be written.
    """
    from floodmark.control.processes.engine import computing as of_settings

    machine.refuse_read_only(opened.lake, f"lake {opened.lake}")
    return of_settings(opened.workspace.settings, engine=engine, step=console.step, budget=budget)
