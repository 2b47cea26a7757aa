"""Output of a verb: results on stdout (text, or one JSON document), progress on stderr."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from floodmark.core.errors import printable

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from floodmark.core.errors import FloodmarkError


class Console:
    """The output of a verb.

    Args:
        as_json: reserve stdout for the one document that ``document`` prints.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def say(self, text: str = "") -> None:
        """Print a line of the result. Prints nothing with ``--json``, where the document holds the result."""
        if not self.as_json:
            click.echo(printable(text))

    def note(self, text: str) -> None:
        """Print a line about progress, on stderr."""
        click.echo(printable(text), err=True)

    def lake(self, lake: str, environment: str) -> None:
        """Print the lake that a verb acts on, before all other output."""
        (self.note if self.as_json else self.say)(f"lake {lake} ({environment})")

    def document(self, document: Mapping[str, Any], failure: FloodmarkError | None = None) -> None:
        """Print the result as JSON, with ``--json`` only.

        Args:
            document: the whole result.
            failure: the error that the verb ends with after its result; the document holds the error as ``error``.

        Raises:
            FloodmarkError: ``failure``, without ``--json``.
            SystemExit: status 1, for a failure with ``--json``.
        """
        if self.as_json:
            error = {} if failure is None else {"error": failure.as_json()}
            click.echo(json.dumps({**document, **error}, default=str))
        if failure is not None:
            raise SystemExit(1) if self.as_json else failure

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table of the result, whole numbers aligned to the right with thousands separated. Prints nothing without rows or with ``--json``."""
        rows = list(rows)
        if self.as_json or not rows:
            return
        cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
        widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
        right = [all(isinstance(row[at], int) or row[at] is None for row in rows) for at in range(len(columns))]
        for row in cells:
            padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
            self.say("  " + "  ".join(padded).rstrip())

    def steps(self, steps: Iterable[object]) -> None:
        """Print the steps of a dry run, numbered."""
        for number, step in enumerate(steps, 1):
            self.say(f"  {number}. {step}")

    def error(self, parts: Mapping[str, str]) -> None:
        """Print an error for a person, on stderr: code, where, expected, got, fix."""
        self.note(f"{parts['code']} {parts['where']}")
        for name in ("expected", "got", "fix"):
            self.note(f"  {name + ':':<9} {parts[name]}")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A context for work that may take over a second: shows a spinner with the elapsed time, then prints a line with the total time."""
        begun = time.monotonic()
        console = _stderr()
        if console.is_terminal:
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            with Progress(*columns, console=console, transient=True) as progress:
                progress.add_task(title, total=None)
                yield
        else:
            yield
        self.note(f"{title}: {time.monotonic() - begun:.1f} s")


def _stderr() -> RichConsole:
    from rich.console import Console as RichConsole

    return RichConsole(file=sys.stderr, highlight=False, markup=False, emoji=False)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
