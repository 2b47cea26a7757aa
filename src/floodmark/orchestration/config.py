"""What may be set when a run is launched: the config of the assets' steps."""

from __future__ import annotations

from typing import Literal

import dagster as dg
from pydantic import Field

from floodmark.spec.asset import OperatorAsset


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
    wait_seconds: float = Field(default=3600, ge=0, description="How long to wait for inputs, with behind: wait.")


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
            default=asset.wait / 1000, ge=0, description=OperatorConfig.model_fields["wait_seconds"].description
        )

    return Config
