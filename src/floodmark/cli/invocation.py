"""What every verb accepts: the environment, the lake, and whether to answer in JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True, kw_only=True)
class Invocation:
    """The options shared by all verbs, as given before or after the verb.

    Args:
        environment: which settings of ``resources/`` to use.
        lake: root of the tables instead of the settings' own.
        json: answer with one JSON document on stdout.
    """

    environment: str = "dev"
    lake: str | None = None
    json: bool = False


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value == "":
        msg = f"--{parameter.name} is empty; leave it out for the settings' own"
        raise click.UsageError(msg, ctx)
    if value is not None and parameter.name is not None:
        setattr(ctx.ensure_object(Invocation), parameter.name, value)


def shared(command: Command) -> Command:
    """Add ``--environment``, ``--lake`` and ``--json``; the verb finds them in its ``Invocation``."""
    choice = click.Choice(["dev", "prod"])
    options = (
        click.option(
            "--json",
            is_flag=True,
            default=None,
            callback=_keep,
            expose_value=False,
            help="One JSON document on stdout.",
        ),
        click.option(
            "--lake",
            metavar="FOLDER",
            callback=_keep,
            expose_value=False,
            help="Root of the tables; by default the settings'.",
        ),
        click.option(
            "--environment", type=choice, callback=_keep, expose_value=False, help="Settings to use. Default: dev."
        ),
    )
    for option in options:
        command = option(command)
    return command


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)
"""Hands a verb its ``Invocation``."""
