"""The verb mcp: what an agent may ask of a workspace and its lake, over the Model Context Protocol. Each answer is the JSON document of a verb that reads."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import current_folder
from floodmark.core.errors import SetupError

INSTRUCTIONS = """\
A floodmark workspace: operators that run bounded or unbounded over Delta tables. All tools read, none changes anything.
Begin with status. Before a changed operator is deployed, ask plan: its verdict says what becomes of state and tables. explain shows the steps of an
operator, diff compares two outputs, quarantine shows rows that broke their contract. An error has a code, what was expected, and a fix, a command for a person to run."""
SECONDS = 600
"""Longest time of an answer."""


@click.command()
@shared
@pass_invocation
def mcp(invocation: Invocation) -> None:
    """Answer an agent's questions over the Model Context Protocol, on stdin and stdout: explain, plan, status, diff, quarantine. Changes nothing.

    Each answer comes from a process of its own, so that edits of the workspace are seen.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.types import ToolAnnotations
    except ModuleNotFoundError as error:
        fix = "Install it: pip install 'floodmark[mcp]'"
        raise SetupError("floodmark mcp", "the package mcp", f"no {error.name}", fix, code="SETUP-148") from None
    server = MCPServer("floodmark", instructions=INSTRUCTIONS)
    verbs = Verbs(current_folder().as_posix(), invocation)
    tools: tuple[Callable[..., Any], ...] = (verbs.status, verbs.explain, verbs.plan, verbs.diff, verbs.quarantine)
    for tool in tools:
        server.add_tool(
            tool, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False), structured_output=False
        )
    server.run("stdio")


@dataclass(frozen=True, slots=True)
class Verbs:
    """The tools: verbs that read, each in a process of its own. Their docstrings are the descriptions that an agent reads.

    Args:
        folder: a folder of the workspace.
        invocation: environment and lake of all answers.
    """

    folder: str
    invocation: Invocation

    def status(self) -> str:
        """How far each source, output and delivery is, its lag and its state."""
        return self._answer("status")

    def explain(self, operator: str) -> str:
        """The steps, state, time and tables of an operator, from the code as it is now."""
        return self._answer("explain", operator)

    def plan(self, operators: Sequence[str] = ()) -> str:
        """What the code as it is now means for the state and tables of running streams: a verdict per operator, and why. Without operators: all."""
        return self._answer("plan", *operators)

    def diff(self, table: str, other: str = "", against: str = "", samples: int = 5) -> str:
        """In what two outputs, versions (table@3, table@SAVEPOINT) or lakes (against) differ: rows, columns, windows, some rows of each kind."""
        options = ["--samples", str(samples), *(["--against", against] if against else [])]
        return self._answer("diff", table, *filter(None, [other]), options=options)

    def quarantine(self, name: str) -> str:
        """Rows of a source that broke their contract, or rows and panes for which a function of an operator failed, with the reasons."""
        return self._answer("quarantine", name, group="show")

    def _answer(self, verb: str, *names: str, group: str = "", options: Sequence[str] = ()) -> str:
        """The document of a verb, as text.

        Raises:
            ToolError: the verb's error, as its document; or what it printed, if that is no document.
        """
        from mcp.server.mcpserver.exceptions import ToolError

        shared_options = ["--json", "--environment", self.invocation.environment]
        if self.invocation.lake is not None:
            shared_options += ["--lake", self.invocation.lake]
        command = [sys.executable, "-m", "floodmark.cli.main", *shared_options, verb, *filter(None, [group]), *options]
        done = subprocess.run(
            [*command, "--", *names],  # a name is never an option
            cwd=self.folder,
            env=os.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        try:
            document = json.loads(done.stdout)
        except ValueError:
            raise ToolError(done.stdout + done.stderr) from None
        if "error" in document:
            raise ToolError(json.dumps(document["error"]))
        return done.stdout.strip()
