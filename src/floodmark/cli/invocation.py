"""What every verb accepts: the environment, the lake, and whether to answer in JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

ENVIRONMENTS = ("dev", "prod")
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
    choice = click.Choice(ENVIRONMENTS)
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


def verified(patience: str) -> Callable[[Command], Command]:
    """Add ``--patience``, ``--soak`` and ``--set-aside``: what a new version has to do before it counts, as ``control.verification``.

    Args:
        patience: what the seconds of it are for.
    """

    def added(command: Command) -> Command:
        options = (
            click.option("--set-aside", is_flag=True, help="Let it set rows aside, though the old version did not."),
            click.option(
                "--soak",
                default=10.0,
                show_default=True,
                type=click.FloatRange(min=0),
                help="Seconds it must run without a crash.",
            ),
            click.option(
                "--patience",
                default=180.0,
                show_default=True,
                type=click.FloatRange(min=0),
                help=f"Seconds for {patience}",
            ),
        )
        for option in options:
            command = option(command)
        return command

    return added
