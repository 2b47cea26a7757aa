"""What a verb says: results on stdout (text, or one JSON document), everything about the way there on stderr."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from floodmark.core.errors import FloodmarkError


class Console:
    """Where a verb writes.

    Args:
        as_json: keep stdout for the one document that ``document`` prints.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def say(self, text: str = "") -> None:
        """A line of the result; nothing with ``--json``, where the document holds it."""
        if not self.as_json:
            click.echo(text)

    def note(self, text: str) -> None:
        """A line about the way there, on stderr."""
        click.echo(text, err=True)

    def lake(self, lake: str, environment: str) -> None:
        """The lake a verb acts on; the first thing it says."""
        (self.note if self.as_json else self.say)(f"lake {lake} ({environment})")

    def document(self, document: Mapping[str, Any], failure: FloodmarkError | None = None) -> None:
        """The result as JSON, where that was asked for.

        Args:
            document: all of it.
            failure: what the verb ends with all the same; the document holds it as ``error``.
        """
        if self.as_json:
            error = {} if failure is None else {"error": failure.as_json()}
            click.echo(json.dumps({**document, **error}, default=str))
        if failure is not None:
            raise SystemExit(1) if self.as_json else failure

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table of the result; whole numbers to the right, with thousands separated."""
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
        """What would be done, one after the other."""
        for number, step in enumerate(steps, 1):
            self.say(f"  {number}. {step}")

    def error(self, parts: Mapping[str, str]) -> None:
        """An error for a person: code, where, expected, got, fix."""
        click.echo(f"{parts['code']} {parts['where']}", err=True)
        for name in ("expected", "got", "fix"):
            click.echo(f"  {name + ':':<9} {parts[name]}", err=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Something that may take over a second: a spinner with the time, then one line with how long it took."""
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
