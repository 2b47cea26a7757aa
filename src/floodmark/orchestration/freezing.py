"""The jobs freeze and thaw: results of an operator that nothing rewrites until they are thawed."""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

from typing import Any

import dagster as dg
from pydantic import Field

from floodmark.lake.results import frozen
from floodmark.orchestration.jobs import Streams, choices, job_of, operator_of, whose
from floodmark.orchestration.work import failing, tagged
from floodmark.spec.windowing.partitions import beginning, instant_of


def freezing(streams: Streams, names: Any) -> dg.JobDefinition:
    """The job ``freeze``.

    Args:
        streams: the streams of the workspace.
        names: enum of the operators' names.
    """

    class Config(dg.Config):
        operator: names | None = whose(names, "Operator whose results are frozen.")
        before: str = Field(description="The first asset partition, or instant, that is not frozen.")
        note: str = Field(default="", description="Why; shown by status.")

    @dg.op(name="freeze_results")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        from floodmark.lake.restore.switch import refuse_while_pending  # noqa: PLC0415 - definitions load without Spark

        with failing():
            name = tagged(context, operator_of(context, config, "freeze"))
        with failing(name):
            lake, asset = streams.location.lake, streams.location.workspace.asset(name)
            refuse_while_pending(lake, name)
            instant = instant_of(asset.partitions, config.before, "before")
            frozen_range = frozen.freeze(lake, asset.operator, instant, config.note)
        context.log.info(f"{name}: results {frozen_range}")
        context.add_output_metadata({"frozen": str(frozen_range)})

    what = "Freeze the results of an operator before a day: no bounded run, rebuild, rollback or promotion rewrites them until they are thawed."
    return job_of("freeze", what, act, partitions_def=choices(names))


def thawing(streams: Streams, names: Any) -> dg.JobDefinition:
    """The job ``thaw``; arguments as of ``freezing``."""

    class Config(dg.Config):
        operator: names | None = whose(names, "Operator whose results are thawed.")
        since: str | None = Field(
            default=None, description="Only from this asset partition, or instant, on. Empty: all."
        )

    @dg.op(name="thaw_results")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        with failing():
            name = tagged(context, operator_of(context, config, "thaw"))
        with failing(name):
            lake, asset = streams.location.lake, streams.location.workspace.asset(name)
            before = frozen.frozen(lake, name)
            left = frozen.thaw(lake, name, beginning(asset.partitions, config.since, "since"))
            late = 0 if before is None else frozen.left_out(lake, asset.operator, before.at)
        text = "nothing is frozen any more" if left is None else f"results {left}"
        context.log.info(f"{name}: {text}")
        if late:
            context.log.warning(
                f"its stream has left out {late:,} late rows since: materialize what was frozen, with force"
            )
        context.add_output_metadata({"frozen": text, "late rows left out": late})

    what = "Thaw frozen results of an operator, so that they can be computed again."
    return job_of("thaw", what, act, partitions_def=choices(names))
