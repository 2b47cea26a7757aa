"""Sources, operators and deliveries as Dagster assets. The step of a source lands rows; that of an operator is a bounded run; that of a delivery delivers what its sink does not have yet."""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.data_version import CODE_VERSION_TAG

from floodmark.compiler.lineage import Columns, lineage
from floodmark.core.cores import limited
from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval, describe
from floodmark.lake.folder.locks import held_by
from floodmark.lake.results.preview import preview
from floodmark.lake.results.readiness import coverage, covered, readiness
from floodmark.lake.stream.delivered import delivered
from floodmark.lake.table import history
from floodmark.lake.table.commits import Landing
from floodmark.observe.expectations import begin_import, uncompiled
from floodmark.orchestration import metadata, partitions
from floodmark.orchestration.completeness import await_inputs, merge_results
from floodmark.orchestration.conditions import condition
from floodmark.orchestration.config import OperatorConfig, check_wait, defaults, landing_defaults
from floodmark.orchestration.metadata import freshness_policy
from floodmark.orchestration.session import StepWorkspace
from floodmark.orchestration.work import failing, interruptible, tagged
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.assets.delivery import Route
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.budget import Budget
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.spec.windowing.partitions import Partitions, first
from floodmark.spec.windowing.partitions import end as end_of

if TYPE_CHECKING:
    from floodmark.deliveries.run import Delivery
    from floodmark.engines.landing.session import Committed

_REPORTED = "__source_asset_observation__"
"""Metadata of a result whose events the step has reported itself: Dagster adds none. Pinned by the test of a range with an incomplete day."""
_LOCK_SECONDS = 900
"""Seconds that a step waits for another run of its operator. After a kill of its Dagster run, a bounded run still finishes its current work."""


def source_key(asset: SourceAsset) -> dg.AssetKey:
    """The asset key of a source."""
    return dg.AssetKey(asset.source.name)


def output_key(output: Output) -> dg.AssetKey:
    """The asset key of an output: the name of its table. The only output of an operator has the operator's name."""
    return dg.AssetKey(output.table)


def source_assets(asset: SourceAsset, location: StepWorkspace) -> dg.AssetsDefinition:
    """The asset of a source. Its step lands the rows that are new."""
    source, defaults = asset.source, landing_defaults(asset)
    spec = dg.AssetSpec(
        source_key(asset),
        description=(source.contract.__doc__ or "").strip() or None,
        metadata=metadata.static(source.schema, location.lake.log(source.name), source.contract.floodmark_key)
        | metadata.code(source.contract),
        group_name=asset.group,
        owners=list(asset.owners),
        tags=dict(asset.tags),
        kinds={"source", "deltalake"},
        code_version=source.fingerprint[:8],
        freshness_policy=freshness_policy(asset, location.workspace),
        automation_condition=condition(asset, location, {}),
    )

    @dg.multi_asset(
        specs=[spec],
        name=f"land_{source.name}",
        pool=f"source_{source.name}",
        config_schema=defaults.to_fields_dict(),
    )
    def land_step(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        config = defaults(**context.op_execution_context.op_config)
        stop, computing = Event(), location.computing
        began = time.monotonic()
        tagged(context, source.name)
        imports = _is_checked(context, asset, [spec.key]) and uncompiled(asset.expectations, source.schema)

        def on_commit(commit: "Committed") -> None:
            context.log.info(
                f"commit {commit.ordinal}: {commit.rows:,} rows, {commit.quarantined:,} quarantined, "
                f"up to {describe(commit.watermark)}, {commit.pending} to go"
            )
            if imports:
                begin_import()

        with failing(source.name):
            check_wait(f"asset '{source.name}'", config.wait_seconds)
            result = interruptible(
                lambda: computing.land(
                    source,
                    location.lake,
                    end=config.end,
                    max_commits=config.max_commits,
                    wait_seconds=config.wait_seconds if config.incomplete == "wait" else 0,
                    stop=stop,
                    workspace=Path(location.workspace.settings.folder),
                    on_commit=on_commit,
                ),
                stop.set,  # the landing ends after its current commit
            )
        left_out = result.left_out.describe(source.contract.__name__, result.rows + result.quarantined)
        nulls = result.default_nulls.describe()
        return dg.MaterializeResult(
            metadata={
                "rows landed": result.rows,
                "commits": result.commits,
                "files": result.units,
                "quarantined": result.quarantined,
                "watermark": describe(result.watermark),
                "ended": result.ended,
                **({"left out": left_out} if left_out else {}),
                **({"read as null": nulls} if nulls else {}),
                **({"far from all others": "\n".join(some.describe() for some in result.far)} if result.far else {}),
                "waiting": "\n".join(f"{name}: {why}" for name, why in result.waiting.items()) or "none",
                "seconds": round(time.monotonic() - began, 3),
            }
        )

    return land_step


@dataclass(frozen=True, slots=True)
class Upstream:
    """A table as an asset that others depend on.

    Args:
        key: the asset key.
        partitions: asset partitions of the table; None for a log and for an output that is not divided.
        event_time: the column that holds the event time of its rows, or the end of their window; None if none does.
    """

    key: dg.AssetKey
    partitions: Partitions | None = None
    event_time: str | None = None


def operator_assets(
    asset: OperatorAsset, location: StepWorkspace, tables: Mapping[str, Upstream]
) -> dg.AssetsDefinition:
    """The assets of an operator's outputs. One bounded run per range of partitions materializes all of them.

    Args:
        asset: the operator with its partitions and settings.
        location: the workspace that the step acts on.
        tables: name of a table -> its asset, for every table that can be an input.
    """
    operator, divided_by = asset.operator, asset.partitions
    since = {table: first(upstream.partitions) for table, upstream in tables.items() if upstream.partitions}
    event_times = {table: upstream.event_time for table, upstream in tables.items() if upstream.event_time}
    origins = lineage(operator, event_times)
    specs = [
        dg.AssetSpec(
            output_key(output),
            deps=[_dependency(asset, tables[given.table]) for given in operator.inputs],
            description=_description(operator, output),
            metadata=metadata.of_output(location.lake, output, origins.get(output.table, {}))
            | metadata.lineage(
                {table: upstream.key for table, upstream in tables.items()}, origins.get(output.table, {})
            )
            | metadata.code(operator),
            group_name=asset.group,
            owners=list(asset.owners),
            tags=dict(asset.tags),
            kinds={location.computing.name, "deltalake"},
            code_version=operator.version,
            partitions_def=partitions.definition(divided_by) if divided_by else None,
            automation_condition=condition(asset, location, since),
            skippable=True,
            freshness_policy=freshness_policy(asset, location.workspace),
        )
        for output in operator.outputs
    ]

    @dg.multi_asset(
        specs=specs,
        name=operator.name,
        pool=f"operator_{operator.name}",
        backfill_policy=dg.BackfillPolicy.single_run() if divided_by else None,
        config_schema=defaults(asset).to_fields_dict(),
        can_subset=True,  # one run writes all outputs, whichever are selected
    )
    def bounded_step(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        tagged(context, operator.name)
        with failing(operator.name):
            config = defaults(asset)(**context.op_execution_context.op_config)
            check_wait(f"asset '{operator.name}'", config.wait_seconds)
            interval = _interval(context, asset)
            context.log.info(f"{operator.version} over {interval}, in {location.lake.root}")
            if divided_by:
                ends = context.partition_key_range
                _check_exist(asset, divided_by, list(dict.fromkeys((ends.start, ends.end))))
            _check_chosen(context, asset, tables)
            divided = {name: upstream.partitions for name, upstream in tables.items()}
            division = await_inputs(context, asset, location.lake, interval, config, divided)
            for key, reason in division.incomplete.items():
                context.log.warning(f"{key} is not computed: {reason}")
            previews = [_previewed(context, asset, location, stretch, config) for stretch in division.complete]
            results = [_run(context, asset, location, stretch, config) for stretch in division.complete]
        result = merge_results(results, interval)
        yield from _results(context, asset, location, origins, result, config.late_rows, division.incomplete, previews)

    return bounded_step


def _interval(context: dg.AssetExecutionContext, asset: OperatorAsset) -> Interval:
    if asset.partitions is None:
        return Interval()
    if not context.has_partition_key and not context.has_partition_key_range:
        fix = "Launch it for one or more of them, from the dialog or with --partition."
        where = f"asset '{asset.operator.name}'"
        raise LifecycleError(where, "a partition to compute", "none", fix, code="LIFECYCLE-007")
    return partitions.interval_of(context.partition_time_window)


def _dependency(asset: OperatorAsset, upstream: Upstream) -> dg.AssetDep:
    if asset.partitions is None or upstream.partitions is None:
        return dg.AssetDep(upstream.key)
    return dg.AssetDep(upstream.key, partition_mapping=partitions.mapping(asset.operator.stages, asset.partitions))


def _check_exist(asset: OperatorAsset, divided_by: Partitions, keys: list[str]) -> None:
    """Refuse partitions that the asset does not have: in the future, or outside its start and end. A launch by API may name any partition.

    Raises:
        LifecycleError: LIFECYCLE-007, the asset does not have a partition.
    """
    definition = partitions.definition(divided_by)
    unknown = [key for key in keys if not definition.has_partition_key(key)]
    if unknown:
        known = f"{definition.get_first_partition_key()} to {definition.get_last_partition_key()}"
        fix = "Launch it for one of these. A partition exists once its time is over; start and end are set where the asset is defined."
        where = f"asset '{asset.operator.name}'"
        raise LifecycleError(where, f"one of its partitions, {known}", ", ".join(unknown), fix, code="LIFECYCLE-007")


def _description(operator: Operator, output: Output) -> str:
    sides = {
        "late": "Rows that arrived too late for every window of the operator.",
        "quarantine": "Rows and panes for which a function of the operator failed.",
        "side": f"Rows that the operator sends to its side output `{output.name}`.",
    }
    about = sides[output.side] if output.side else ""
    named = "" if output.side or not output.name else f"Output `{output.name}` of the operator."
    return "\n\n".join(text for text in (operator.description, about, named) if text)


def _check_chosen(context: dg.AssetExecutionContext, asset: OperatorAsset, tables: Mapping[str, Upstream]) -> None:
    """Refuse a run that selects outputs of an upstream operator, but not the output that this operator reads.

    Dagster orders steps by selected assets alone, so this step could run before the upstream operator's step, which writes all outputs.

    Raises:
        LifecycleError: LIFECYCLE-008, an input is not selected though other outputs of its operator are.
    """
    chosen = context.run.asset_selection or frozenset()
    for operator_input in asset.operator.inputs:
        if operator_input.upstream is None or tables[operator_input.table].key in chosen:
            continue
        writer = operator_input.upstream.operator
        others = sorted(output_key(o).to_user_string() for o in writer.outputs if output_key(o) in chosen)
        if others:
            key = tables[operator_input.table].key.to_user_string()
            fix = f"Choose '{key}' too, or launch '{asset.operator.name}' when '{writer.name}' is done."
            got = f"{', '.join(others)} alone, though all outputs of '{writer.name}' are written"
            where = f"asset '{asset.operator.name}'"
            raise LifecycleError(where, f"its input '{key}' among the chosen assets", got, fix, code="LIFECYCLE-008")


def _is_checked(
    context: dg.AssetExecutionContext, asset: SourceAsset | OperatorAsset, keys: Sequence[dg.AssetKey]
) -> bool:
    """True if checks of expectations of the asset follow in the same run."""
    selection = context.run.asset_check_selection  # None for all checks of the selected assets
    return bool(asset.expectations) and (selection is None or any(check.asset_key in keys for check in selection))


def _previewed(
    context: dg.AssetExecutionContext,
    asset: OperatorAsset,
    location: StepWorkspace,
    interval: Interval,
    config: OperatorConfig,
) -> list[str]:
    """The preview of a run over a stretch, line by line, logged before anything is computed."""
    made = preview(
        asset.operator,
        location.lake,
        interval,
        engine=location.computing.name,
        operators=location.workspace.operators,
        late_rows=config.late_rows,
        force=config.force,
    )
    context.log.info("\n  ".join(made.lines()))
    return made.lines()


def _run(
    context: dg.AssetExecutionContext,
    asset: OperatorAsset,
    location: StepWorkspace,
    interval: Interval,
    config: OperatorConfig,
) -> RunResult:
    operator = asset.operator
    budget = Budget.parse(config.budget, "config, budget") if config.budget else None
    computing, stop = location.within(budget), Event()
    ready = readiness(operator, location.lake, interval, late_rows=config.late_rows, force=config.force)
    for reason in ready.todo.reasons:
        context.log.info(reason)
    if not ready.todo.missing:
        return covered(operator, interval, ready.todo)
    imports = _is_checked(context, asset, [output_key(output) for output in operator.outputs]) and any(
        uncompiled(expectations, operator.output(name).schema) for name, expectations in asset.expectations.items()
    )

    def work() -> RunResult:
        if imports:
            computing.start(operator)
            begin_import()
        return computing.run_bounded(
            operator,
            location.lake,
            interval,
            late_rows=config.late_rows,
            force=config.force,
            on_step=context.log.info,
            wait_seconds=_LOCK_SECONDS,
            budget=budget,
            stop=stop,
        )

    def cancel() -> None:
        stop.set()
        computing.cancel()

    with limited(None if budget is None else budget.cores):
        return interruptible(work, cancel)


def _results(
    context: dg.AssetExecutionContext,
    asset: OperatorAsset,
    location: StepWorkspace,
    origins: Mapping[str, Columns],
    result: RunResult,
    late_rows: LateRows,
    incomplete: Mapping[str, str],
    previews: Sequence[Sequence[str]],
) -> Iterator[dg.MaterializeResult[Any]]:
    """A materialization of each output and computed partition.

    Dagster marks every partition of the run as materialized when a step yields a result. If some partitions were not computed, the step
    reports the computed partitions itself, and yields a result that marks none. Steps that read this asset run all the same.
    """
    operator, divided_by = asset.operator, asset.partitions
    seen = _coverage(operator, divided_by, location, late_rows) if divided_by else {}
    computed = [name for name in context.partition_keys if name not in incomplete] if divided_by else []
    for output in operator.outputs:
        key = output_key(output)
        about = metadata.of_run(result, output, origins.get(output.table, {})) | metadata.previewed(previews)
        rows = metadata.people_rows(location.lake, output)
        if divided_by is None:
            about["dagster/row_count"] = metadata.people_count(location.lake, output)
        parts = _of_partitions(divided_by, computed, rows, result) if divided_by else {}
        if parts and divided_by:
            parts[computed[-1]] |= seen | metadata.picture(rows, f"{output.table}: rows per asset partition")
            whole = Interval(start=first(divided_by), end=min(end_of(divided_by), time.time_ns() // 1_000_000))
            parts[computed[-1]] |= metadata.covered(location.workspace, location.lake, operator.name, whole, late_rows)
        for name, reason in incomplete.items():
            context.log_event(dg.AssetObservation(key, partition=name, metadata={"not computed": reason}))
        if key in context.selected_asset_keys and not incomplete:
            for name, numbers in parts.items():
                context.add_asset_metadata(numbers, asset_key=key, partition_key=name)
            yield dg.MaterializeResult(asset_key=key, metadata=about)
            continue
        tags = {CODE_VERSION_TAG: operator.version}
        for part, numbers in parts.items() if divided_by else [(None, dict[str, Any]())]:
            event = dg.AssetMaterialization(key, metadata=about | numbers, partition=part, tags=tags)
            context.log_event(event)
        if key in context.selected_asset_keys:
            yield dg.MaterializeResult(asset_key=key, metadata={_REPORTED: True})


def _of_partitions(
    divided_by: Partitions, names: Sequence[str], rows: Mapping[str, int], result: RunResult
) -> dict[str, dict[str, Any]]:
    """Partition -> metadata: its number of rows, and whether this run computed the partition or found it covered."""
    definition, by_partition = partitions.definition(divided_by), dict[str, dict[str, Any]]()
    for name in names:
        part = partitions.interval_of(definition.time_window_for_partition_key(name))
        count = {"dagster/partition_row_count": rows.get(divided_by.key(part.start), 0)} if rows else {}
        by_partition[name] = count | {"computed": bool(part.minus(list(result.skipped)))}
    return by_partition


def _coverage(
    operator: Operator, divided_by: Partitions, location: StepWorkspace, late_rows: LateRows
) -> dict[str, Any]:
    """Metadata of the operator's coverage, from the first partition to now, under the ``late_rows`` of the run."""
    whole = Interval(start=first(divided_by), end=min(end_of(divided_by), time.time_ns() // 1_000_000))
    return metadata.coverage(coverage(operator, location.lake, whole, late_rows=late_rows), whole)


def landed_last(location: StepWorkspace, source: str) -> tuple[int, int]:
    """(first, last) ``_sequence`` of the rows of the newest landing; (0, -1) before the first landing."""
    newest, low, high = "", 0, -1
    for _, landing in history.standing_of(location.lake.log(source), Landing):
        newest = newest or landing.run
        if landing.run != newest:
            break
        high = max(high, landing.next_sequence - 1)
        low = landing.next_sequence - landing.rows - 1
    return low, high


# ---- deliveries


def delivery_key(route: Route) -> dg.AssetKey:
    """The asset key of a delivery."""
    return dg.AssetKey(route.name)


def delivery_assets(asset: OperatorAsset | SourceAsset, route: Route, location: StepWorkspace) -> dg.AssetsDefinition:
    """The asset of a delivery.

    Args:
        asset: of the operator or source.
        route: the delivery, as the workspace has it.
        location: the workspace.
    """
    kind = type(route.delivery).__name__
    what = {"transaction": "once", "key": "at least once, each under its key", "append": "at least once"}
    spec = dg.AssetSpec(
        delivery_key(route),
        deps=[source_key(asset) if isinstance(asset, SourceAsset) else output_key(route.output)],
        description=f"Changes of {route.output.table}, by {kind}: each takes effect {what[route.delivery.guarantee]}.",
        metadata={"guarantee": route.delivery.guarantee},
        group_name=asset.group,
        owners=list(asset.owners),
        kinds={route.delivery.kind},
    )

    @dg.multi_asset(specs=[spec], name=f"deliver_{route.name}", pool=f"delivery_{route.name}")
    def deliver_step(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        from floodmark.deliveries.run import deliver  # noqa: PLC0415 - definitions load without it

        stop, began, lake = Event(), time.monotonic(), location.lake
        tagged(context, route.name)
        deliveries: list[Delivery] = []

        def tell(delivery: "Delivery") -> None:
            deliveries.append(delivery)
            context.log.info(f"{delivery}")

        with failing(route.name):
            stream = held_by(lake, "deliveries", route.name)
            if stream is None:
                interruptible(
                    lambda: deliver(route, lake, stop=stop, on_delivery=tell, until_caught_up=True),
                    stop.set,  # it ends after the delivery at work
                )
            at = delivered(lake, route.name)
        return dg.MaterializeResult(
            metadata={
                "results": sum(one.rows for one in deliveries),
                "taken back": sum(one.retractions for one in deliveries),
                "deliveries": len(deliveries),
                "version": -1 if at is None else at.version,
                "progress": "nothing yet" if at is None else describe(at.progress),
                "delivered by": stream or "this run",
                "seconds": round(time.monotonic() - began, 3),
            }
        )

    return deliver_step
