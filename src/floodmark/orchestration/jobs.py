"""Jobs that start, stop, save, upgrade and roll back streams, and that freeze results.

A stream never runs inside a Dagster run: a job is a short command to the supervisor, as on the command line.
"""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

import time
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from floodmark.control.processes.package import has_store
from floodmark.core.errors import LifecycleError
from floodmark.core.fingerprint import digest
from floodmark.core.time import describe
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.results import frozen
from floodmark.lifecycle.requests import RollbackRequest, SavepointRequest, UpgradeRequest
from floodmark.orchestration.config import check_wait, config_of, request_of
from floodmark.orchestration.listing import SAVEPOINTS, id_of, update_list
from floodmark.orchestration.session import StepWorkspace
from floodmark.orchestration.work import failing, interruptible, tagged
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.windowing.partitions import beginning, instant_of
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from floodmark.control.state.records import Action
    from floodmark.control.streams.fleet import Fleet
    from floodmark.lake.restore.savepoints import Savepoint


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of a workspace, for jobs.

    Args:
        location: the workspace that steps act on.
        root: folder of the workspace.
    """

    location: StepWorkspace
    root: Path

    def fleet(self, say: Callable[[str], None]) -> "Fleet":
        """The supervised streams.

        Args:
            say: called with each line about an action.
        """
        from floodmark.control.streams.fleet import Fleet  # noqa: PLC0415 - definitions load without Spark

        return Fleet(workspace=self.location.workspace, root=self.root, say=say)

    @property
    def any(self) -> bool:
        """True if a stream was ever started in this workspace."""
        return has_store(self.location.workspace.settings, self.root)


def whose(names: Any, says: str = "Operator of the stream.") -> Any:
    """The config field of the operator's name. A single operator is the default; of several none is, which ``operator_of`` refuses.

    Without a default, Dagster's *Scaffold missing config* would write all names as one, which is no config.

    Args:
        names: names of the operators.
        says: description of the field.
    """
    every = list(names)
    many = len(every) > 1
    return Field(
        description=f"{says} One of: {', '.join(one.value for one in every)}." if many else says,
        default=None if many else every[0],
    )


def choices(names: Any) -> dg.StaticPartitionsDefinition | None:
    """The operators as partitions of a job, which the launchpad shows as a list to choose from. None if there is one, which the config names.

    Args:
        names: enum of the operators' names.
    """
    every = [one.value for one in names]
    return dg.StaticPartitionsDefinition(every) if len(every) > 1 else None


def operator_of(context: dg.OpExecutionContext, config: Any, job: str) -> str:
    """The operator that a run acts on: chosen as its partition, or named by its config.

    Args:
        context: context of the step.
        config: config with the field of ``whose``.
        job: name of the job, for the error.

    Raises:
        LifecycleError: LIFECYCLE-007, there is none, or there are two.
    """
    named = [] if config.operator is None else [str(config.operator.value)]
    operators = set(named) | ({context.partition_key} if context.has_partition_key else set())
    if len(operators) == 1:
        return operators.pop()
    every = ", ".join(one.value for one in typing.get_args(type(config).model_fields["operator"].annotation)[0])
    got = f"partition {context.partition_key} and operator: {named[0]}" if operators else "none"
    fix = f"Choose one in the launchpad, under Partition, or write it into the config, operator: NAME, and launch it again: {every}."
    raise LifecycleError(f"job '{job}'", "one operator", got, fix, code="LIFECYCLE-007")


def chosen(context: dg.OpExecutionContext | dg.AssetExecutionContext, where: str, what: str) -> str:
    """The partition that a run was launched for.

    Args:
        context: context of the step.
        where: the job or asset, for the error.
        what: kind of its partitions, for the error: ``a savepoint``.

    Raises:
        LifecycleError: LIFECYCLE-007, no partition was selected: the launchpad launches such a run all the same.
    """
    if context.has_partition_key:
        return context.partition_key
    fix = "Choose one in the launchpad, under Partition, and launch it again. The sensor 'streams' keeps the list, and looks every 15 seconds."
    raise LifecycleError(where, f"{what} as its partition", "none", fix, code="LIFECYCLE-007")


def job_of(name: str, what: str, op: dg.OpDefinition, **settings: Any) -> dg.JobDefinition:
    """A job of one step, tagged with its name as ``floodmark/action``.

    Args:
        name: name of the job.
        what: description of the job.
        op: the step.
        settings: further settings of ``dg.job``.
    """

    @dg.job(name=name, description=what, tags={"floodmark/action": name}, **settings)
    def built() -> None:
        op()

    return built


def operator_names(workspace: Workspace) -> Any:
    """An enum of the operators' names, which the launchpad shows as a list."""
    return _names("Operators", [one.name for one in workspace.operators])


def stream_names(workspace: Workspace) -> Any:
    """An enum of the names of sources and operators, which the launchpad shows as a list."""
    return _names("Streams", [one.name for one in workspace.streams])


def _names(kind: str, every: list[str]) -> Any:
    # Dagster keeps one config type per name in a process: another workspace's names must have another type
    return Enum(f"{kind}_{digest(sorted(every))[:8]}", {name: name for name in every})


def jobs(streams: Streams, names: Any) -> dict[str, dg.JobDefinition]:
    """{name: job} of the jobs that start, stop, restart, save, upgrade and roll back streams, release gates, and freeze and thaw results.

    Args:
        streams: the streams of the workspace.
        names: enum of the operators' names, as of ``operator_names``.
    """
    built = [
        _starting(streams, stream_names(streams.location.workspace)),
        _stopping(streams),
        _restarting(streams),
        _saving(streams, names),
    ]
    built += [_upgrading(streams, names), _rolling_back(streams), _releasing(streams, names)]
    built += [_freezing(streams, names), _thawing(streams, names)]
    return {one.name: one for one in built}


def _starting(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(dg.Config):
        streams: list[names] = Field(default=[], description="Sources and operators to start. Empty: all of them.")
        wait_seconds: float = Field(default=60, description="How long to wait until all of them run.")

    @dg.op(name="start_streams")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        workspace = streams.location.workspace
        wanted = [one.value for one in config.streams] or [one.name for one in workspace.streams]
        with failing(tagged(context, ", ".join(wanted))):
            check_wait("job 'start'", config.wait_seconds)
            fleet = streams.fleet(context.log.info)
            fleet.check_supervised(wanted)
            since = fleet.store.now()
            fleet.start([workspace.stream(name) for name in wanted])
            _await_all(context, fleet, wanted, since, config.wait_seconds)

    what = "Start streams with the current code, and wait until they run: operators, and sources, whose rows then land as they come. All, unless some are named."
    return job_of("start", what, act)


def _restarting(streams: Streams) -> dg.JobDefinition:
    chosen_streams = _chosen_streams(streams.location.workspace)

    class Config(dg.Config):
        streams: list[str] = chosen_streams
        wait_seconds: float = Field(default=60, description="How long to wait until all of them run.")

    @dg.op(name="restart_streams")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        with failing(tagged(context, ", ".join(config.streams))):
            check_wait("job 'restart'", config.wait_seconds)
            fleet = streams.fleet(context.log.info)
            _stop(context, fleet, config.streams)
            fleet.check_supervised(config.streams)
            since = fleet.store.now()
            for name in config.streams:
                fleet.want(name, "running")
            _await_all(context, fleet, config.streams, since, config.wait_seconds)

    what = "Stop streams, and start them again from the code that they were started with. Resets the count of crashes: for a stream that was given up."
    return job_of("restart", what, act)


def _stopping(streams: Streams) -> dg.JobDefinition:
    chosen_streams = _chosen_streams(streams.location.workspace)

    class Config(dg.Config):
        streams: list[str] = chosen_streams

    @dg.op(name="stop_streams")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        with failing(tagged(context, ", ".join(config.streams))):
            _stop(context, streams.fleet(context.log.info), config.streams)

    return job_of("stop", "Stop streams, each after the commit that it is writing.", act)


def _chosen_streams(workspace: Workspace) -> Any:
    """The config field of streams that a launch has to name. Texts, not an enum: removed operators are in no list."""
    every = ", ".join(one.name for one in workspace.streams)
    says = f"Names of sources and operators, at least one: {every}; or of those that were removed from the code."
    return Field(description=says)


def _await_all(
    context: dg.OpExecutionContext, fleet: "Fleet", names: Iterable[str], since: float, wait_seconds: float
) -> None:
    """Wait until streams run, and log of each whether it does."""
    until = time.monotonic() + wait_seconds
    for name in names:
        driver = fleet.await_start(name, since, max(0.0, until - time.monotonic()))
        if driver is None or driver.state == "starting":
            waits = f": {driver.reason}" if driver is not None and driver.reason else ""
            context.log.warning(f"{name} has not started within {wait_seconds:.0f} s{waits}: floodmark logs {name}")
        else:
            context.log.info(f"{name} runs as process {driver.pid}; its log: {driver.log}")


def _stop(context: dg.OpExecutionContext, fleet: "Fleet", names: list[str]) -> None:
    known = [fleet.named(name) for name in names]
    fleet.check_idle(known)
    for name, driver in fleet.stop(known).items():
        context.log.info(f"{name}: {driver.reason if driver else 'not running'}")


def _saving(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(config_of(SavepointRequest)):  # type: ignore[misc]  # made of the request
        operator: names | None = whose(names)

    @dg.op(name="save_stream")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        from floodmark.control.streams.saving import save  # noqa: PLC0415 - definitions load without Spark

        with failing():
            name = tagged(context, operator_of(context, config, "savepoint"))
        with failing(name):
            fleet = streams.fleet(context.log.info)
            saved = save(fleet, name, request_of(SavepointRequest, config), fleet.codes() if streams.any else {})
        _listed(context, streams.location.lake, saved.made)
        for savepoint, why in saved.stay.items():
            context.log.info(f"savepoint {savepoint} stays: {why}")
        context.add_output_metadata(
            {"made": ", ".join(one.manifest.id for one in saved.made), "deleted": ", ".join(saved.deleted) or "none"}
        )

    what = "Create a savepoint of a stream while the stream runs."
    return job_of("savepoint", what, act, partitions_def=choices(names))


def _upgrading(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(config_of(UpgradeRequest)):  # type: ignore[misc]  # made of the request
        operator: names | None = whose(names)

    @dg.op(name="upgrade_stream")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        with failing():
            name = tagged(context, operator_of(context, config, "upgrade"))
        asset = streams.location.workspace.asset(name)
        with failing(name):
            action = _upgraded(context, streams, asset, request_of(UpgradeRequest, config))
        if action is None:
            context.log.info(f"{asset.operator.version}: nothing has changed")
            return
        if action.savepoint:
            lake = streams.location.lake
            _listed(context, lake, [savepoints.find(lake, action.savepoint)])
        context.add_output_metadata(action.outcome)
        if failure := action.failure(f"upgrade to {action.version}"):
            with failing():
                raise failure

    what = "Plan, savepoint, upgrade and verify a stream; roll it back if the new version fails."
    return job_of("upgrade", what, act, partitions_def=choices(names))


def _rolling_back(streams: Streams) -> dg.JobDefinition:
    class Config(config_of(RollbackRequest)):  # type: ignore[misc]  # made of the request
        pass

    @dg.op(name="roll_back_streams")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        from floodmark.control.streams.actions import roll_back  # noqa: PLC0415 - definitions load without Spark

        lake, request = streams.location.lake, request_of(RollbackRequest, config)
        with failing():
            name = id_of(chosen(context, "job 'rollback'", "a savepoint"))
            fleet, savepoint = streams.fleet(context.log.info), savepoints.find(lake, name)
            tagged(context, savepoint.manifest.operator)
            prepared, action = interruptible(
                lambda: roll_back(fleet, savepoint, backfills=request.undo_backfills, alone=request.leave_readers),
                lambda: None,  # the rollback runs to its end; if killed, the next action finishes it
            )
        for target in prepared.switch.targets:
            context.log.info(f"{target.operator} is back at {describe(target.watermark)}: {target.savepoint}")
        for undone in prepared.undone:
            context.log.info(f"{undone.table} has lost {undone.rows:,} rows of {undone.commits} micro-batches")
        context.add_output_metadata(action.outcome)

    what = "Roll a stream, and every stream that reads it, back to the savepoint that is selected as partition."
    return job_of("rollback", what, act, partitions_def=SAVEPOINTS)


def _releasing(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(dg.Config):
        operator: names | None = whose(names, "Operator whose output has the gate.")
        partition: str = Field(
            description="Its asset partition, or FIRST...LAST; `all` of an asset that is not divided."
        )
        reason: str = Field(description="Why readers may take the partition in as it is. Kept with the gate.")

    @dg.op(name="release_gate_of")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        from floodmark.control.streams.gating import release  # noqa: PLC0415 - definitions load without Spark

        with failing():
            name = tagged(context, operator_of(context, config, "release_gate"))
        with failing(name):
            store = streams.fleet(context.log.info).store if streams.any else None
            asset = streams.location.workspace.asset(name)
            released = release(asset, streams.location.lake, config.partition, config.reason, store)
        for gate in released:
            context.log.info(f"released: {gate.describe()}")
        context.add_output_metadata({"released": ", ".join(gate.partition for gate in released)})

    what = "Release the gate of an asset partition whose blocking check has failed: its readers, which wait, take the partition in as it is."
    return job_of("release_gate", what, act, partitions_def=choices(names))


def _freezing(streams: Streams, names: Any) -> dg.JobDefinition:
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


def _thawing(streams: Streams, names: Any) -> dg.JobDefinition:
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


def _upgraded(
    context: dg.OpExecutionContext, streams: Streams, asset: OperatorAsset, request: UpgradeRequest
) -> "Action | None":
    from floodmark.control.streams.actions import rebuild, upgrade  # noqa: PLC0415 - definitions load without Spark
    from floodmark.control.streams.expected import expected  # noqa: PLC0415 - as above
    from floodmark.control.streams.verification import Verification  # noqa: PLC0415 - as above

    cancelled, fleet = Event(), streams.fleet(context.log.info)
    verification = Verification.of(
        request,
        checks=tuple(expected(asset, streams.location.computing, streams.location.lake, anew=request.rebuild)),
        cancelled=cancelled,
    )

    def work() -> "Action | None":
        if request.rebuild:
            run = streams.location.computing.run_unbounded
            return rebuild(fleet, run, asset.operator, why=request.note, stop=cancelled, verification=verification)[1]
        plan, action = upgrade(
            fleet, asset.operator, forward_only=request.forward_only, why=request.note, verification=verification
        )
        for change in plan.changes:
            context.log.info(f"{change.where}: {change.before} -> {change.after}: {change.verdict}: {change.otherwise}")
        return action

    return interruptible(work, cancelled.set)


def _listed(context: dg.OpExecutionContext, lake: Lake, made: Iterable["Savepoint"]) -> None:
    """Bring the list of savepoints up to date, so that the job rollback has those just made. The sensor reports them."""
    update_list(context.instance, lake, savepoints.names(lake))
    for savepoint in made:
        context.log.info(
            f"savepoint {savepoint.manifest.id}: {savepoint.manifest.version} at micro-batch {savepoint.manifest.batch}"
        )
