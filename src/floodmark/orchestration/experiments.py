"""Experiments in Dagster: jobs that start, stop and promote, and two assets per operator that has an experiment, for the arms and for the report.

The assets exist when the definitions are loaded and the lake has an experiment of the operator; ``floodmark up`` loads the definitions again
when that has changed. The jobs exist always.
``experiments/OPERATOR/arms`` has a partition per arm, ``EXPERIMENT.ARM``. ``experiments/OPERATOR/report`` has a partition per experiment; to
materialize a partition is to make the report.
"""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from floodmark.core.errors import FloodmarkError
from floodmark.core.fingerprint import digest
from floodmark.core.time import iso
from floodmark.lake.folder.paths import Lake
from floodmark.lifecycle.requests import ComparisonRequest, ExperimentRequest, PromotionRequest
from floodmark.orchestration.assets import output_key
from floodmark.orchestration.config import config_of, request_of
from floodmark.orchestration.jobs import Streams, choices, chosen, job_of, operator_of, whose
from floodmark.orchestration.work import failing, interruptible, tagged
from floodmark.spec.graph.operator import Operator
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from floodmark.lifecycle.experiment import Experiment

EXPERIMENTS = dg.DynamicPartitionsDefinition(name="floodmark_experiments")
"""The experiments of a lake, as partitions to select from a list."""
CHECK = "arms_find_the_same"
_PREFIX = "experiments"
_LISTED_SECONDS = 3600
"""Time after which lists that should be as they were are compared again: somebody may have changed them by hand."""


def experiment_definitions(workspace: Workspace, streams: Streams, names: Any) -> dg.Definitions:
    """The jobs of experiments, and the assets ``arms`` and ``report`` of each operator that has an experiment.

    Args:
        workspace: the workspace.
        streams: its streams.
        names: enum of the operators' names, as of ``operator_names``.
    """
    assets: list[Any] = []
    tried = _operators_tried(streams.location.lake)
    for operator in workspace.operators:
        if operator.name in tried:
            assets += [_arms(operator), _report(operator, streams)]
    built = [_starting(streams, names), _stopping(streams), _promoting(streams)]
    return dg.Definitions(assets=assets, jobs=built)


def _operators_tried(lake: Lake) -> frozenset[str]:
    """Names of the operators that have an experiment; none, with a warning, if the lake cannot be read now."""
    from floodmark.lake.restore import experiments  # noqa: PLC0415 - slow to import

    try:
        return experiments.operators(lake)
    except (FloodmarkError, OSError, ValueError) as error:  # definitions load wherever the lake is
        dg.get_dagster_logger().warning(f"no assets of experiments: lake {lake.root} cannot be read: {error}")
        return frozenset()


def _arms_key(operator: str) -> dg.AssetKey:
    return dg.AssetKey([_PREFIX, operator, "arms"])


def _arms_partitions(operator: str) -> dg.DynamicPartitionsDefinition:
    return dg.DynamicPartitionsDefinition(name=f"floodmark_arms_of_{operator}")


def _partitions(operator: str) -> dg.DynamicPartitionsDefinition:
    return dg.DynamicPartitionsDefinition(name=f"floodmark_experiments_of_{operator}")


def _arms(operator: Operator) -> dg.AssetSpec:
    return dg.AssetSpec(
        _arms_key(operator.name),
        metadata={"stream": dg.MetadataValue.asset(output_key(operator.outputs[0]))},  # an edge would crowd its graph
        partitions_def=_arms_partitions(operator.name),
        group_name=_PREFIX,
        kinds={"deltalake"},
        description=f"Versions of {operator.name} that run beside its stream, each in a lake of its own. The job experiment_start creates the arms.",
    )


def _report(operator: Operator, streams: Streams) -> dg.AssetsDefinition:
    key = dg.AssetKey([_PREFIX, operator.name, "report"])
    what = "Whether the results of every arm match those of the first arm, up to the slowest arm: enough rows are the same, and no column is missing or of another type."

    class Config(config_of(ComparisonRequest)):  # type: ignore[misc]  # made of the request
        pass

    @dg.multi_asset(
        name=f"report_of_{operator.name}",
        specs=[
            dg.AssetSpec(
                key,
                deps=[dg.AssetDep(_arms_key(operator.name), partition_mapping=dg.AllPartitionMapping())],
                partitions_def=_partitions(operator.name),
                group_name=_PREFIX,
                description=f"Differences of the arms of an experiment of {operator.name}, and how the arms run. A report reads only windows that have closed since the last report.",
            )
        ],
        check_specs=[dg.AssetCheckSpec(CHECK, asset=key, description=what)],
    )
    def compare_step(context: dg.AssetExecutionContext, config: Config) -> Iterator[Any]:
        from floodmark.control.delivery.experiments import report  # noqa: PLC0415 - definitions load without an engine
        from floodmark.observe.comparison.report import markdown  # noqa: PLC0415 - as above

        with failing(operator.name):
            request = request_of(ComparisonRequest, config)
            name = chosen(context, f"asset '{key.to_user_string()}'", "an experiment")
            made = report(streams.fleet(context.log.info), name, request)
        about: dict[str, Any] = {f"verdict on {arm.name}": made.verdict(arm) for arm in made.others}
        about |= {"report": dg.MetadataValue.md(markdown(made)), "state": made.experiment.state}
        check = dg.AssetCheckResult(
            check_name=CHECK, passed=made.same, severity=dg.AssetCheckSeverity.WARN, metadata=dict(about)
        )
        yield dg.MaterializeResult(asset_key=key, metadata=about, check_results=[check])

    return compare_step


def _starting(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(config_of(ExperimentRequest)):  # type: ignore[misc]  # made of the request
        name: str = Field(description="Name of the experiment: lower-case letters, digits and underscores.")
        operator: names | None = whose(names)

    @dg.op(name="start_experiment")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        from floodmark.control.delivery.experiments import start  # noqa: PLC0415 - definitions load without an engine

        with failing():
            operator = tagged(context, operator_of(context, config, "experiment_start"))
        with failing(operator):
            fleet = streams.fleet(context.log.info)
            fleet.check_supervised([operator])
            request = request_of(ExperimentRequest, config)
            made = interruptible(
                lambda: start(fleet, config.name, operator, request),
                lambda: None,  # the start runs to its end; if killed, the next start finishes it
            )
        for name, keys in _keys([made], [operator]).items():
            context.instance.add_dynamic_partitions(name, keys)
        for event in _materialized(made):
            context.log_event(event)

    return job_of(
        "experiment_start",
        "Run versions of a stream beside it, from one savepoint; the stream itself keeps running.",
        act,
        partitions_def=choices(names),
    )


def _stopping(streams: Streams) -> dg.JobDefinition:
    @dg.op(name="stop_experiment")
    def act(context: dg.OpExecutionContext) -> None:
        from floodmark.control.delivery.experiments import set_state  # noqa: PLC0415 - definitions load without an engine

        with failing():
            name = chosen(context, "job 'experiment_stop'", "an experiment")
            made = set_state(streams.fleet(context.log.info), name, "stopped")
        tagged(context, made.operator)

    return job_of(
        "experiment_stop",
        "Stop the experiment that is selected as partition; its tables stay.",
        act,
        partitions_def=EXPERIMENTS,
    )


def _promoting(streams: Streams) -> dg.JobDefinition:
    class Config(config_of(PromotionRequest)):  # type: ignore[misc]  # made of the request
        pass

    @dg.op(name="promote_arm")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        from floodmark.control.delivery.promotion import promote  # noqa: PLC0415 - definitions load without an engine

        request = request_of(PromotionRequest, config)
        with failing():
            name = chosen(context, "job 'experiment_promote'", "an experiment")
            fleet = streams.fleet(context.log.info)
            made, action = interruptible(
                lambda: promote(fleet, name, request),
                lambda: None,  # the promotion runs to its end; if killed, the next action finishes it
            )
            tagged(context, made.operator)
            context.add_output_metadata(action.outcome)
            if failure := action.failure(f"promotion of arm {request.arm} of experiment {made.name}"):
                raise failure

    what = "Replace the stream by an arm of the experiment that is selected as partition; the job rollback undoes the promotion."
    return job_of("experiment_promote", what, act, partitions_def=EXPERIMENTS)


# ---- lists of experiments and arms


def experiments_listed(
    instance: dg.DagsterInstance, lake: Lake, operators: Iterable[str], known: dict[str, Any], now: float
) -> list[Any]:
    """Requests that add and delete partitions, so that the lists of experiments and arms match a lake.

    Args:
        instance: where the lists are.
        lake: of the experiments.
        operators: names of all of them.
        known: what the cursor has of the last look that asked for the lists, two for each operator: what they should be, and when that was, s since
            1970. They are not asked for again for an hour while that is the same. Is updated.
        now: s since 1970.
    """
    from floodmark.lake.restore import experiments  # noqa: PLC0415 - definitions load without Delta

    requests, wanted = list[Any](), _keys(experiments.known(lake), operators)
    if known.get("lists") == digest(wanted) and abs(now - known["at"]) < _LISTED_SECONDS:  # the clock may be set back
        return []
    known |= {"lists": digest(wanted), "at": now}
    for name, keys in wanted.items():
        partitions, listed = dg.DynamicPartitionsDefinition(name=name), set(instance.get_dynamic_partitions(name))
        if new := sorted(set(keys) - listed):
            requests.append(partitions.build_add_request(new))
        if gone := sorted(listed - set(keys)):
            requests.append(partitions.build_delete_request(gone))
    return requests


def _keys(known: Iterable["Experiment"], operators: Iterable[str]) -> dict[str, list[str]]:
    """Name of a list of partitions -> its keys: the list of all experiments, and the experiments and arms of each operator."""
    keys_by_list: dict[str, list[str]] = {str(EXPERIMENTS.name): []}
    for operator in operators:
        keys_by_list |= {str(_partitions(operator).name): [], str(_arms_partitions(operator).name): []}
    for made in known:
        keys_by_list[str(EXPERIMENTS.name)].append(made.name)
        if str(_partitions(made.operator).name) in keys_by_list:
            keys_by_list[str(_partitions(made.operator).name)].append(made.name)
            keys_by_list[str(_arms_partitions(made.operator).name)] += [f"{made.name}.{arm.name}" for arm in made.arms]
    return keys_by_list


def _materialized(made: "Experiment") -> Iterator[dg.AssetMaterialization]:
    for arm in made.arms:
        about: dict[str, Any] = {
            "code": arm.code,
            "version": arm.version,
            "package": arm.package,
            "began": iso(made.began_at),
            "savepoint": made.savepoint,
            "differs": dg.MetadataValue.md("\n".join(f"- {line}" for line in arm.differs) or "nothing"),
            "path": dg.MetadataValue.path(arm.root),
        }
        yield dg.AssetMaterialization(
            asset_key=_arms_key(made.operator), partition=f"{made.name}.{arm.name}", metadata=about
        )
