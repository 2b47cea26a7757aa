"""The group of all verbs, and how errors reach a person (or, with ``--json``, a program)."""

from __future__ import annotations

import gc
import json
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import shared
from floodmark.core import machine
from floodmark.core.errors import FloodmarkError, SetupError, closest

GROUPS = {
    "A workspace": {
        "init": "workspace",
        "validate": "workspace",
        "explain": "workspace",
        "package": "workspace",
        "up": "up",
    },
    "Rows and results": {
        "land": "land",
        "deliver": "land",
        "run": "run",
        "sql": "run",
        "status": "workspace",
        "partitions": "partitions",
        "freeze": "partitions",
        "thaw": "partitions",
        "quarantine": "quarantine",
        "check": "checks",
        "gate": "checks",
        "data-docs": "checks",
        "watermark": "watermark",
        "prove": "prove",
        "diff": "reading.diff",
        "serve": "reading.serve",
        "mcp": "reading.mcp",
    },
    "Change what runs, and go back": {
        "plan": "plan",
        "apply": "apply",
        "savepoint": "savepoint",
        "rollback": "streams",
        "fork": "streams",
        "move": "streams",
        "replicate": "replicate",
        "adopt": "replicate",
        "rescale": "streams",
    },
    "Versions side by side": {"experiment": "experiment", "rollout": "rollout"},
    "Streams that run by themselves": {
        "start": "supervise",
        "stop": "supervise",
        "restart": "supervise",
        "logs": "supervise",
        "alerts": "supervise",
        "top": "reading.top",
        "supervise": "supervise",
        "maintain": "maintain",
        "forget": "maintain",
        "deploy": "deploy",
    },
}
"""Title in the help -> verb -> the module of ``floodmark.cli.verbs`` that defines the verb. A module is imported when its verb is used."""

VERBS = {verb: module for group in GROUPS.values() for verb, module in group.items()}
"""Verb -> its module."""

_COMMAND = re.compile(rf"\bfloodmark (?=(?:{'|'.join(VERBS)})\b)")
"""The beginning of a command in a fix."""

UNEXPECTED = "This is not an error floodmark knows; the traceback above says where it comes from."

NO_SPARK = {"SETUP-001", "SETUP-004"}
"""Codes of the errors for missing Java and missing Spark."""

_COLLECTIONS = (50_000, 20, 20)
"""Thresholds of Python's garbage collector, above the defaults: imported modules are no garbage, and collections would take a tenth of a verb's time."""
_PANIC = "PanicException"
"""Exception of a panic in a library written in Rust; no subclass of Exception."""
_WHOLE = 1000
"""Limit of the first sentence of a verb's help, in characters: more than any has."""


class Program(click.Command):
    """A command that reports errors in floodmark's form."""

    def main(self, args: Sequence[str] | None = None, *positional: Any, **settings: Any) -> Any:
        """Run the command and exit with status 0, 1 (an error), 2 (wrong usage) or 130 (aborted)."""
        command_line = list(sys.argv[1:] if args is None else args)
        gc.set_threshold(*_COLLECTIONS)
        try:
            status = super().main(command_line, *positional, **{**settings, "standalone_mode": False})
        except (FloodmarkError, click.ClickException, click.Abort, KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the outermost frame
            status = _report(error, command_line)
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            status = _report(error, command_line)
        sys.exit(status if isinstance(status, int) else 0)


class Verbs(Program, click.Group):
    """The group of all verbs. Imports the module of a verb when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """The verbs, in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own signature
        """The verb of that name; None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(
            import_module(f"floodmark.cli.verbs.{VERBS[cmd_name]}"), cmd_name.replace("-", "_")
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, group by group, each with the first sentence of its help."""
        for title, group in GROUPS.items():
            commands = {name: self.get_command(ctx, name) for name in group}
            with formatter.section(title):
                formatter.write_dl(
                    [(name, command.get_short_help_str(_WHOLE)) for name, command in commands.items() if command]
                )

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As in click, with a suggestion for a verb that does not exist.

        Raises:
            click.UsageError: there is no such verb.
        """
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            msg = f"no verb '{args[0]}'. {closest(args[0], VERBS)}Verbs: {', '.join(VERBS)}."
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)


def _report(error: BaseException, command_line: Sequence[str]) -> int:
    """Print an error. Returns the exit status."""
    as_json = "--json" in command_line
    error = _foreseen(error, command_line)
    if isinstance(error, SetupError) and error.code in NO_SPARK and (typed := _on_embedded(command_line)):
        error.fix += f" Here: `{typed}`."
    match error:
        case FloodmarkError():
            error.fix = _with_shared_options(error.fix, command_line)
            status, parts = 1, error.as_json()
            if not as_json:
                Console(as_json=False).error(parts)
        case click.ClickException():
            status, parts = 2, {"code": "USAGE", "got": error.format_message()}
            if not as_json:
                error.show()
        case click.Abort() | KeyboardInterrupt():
            status, parts = 130, {"code": "ABORTED", "got": "interrupted"}
            if not as_json:
                click.echo("aborted", err=True)
        case BrokenPipeError():  # the reader of a pipe has ended: floodmark status | head
            sys.stdout = None  # the interpreter would flush stdout at its end
            return 1
        case _:
            status, parts = 1, {"code": "UNEXPECTED", "got": f"{type(error).__name__}: {error}"}
            traceback.print_exception(error)
            click.echo(UNEXPECTED, err=True)
    if as_json:
        click.echo(json.dumps({"error": parts}))
    return status


def _with_shared_options(fix: str, command_line: Sequence[str]) -> str:
    """The fix, whose commands act on the lake and in the environment of this command line."""
    shared_options = []
    for name in ("--environment", "--lake"):
        values = [after for word, after in pairwise(command_line) if word == name]
        values += [word.partition("=")[2] for word in command_line if word.startswith(f"{name}=")]
        if values and name not in fix:
            shared_options += [name, values[-1]]
    command = f"floodmark {shlex.join(shared_options)} "
    return _COMMAND.sub(lambda _: command, fix) if shared_options else fix


def _on_embedded(command_line: Sequence[str]) -> str:
    """The command line with ``--engine embedded``; empty if the verb has no such option."""
    if not {"land", "run", "replay"} & set(command_line):
        return ""
    words = [word for word in command_line if not word.startswith("--engine=")]
    if "--engine" in words:
        at = words.index("--engine")
        del words[at : at + 2]
    return shlex.join(["floodmark", *words, "--engine", "embedded"])


def _foreseen(error: BaseException, command_line: Sequence[str]) -> BaseException:
    """(exception) -> the SetupError for a refusal of the machine; any other exception unchanged."""
    if isinstance(error, FloodmarkError | click.ClickException | click.Abort | KeyboardInterrupt | BrokenPipeError):
        return error
    verb = " ".join(["floodmark", *(word for word in command_line if word in VERBS)])
    return machine.refused(error, verb, "Then run it again.") or error


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="floodmark")
@shared
def cli() -> None:
    """One operator definition, bounded or unbounded, over Delta tables, with the same answer."""


def main() -> None:
    """The ``floodmark`` program."""
    cli.main()


if __name__ == "__main__":
    main()
