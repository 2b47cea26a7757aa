"""Options of the verbs: environment, lake and JSON output for all verbs; the options of a request for verbs that act on streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass
from functools import partial, wraps
from typing import Any, TypeVar, cast

import click

from floodmark.lifecycle.requests import Option, options
from floodmark.spec.values.share import EXPECTED, parse_share

ENVIRONMENTS = ("dev", "prod")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True, kw_only=True)
class Invocation:
    """The options shared by all verbs, as given before or after the verb.

    Args:
        environment: name of the settings in ``resources/`` to use.
        lake: root of the tables; None for the lake of the settings.
        json: print one JSON document on stdout.
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
    """Add the options ``--environment``, ``--lake`` and ``--json``, whose values the verb's ``Invocation`` holds."""
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
            help="Root of the tables. Default: the lake of the settings.",
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


def asked(request: type) -> Callable[[Command], Command]:
    """Add the options of a request. The verb receives the request as its argument ``request``.

    Args:
        request: a class of ``lifecycle.requests``.
    """

    def added(command: Command) -> Command:
        every = list(options(request))

        @wraps(command)
        def verb(*arguments: Any, **parameters: Any) -> Any:
            wanted = {option.name: parameters.pop(option.name) for option in every}
            return command(
                *arguments, request=request(**{k: v for k, v in wanted.items() if v is not None}), **parameters
            )

        built: Any = verb
        for option in reversed(every):
            built = _option(option)(built)
        return cast("Command", built)

    return added


def _option(option: Option) -> Callable[[Any], Any]:
    names = (option.option_string, option.name)
    if option.kind is bool:
        return click.option(*names, is_flag=True, help=option.says)
    if option.kind is tuple:
        return click.option(*names, multiple=True, metavar=option.form, help=option.says)
    if option.kind is dict:
        return click.option(
            *names, multiple=True, metavar=option.form, callback=partial(_pairs, option), help=option.says
        )
    about: dict[str, Any] = {"metavar": option.form or option.unit.upper() or None, "help": option.says}
    if option.default is MISSING:
        return click.option(*names, required=True, **about)
    if option.share:
        about |= {"type": str, "callback": partial(_share, option)}
    elif option.kind is not str:
        ranged = click.IntRange if option.kind is int else click.FloatRange
        about["type"] = ranged(min=option.least, max=option.most)  # type: ignore[arg-type]  # bounds of int options are int
    return click.option(*names, default=option.default, show_default=bool(option.default), **about)


def _share(option: Option, _: click.Context, __: click.Parameter, text: str) -> float:
    """(``0.1`` or ``10%``) -> a number from 0 to 1."""
    share = parse_share(text)
    if share is None:
        msg = f"{option.option_string} {text}: expected {EXPECTED}"
        raise click.BadParameter(msg)
    return share


def _pairs(option: Option, _: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str] | None:
    """(texts ``NAME=VALUE``, each name once) -> {name: value}; None for no texts."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value or name in pairs:
            msg = f"{option.option_string} {text}: {'a second one for it' if name in pairs else f'it is {option.form}'}"
            raise click.BadParameter(msg)
        pairs[name] = value
    return pairs or None
