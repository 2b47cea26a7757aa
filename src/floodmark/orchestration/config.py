"""The configs that a launch may set: of the steps of assets, and of jobs."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any, Literal, TypeVar

import dagster as dg
from pydantic import Field, create_model

from floodmark.core.errors import DefinitionError
from floodmark.lifecycle.requests import Option, options
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.values.share import EXPECTED, parse_share

Request = TypeVar("Request")
_TYPES: dict[type, Any] = {tuple: list[str], dict: dict[str, str]}


class OperatorConfig(dg.Config):
    """How partitions of an operator are computed."""

    force: bool = Field(default=False, description="Compute partitions again that are covered already.")
    late_rows: Literal["as_landed", "all"] = Field(
        default="as_landed", description="as_landed: rows that landed late are late; all: every row counts as on time."
    )
    behind: Literal["fail", "wait", "run"] = Field(
        default="fail",
        description="For partitions whose inputs are not complete. fail: compute only the other partitions, and fail if there are none; "
        "wait: wait for the inputs, up to wait_seconds; run: compute with the rows that have landed.",
    )
    wait_seconds: float = Field(default=3600, description="How long to wait for inputs, with behind: wait.")
    budget: str = Field(
        default="",
        description="Limits of the run, such as cores=1,memory=512,lag=1 minute, any of them: cores, memory in MB, and how far the streams "
        "beside it may be behind: between partitions it waits for them. Empty: none.",
    )


class LandingConfig(dg.Config):
    """How a source is landed."""

    end: bool = Field(default=False, description="Land the end of input after all rows; no row can land after it.")
    incomplete: Literal["fail", "wait"] = Field(
        default="fail",
        description="With end: true, while files are still being written, unfinished or refused. fail: land the others, and fail; "
        "wait: wait for them, up to wait_seconds, then fail.",
    )
    wait_seconds: float = Field(default=3600, description="How long to wait for files, with incomplete: wait.")
    max_commits: int | None = Field(default=None, ge=1, description="Stop after this number of landing commits.")


def landing_defaults(asset: SourceAsset) -> type[LandingConfig]:
    """The config of a source's step, with the asset's own defaults of ``end``, ``incomplete`` and ``wait_seconds``."""

    class Config(LandingConfig):
        end: bool = Field(default=asset.ends, description=LandingConfig.model_fields["end"].description)
        incomplete: Literal["fail", "wait"] = Field(
            default=asset.incomplete, description=LandingConfig.model_fields["incomplete"].description
        )
        wait_seconds: float = Field(
            default=asset.wait / 1000, description=LandingConfig.model_fields["wait_seconds"].description
        )

    return Config


def defaults(asset: OperatorAsset) -> type[OperatorConfig]:
    """The config of an operator's step, with the asset's own defaults of ``behind`` and ``wait_seconds``."""

    class Config(OperatorConfig):
        behind: Literal["fail", "wait", "run"] = Field(
            default=asset.behind, description=OperatorConfig.model_fields["behind"].description
        )
        wait_seconds: float = Field(
            default=asset.wait / 1000, description=OperatorConfig.model_fields["wait_seconds"].description
        )

    return Config


def check_wait(where: str, wait_seconds: float) -> None:
    """Refuse a negative wait. A bound of the config field would fail the step with pydantic's message and a stack trace.

    Raises:
        DefinitionError: DEFINITION-164, the wait is negative or NaN.
    """
    if not wait_seconds >= 0:
        fix = "For example wait_seconds: 600; or leave it out for the default."
        got = f"{wait_seconds:g}"
        raise DefinitionError(f"{where}, config wait_seconds", "0 seconds or more", got, fix, code="DEFINITION-164")


def config_of(request: type) -> Any:
    """A config class with the fields of a request. The name of a number ends with its unit: ``patience_seconds``.

    Args:
        request: a class of ``lifecycle.requests``.
    """
    built: dict[str, Any] = {}
    for option in options(request):
        default = list(option.default) if option.kind is tuple else ... if option.default is MISSING else option.default
        about = Field(default=default, ge=option.least, le=option.most, description=option.says)
        built[option.configured] = (Any if option.share else _TYPES.get(option.kind, option.kind), about)
    return create_model(f"{request.__name__}Config", __base__=dg.Config, __doc__=request.__doc__, **built)


def request_of(request: type[Request], config: Any) -> Request:
    """(class of a request, config of that class) -> the request.

    Raises:
        DefinitionError: DEFINITION-163, the value of a share is no share.
    """
    fields = {one.name: _value(one, getattr(config, one.configured)) for one in options(request)}
    return request(**fields)


def _value(option: Option, value: Any) -> Any:
    """(option, value in a config) -> the value in the request.

    Raises:
        DefinitionError: DEFINITION-163, the value of a share is no share.
    """
    if not option.share:
        return tuple(value) if isinstance(value, list) else value
    share = parse_share(value)
    if share is None:
        fix = f"For example {option.configured}: 0.1, or {option.configured}: 10%."
        raise DefinitionError(f"config, {option.configured}", EXPECTED, repr(value), fix, code="DEFINITION-163")
    return share
