"""What may be set when a run is launched: the config of the assets' steps and of the jobs."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any, Literal, TypeVar

import dagster as dg
from pydantic import Field, create_model

from floodmark.core.errors import DefinitionError
from floodmark.lifecycle.requests import Option, options
from floodmark.spec.asset import OperatorAsset
from floodmark.spec.share import EXPECTED, parse_share

Request = TypeVar("Request")
_TYPES: dict[type, Any] = {tuple: list[str], dict: dict[str, str]}


class OperatorConfig(dg.Config):
    """How partitions of an operator are computed."""

    force: bool = Field(default=False, description="Compute again what is covered already.")
    late_rows: Literal["as_landed", "all"] = Field(
        default="as_landed", description="as_landed: late rows count as the log says; all: every row counts as on time."
    )
    behind: Literal["fail", "wait", "run"] = Field(
        default="fail",
        description="Partitions whose inputs are not complete. fail: they fail, the others are computed; wait: as long as wait_seconds; "
        "run: compute them with what there is.",
    )
    wait_seconds: float = Field(default=3600, description="How long to wait for inputs, with behind: wait.")


class LandingConfig(dg.Config):
    """How a source is landed."""

    end: bool = Field(
        default=False, description="Land the end of input after what there is; nothing can land after it."
    )
    max_commits: int | None = Field(default=None, ge=1, description="Stop after so many commits.")


def defaults(asset: OperatorAsset) -> type[OperatorConfig]:
    """The config of an asset, with its own defaults."""

    class Config(OperatorConfig):
        behind: Literal["fail", "wait", "run"] = Field(
            default=asset.behind, description=OperatorConfig.model_fields["behind"].description
        )
        wait_seconds: float = Field(
            default=asset.wait / 1000, description=OperatorConfig.model_fields["wait_seconds"].description
        )

    return Config


def check_wait(where: str, wait_seconds: float) -> None:
    """Refuse a wait of less than nothing. A bound of the field would end the step with pydantic's words and a stack.

    Raises:
        DefinitionError: DEFINITION-164.
    """
    if not wait_seconds >= 0:
        fix = "For example wait_seconds: 600; or leave it out for the default."
        got = f"{wait_seconds:g}"
        raise DefinitionError(f"{where}, config wait_seconds", "0 seconds or more", got, fix, code="DEFINITION-164")


def config_of(request: type) -> Any:
    """A config with the fields of a request; numbers are named with their unit.

    Args:
        request: one of ``lifecycle.requests``.
    """
    built: dict[str, Any] = {}
    for option in options(request):
        default = list(option.default) if option.kind is tuple else ... if option.default is MISSING else option.default
        about = Field(default=default, ge=option.least, le=option.most, description=option.says)
        built[option.configured] = (Any if option.share else _TYPES.get(option.kind, option.kind), about)
    return create_model(f"{request.__name__}Config", __base__=dg.Config, __doc__=request.__doc__, **built)


def request_of(request: type[Request], config: Any) -> Request:
    """What a config asks for."""
    fields = {one.name: _value(one, getattr(config, one.configured)) for one in options(request)}
    return request(**fields)


def _value(option: Option, value: Any) -> Any:
    """As the request takes it.

    Raises:
        DefinitionError: DEFINITION-163, a share is none.
    """
    if not option.share:
        return tuple(value) if isinstance(value, list) else value
    share = parse_share(value)
    if share is None:
        fix = f"For example {option.configured}: 0.1, or {option.configured}: 10%."
        raise DefinitionError(f"config, {option.configured}", EXPECTED, repr(value), fix, code="DEFINITION-163")
    return share
