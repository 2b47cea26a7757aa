"""Assets: what an orchestrator shows of sources and operators. Frozen values; no orchestrator is needed to define them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, Literal, get_args

from floodmark.core.errors import DefinitionError, shown
from floodmark.core.time import span, zone
from floodmark.spec.assets.checkpoints import Checkpoints
from floodmark.spec.assets.delivery import Delivery, Route, routes
from floodmark.spec.assets.freshness import check_freshness
from floodmark.spec.assets.restart import Restart, check_restart
from floodmark.spec.assets.rollout import Rollout
from floodmark.spec.graph.operator import Isolation, Operator
from floodmark.spec.graph.steps import Stateful, WindowAggregate
from floodmark.spec.rows.contract import expectations as of_contract
from floodmark.spec.rows.criteria import check_on_fail
from floodmark.spec.rows.drift import check_drift
from floodmark.spec.rows.expectation import Expectation, distinct
from floodmark.spec.rows.source import Source
from floodmark.spec.values.cron import check_cron
from floodmark.spec.windowing.partitions import Daily, Hourly, Partitions
from floodmark.spec.windowing.windows import Calendar

Behind = Literal["fail", "wait"]
Incomplete = Literal["fail", "wait"]
RunWhen = str
"""When a supervised stream has a process: ``always``, while there is ``data``, or at the times of a cron expression."""
_CHECKPOINTS = Checkpoints()
_SHORTEST_POLL = 10
"""Shortest time between two looks at a source, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAsset:
    """A source as an asset: materialized by landing what is new.

    Args:
        source: what a materialization lands.
        group: asset group.
        owners: e-mail addresses, or teams as ``team:name``.
        tags: of the asset.
        expectations: checked on the rows of each landing; includes those of the source's contract.
        ends: whether the source is complete: a landing appends the end of input after the last row.
        incomplete: what a landing with an end does while files are still being written, unfinished or refused: ``"fail"``, or ``"wait"``.
        wait: longest such wait, ms.
        poll: time between two looks of its supervised landing at the source, ms.
        restart: when its supervised landing is started again after a crash; None: as ``Restart.exponential()``.
        freshness: longest time by which the watermark of its landing may be behind the clock, ms; None: any.
        automation: when Dagster lands by itself: a condition of Dagster's, or None for never.
        deliveries: other lakes that get a replica of its log, each a stream of its own.
    """

    source: Source
    group: str = "sources"
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    expectations: tuple[Expectation, ...] = ()
    ends: bool = False
    incomplete: Incomplete = "fail"
    wait: int = 3_600_000
    poll: int = 1_000
    restart: Restart | None = None
    freshness: int | None = None
    automation: Any = None
    deliveries: tuple[Route, ...] = ()


PATIENCE, SOAK = "3 minutes", "10 seconds"
"""Defaults of an upgrade: longest wait for the new version's first micro-batch, and time it must run without a crash after that."""


@dataclass(frozen=True, slots=True)
class Upgrades:
    """When a schedule upgrades a running stream to the current code. Creates a savepoint first, and restores it if the upgrade fails.

    Args:
        at: cron expression: ``"0 3 * * sun"``.
        timezone: of ``at``.
        forward_only: accept that open windows hold rows that only the old definition admits.
        rebuild: compute all input with the new code beside the stream, then switch to the results.
        patience: longest wait for the new version's first micro-batch.
        soak: time the new version must then run without a crash.
    """

    at: str
    timezone: str = "UTC"
    forward_only: bool = False
    rebuild: bool = False
    patience: str = PATIENCE
    soak: str = SOAK


@dataclass(frozen=True, slots=True)
class Savepoints:
    """When a schedule creates savepoints of a stream, and how many of them are retained.

    Args:
        at: cron expression: ``"0 * * * *"``.
        keep: number of the schedule's newest savepoints to retain, 1 or more; pinned and still needed savepoints are retained beside them.
        timezone: of ``at``.
    """

    at: str
    keep: int = 24
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAsset:
    """An operator as assets, one per output: materialized by bounded runs.

    Args:
        operator: what a materialization runs; its outputs are divided by ``partitions``.
        partitions: of event time; None: every run covers all of event time.
        group: asset group.
        owners: e-mail addresses, or teams as ``team:name``.
        tags: of the assets.
        expectations: output name (``""`` for the only one) -> what must hold of each asset partition.
        behind: what a run does when its inputs have not reached the end of its partitions: ``"fail"``, or ``"wait"``.
        wait: longest such wait, ms.
        upgrades: when a schedule upgrades its stream; None: only a person does.
        rollout: how a changed version runs beside the stream before it replaces it; None: in place only.
        savepoints: when a schedule creates savepoints of its stream; None: only a person does.
        restart: when its supervised stream is started again after a crash; None: as ``Restart.exponential()``.
        checkpoints: how far the micro-batches of its stream are apart.
        run_when: when its supervised stream has a process: ``"always"``, while there is ``"data"``, or at the times of a cron expression.
        freshness: longest time by which the watermark of its stream may be behind the clock, ms; None: any.
        automation: when Dagster materializes it by itself: ``"complete"``, a condition of Dagster's, or None for never.
        deliveries: where changes of its outputs leave to, each a stream of its own.
    """

    operator: Operator
    partitions: Partitions | None = None
    group: str = "operators"
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    expectations: Mapping[str, tuple[Expectation, ...]] = field(default_factory=dict)
    behind: Behind = "fail"
    wait: int = 3_600_000
    upgrades: Upgrades | None = None
    rollout: Rollout | None = None
    savepoints: Savepoints | None = None
    restart: Restart | None = None
    checkpoints: Checkpoints = _CHECKPOINTS
    run_when: RunWhen = "always"
    freshness: int | None = None
    automation: Any = None
    deliveries: tuple[Route, ...] = ()


def check_operator(operator: object, where: str) -> Operator:
    """The operator.

    Raises:
        DefinitionError: DEFINITION-076, it is something else.
    """
    if isinstance(operator, Operator):
        return operator
    name = getattr(operator, "__name__", "")
    if isinstance(operator, FunctionType):
        got, fix = f"the function '{name}'", f"Put @operator above def {name}."
    else:
        got, fix = f"{shown(operator)}, a {type(operator).__name__}", "Give a function with @operator above it."
    raise DefinitionError(where, "an operator", got, fix, code="DEFINITION-076")


def check_source(source: object, where: str) -> Source:
    """The source.

    Raises:
        DefinitionError: DEFINITION-076, it is something else.
    """
    if isinstance(source, Source):
        return source
    got = f"{shown(source)}, a {type(source).__name__}"
    fix = 'Give a source: Source("orders", contract=Order, connector=Files("inbox/orders"), watermark=Ascending()).'
    raise DefinitionError(where, "a source", got, fix, code="DEFINITION-076")


def source_asset(  # noqa: PLR0913 - settings by name
    source: Source,
    *,
    group: str = "sources",
    owners: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    contract_checks: bool = True,
    ends: bool = False,
    incomplete: Incomplete = "fail",
    wait: str = "1 hour",
    poll: str = "1 second",
    restart: Restart | None = None,
    freshness: str | None = None,
    automation: Any = None,
    deliver: Iterable[Delivery] = (),
) -> SourceAsset:
    """Show a source as an asset.

    Args:
        source: what a materialization lands.
        group: asset group.
        owners: e-mail addresses, or teams as ``team:name``.
        tags: of the asset.
        contract_checks: check every landing against the expectations its contract declares and implies.
        ends: for an archive to which nothing is added: a materialization lands the end of input after the last row, so that the last
            asset partition completes too. Nothing can land after the end.
        incomplete: with ``ends``, while files are still being written, unfinished by their names or refused. ``"fail"``: the complete files
            land, and the step fails; ``"wait"``: the step waits for them.
        wait: longest such wait; then the step fails.
        poll: of its supervised landing (``floodmark start``): time between two looks at the source, at least 10 ms. A look lists the folder.
        restart: of its supervised landing: ``Restart.fixed("10 seconds", budget=None)``. The default is ``Restart.exponential()``.
        freshness: ``"5 minutes"``: its supervised landing is at fault while its watermark is further behind the clock (docs/dagster.md#health).
        automation: when Dagster lands by itself: one of its conditions, such as ``dagster.AutomationCondition.on_cron("@hourly")``. None: only a person does.
        deliver: other lakes that get a replica of its log: ``[ToLake("s3://bucket/lake")]``, each a stream of its own.

    Raises:
        DefinitionError: DEFINITION-076, no source; 097, another ``incomplete``, a negative wait, a ``poll`` below 10 ms, or no ``Restart``; 001 and 296, a
            freshness that is no duration or shorter than a minute; 297, of rows without an event time of their own; 301, no automation; 332 and 342, a delivery that takes no log.
    """
    expectations = of_contract(check_source(source, "source_asset").contract) if contract_checks else ()
    for expectation in expectations:
        expectation.check(source.schema, f"contract '{source.contract.__name__}'")
        check_drift(expectation, source.schema, f"contract '{source.contract.__name__}'", divided=False)
    where = f"asset of source '{source.name}'"
    longest = span(wait, f"{where}, wait")
    if incomplete not in get_args(Incomplete) or longest < 0:
        fix = 'incomplete is "fail" or "wait", wait a span such as "1 hour".'
        got = f"incomplete={incomplete!r}, wait={wait!r}"
        raise DefinitionError(where, "valid settings", got, fix, code="DEFINITION-097")
    poll_ms = span(poll, f"{where}, poll")
    if poll_ms < _SHORTEST_POLL:
        fix = 'For example poll="1 second".'
        raise DefinitionError(f"{where}, poll", "10 ms or more", repr(poll), fix, code="DEFINITION-097")
    _check_automation(automation, where)
    return SourceAsset(
        source=source,
        group=group,
        owners=tuple(owners),
        tags=tags or {},
        expectations=expectations,
        ends=ends,
        incomplete=incomplete,
        wait=longest,
        poll=poll_ms,
        restart=check_restart(restart, where),
        freshness=check_freshness(freshness, (source,), where),
        automation=automation,
        deliveries=routes(source, deliver, where),
    )


def operator_asset(  # noqa: PLR0913 - settings by name
    operator: Operator,
    *,
    partitions: Any = None,
    group: str = "operators",
    owners: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    expectations: Iterable[Expectation] | Mapping[str, Iterable[Expectation]] = (),
    behind: Behind = "fail",
    wait: str = "1 hour",
    upgrades: Upgrades | None = None,
    rollout: Rollout | None = None,
    savepoints: Savepoints | None = None,
    restart: Restart | None = None,
    checkpoints: Checkpoints = _CHECKPOINTS,
    run_when: RunWhen = "always",
    freshness: str | None = None,
    automation: Any = None,
    isolation: Isolation = "read_committed",
    deliver: Iterable[Delivery] = (),
) -> OperatorAsset:
    """Show an operator's outputs as assets.

    Args:
        operator: what a materialization runs.
        partitions: ``Daily``, ``Hourly``, or Dagster's ``DailyPartitionsDefinition`` or ``HourlyPartitionsDefinition``. The operator's
            ``Global()`` is one window per partition then, as ``Global.per(partitions)``.
        group: asset group.
        owners: e-mail addresses, or teams as ``team:name``.
        tags: of the assets.
        expectations: of the first output, or output name -> expectations.
        behind: ``"fail"`` or ``"wait"`` when an input has not reached the end of a partition.
        wait: longest such wait.
        upgrades: ``Upgrades("0 3 * * sun")``: when a schedule upgrades its stream. The schedule is off until it is turned on.
        rollout: ``Rollout(schedule="0 3 * * sun", promote=PromoteWhen(match=0.999))``: a changed version runs beside its stream first, and is
            promoted when the rule holds. ``upgrades`` replaces the version in place; at most one of both is set.
        savepoints: ``Savepoints("0 * * * *", keep=24)``: when a schedule creates savepoints of its stream, and how many are retained. The
            schedule is off until it is turned on.
        restart: ``Restart.exponential(budget=10)``, ``Restart.fixed("10 seconds")`` or ``Restart.never()``: when a supervisor starts its stream again after a
            crash. The default is ``Restart.exponential()``.
        checkpoints: ``Checkpoints(interval="10 seconds")``: how far the micro-batches of its stream are apart, and how much one of them reads.
        run_when: ``"always"``: its supervised stream has a process from start to stop. ``"data"``: the process ends once the inputs have brought nothing new
            for 30 seconds, and the supervisor starts it again within a second of the next commit to an input, which then waits for the start of the
            engine (1.6 s embedded). A cron expression such as ``"0 * * * *"``, in UTC: at these times it is started, reads what is there, and ends.
            Both for operators whose state does not wait for processing time.
        freshness: ``"5 minutes"``: its supervised stream is at fault while its watermark is further behind the clock (docs/dagster.md#health).
        automation: when Dagster materializes the assets by itself, as a bounded run. ``"complete"``: each asset partition once its inputs are complete up to its end, if
            nothing has computed it and its own stream will not; a partition whose run failed waits for a person. Or one of Dagster's conditions, such as
            ``dagster.AutomationCondition.on_cron("@daily")``. The sensor ``automation`` judges all of them. None: only a person does.
        isolation: of its ``current`` tables. ``"read_committed"``: they show committed micro-batches only. ``"read_uncommitted"``: its stream
            writes them before the commit, about a second earlier; after a crash the repeated micro-batch overwrites its values. The output
            tables themselves are always committed once. Source: Friedman and Tzoumas, "Introduction to Apache Flink", chapter 5.
        deliver: where changes of its outputs leave to: ``[ToSql(Env("SHOP_DATABASE"), table="hourly")]``. Each is a stream of its own, with a name
            (``hourly_to_sql``) that ``floodmark start`` takes.

    Raises:
        DefinitionError: DEFINITION-076, no operator; DEFINITION-092, the operator's results do not fall into these partitions; 094, an unknown column, or no
            expectation; 034, a trigger that waits for the end of input; 095, not partitions; 097, another ``behind``, ``isolation`` or ``run_when``, a negative span, or upgrades beside a rollout;
            304, a strict expectation without partitions; 098, no cron expression; 099, no output is revised; 162, a rule about a column that no output has; 001 and 296, a freshness that is no duration or
            shorter than a minute; 301, no automation, or ``"complete"`` without partitions; 331 to 334, a delivery that does not fit its output.
    """
    where = f"asset of operator '{check_operator(operator, 'operator_asset').name}'"
    longest = span(wait, f"{where}, wait")
    if behind not in get_args(Behind) or longest < 0:
        fix = 'behind is "fail" or "wait", wait a span such as "1 hour".'
        raise DefinitionError(where, "valid settings", f"behind={behind!r}, wait={wait!r}", fix, code="DEFINITION-097")
    divided_by = _partitions(partitions, where)
    if divided_by is not None:
        operator = operator.divided(divided_by)
        _check_partitions(operator, divided_by, where)
    if upgrades is not None:
        _check_upgrades(upgrades, where)
    if rollout is not None:
        _check_rollout(rollout, upgrades, operator, where)
    if savepoints is not None:
        _check_savepoints(savepoints, where)
    _check_isolation(operator, isolation, where)
    _check_run_when(operator, run_when, where)
    _check_automation(automation, where, divided=divided_by is not None)
    first = operator.outputs[0].name
    per_output = expectations if isinstance(expectations, Mapping) else {first: expectations}
    checked = {
        name: distinct(_expectations(output_expectations, where))
        for name, output_expectations in per_output.items()
        if output_expectations
    }
    results = [name for name, _ in operator.results]
    for name, output_expectations in checked.items():
        for expectation in output_expectations:
            expectation.check(operator.output(name).schema, where)
            check_on_fail(expectation, operator.output(name).schema, where)
            check_drift(expectation, operator.output(name).schema, where, divided=divided_by is not None)
            if expectation.strict and divided_by is None:
                fix = "Give it partitions, such as partitions=Daily(...), or leave strict out."
                got = f"'{expectation.name}', strict, over all rows"
                raise DefinitionError(where, "strict expectations of asset partitions", got, fix, code="DEFINITION-304")
            if expectation.on_fail == "quarantine" and operator.output(name).side:
                fix = f'Write on_fail="stop" or "warn", or expect it of an output: {", ".join(map(repr, results))}.'
                expected = 'an output of results, for on_fail="quarantine"'
                got = f"'{name}', which is a side output"
                raise DefinitionError(where, expected, got, fix, code="DEFINITION-292")
    operator = replace(operator.expecting(checked), partitions=divided_by, isolation=isolation)
    return OperatorAsset(
        operator=operator,
        partitions=divided_by,
        group=group,
        owners=tuple(owners),
        tags=tags or {},
        expectations=checked,
        behind=behind,
        wait=longest,
        upgrades=upgrades,
        rollout=rollout,
        savepoints=savepoints,
        restart=check_restart(restart, where),
        checkpoints=checkpoints,
        run_when=run_when,
        freshness=check_freshness(freshness, (), where),
        automation=automation,
        deliveries=routes(operator, deliver, where),
    )


def _check_automation(automation: Any, where: str, *, divided: bool | None = None) -> None:
    """Refuse what is neither None, ``"complete"`` (for operators with partitions; ``divided`` is None for a source) nor a condition of Dagster's, which is not imported."""
    if automation is None or any(kind.__name__ == "AutomationCondition" for kind in type(automation).__mro__):
        return
    example = 'automation=dagster.AutomationCondition.on_cron("@daily")'
    if automation != "complete" or divided is None:
        known = "one of Dagster's AutomationConditions" + ("" if divided is None else ', or "complete"')
        raise DefinitionError(
            f"{where}, automation", known, shown(automation), f"For example {example}.", code="DEFINITION-301"
        )
    if not divided:
        fix = f"Give it asset partitions: operator_asset(..., partitions=Daily(...)), or another condition: {example}."
        expected, got = 'asset partitions, for automation="complete"', "an asset without partitions"
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-301")


def _check_run_when(operator: Operator, run_when: Any, where: str) -> None:
    if run_when not in {"always", "data"}:
        if not isinstance(run_when, str) or len(run_when.split()) <= 1:
            fix = 'run_when is "always", "data", or a cron expression such as "0 * * * *".'
            raise DefinitionError(where, "valid settings", f"run_when={run_when!r}", fix, code="DEFINITION-097")
        check_cron(run_when, f"{where}, run_when", 'run_when="0 3 * * sun"')
    if run_when != "always" and operator.stateful is not None and operator.stateful.clocked:
        fix = 'Leave run_when out, or let it be "always".'
        got = "one that waits for processing time, which passes without data"
        expected = f'an operator that only rows make move, for run_when="{run_when}"'
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-097")


def _check_isolation(operator: Operator, isolation: Any, where: str) -> None:
    if isolation not in get_args(Isolation):
        fix = 'isolation is "read_committed" or "read_uncommitted".'
        raise DefinitionError(where, "valid settings", f"isolation={isolation!r}", fix, code="DEFINITION-097")
    if isolation == "read_uncommitted" and not any(output.current for output in operator.outputs):
        fix = "Leave isolation out, or let it be revised: allowed_lateness, or a trigger with early panes."
        got = "one whose rows are final, so that there is no table of last values"
        raise DefinitionError(where, "an operator whose results are revised", got, fix, code="DEFINITION-099")


def _check_upgrades(upgrades: Upgrades, where: str) -> None:
    check_cron(upgrades.at, f"{where}, upgrades", 'Upgrades("0 3 * * sun")')
    zone(upgrades.timezone, f"{where}, upgrades")
    for text in (upgrades.patience, upgrades.soak):
        if span(text, f"{where}, upgrades") < 0:
            fix = 'Spans such as "3 minutes".'
            raise DefinitionError(f"{where}, upgrades", "spans of time", repr(text), fix, code="DEFINITION-097")


def _check_savepoints(savepoints: Any, where: str) -> None:
    if (
        not isinstance(savepoints, Savepoints)
        or not isinstance(savepoints.keep, int)
        or isinstance(savepoints.keep, bool)
        or savepoints.keep < 1
    ):
        fix = 'For example savepoints=Savepoints("0 * * * *", keep=24).'
        raise DefinitionError(
            f"{where}, savepoints", "1 or more to retain", repr(savepoints), fix, code="DEFINITION-097"
        )
    check_cron(savepoints.at, f"{where}, savepoints", 'Savepoints("0 3 * * sun")')
    zone(savepoints.timezone, f"{where}, savepoints")


def _check_rollout(rollout: Any, upgrades: Upgrades | None, operator: Operator, where: str) -> None:
    if not isinstance(rollout, Rollout):
        fix = "For example rollout=Rollout(promote=PromoteWhen(match=0.999))."
        raise DefinitionError(f"{where}, rollout", "a Rollout", repr(rollout), fix, code="DEFINITION-097")
    if upgrades is not None:
        fix = 'rollout=Rollout(schedule="0 3 * * sun"), or upgrades=Upgrades("0 3 * * sun"), not both.'
        expected, got = "one way in which its stream is changed", "upgrades and rollout"
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-097")
    rollout.promote.check(operator)


def _expectations(expectations: Iterable[Any], where: str) -> tuple[Expectation, ...]:
    checked = tuple(expectations)
    for expectation in checked:
        if not isinstance(expectation, Expectation):
            fix = 'For example expectations=[Expectation("column_values_to_be_between", column="delay", min_value=0)].'
            raise DefinitionError(where, "expectations", repr(expectation), fix, code="DEFINITION-094")
    return checked


def _partitions(partitions: Any, where: str) -> Partitions | None:
    """Floodmark's own partitions unchanged; Dagster's definitions converted by their attributes, without importing Dagster."""
    if partitions is None or isinstance(partitions, Daily | Hourly):
        return partitions
    known: dict[str, type[Partitions]] = {"0 0 * * *": Daily, "0 * * * *": Hourly}
    kind = known.get(getattr(partitions, "cron_schedule", ""))
    start = getattr(partitions, "start", None)
    aligned = start is not None and not (start.minute or (kind is Daily and start.hour))
    plain = (
        aligned
        and getattr(partitions, "fmt", None) in {"%Y-%m-%d", "%Y-%m-%d-%H:%M"}
        and not getattr(partitions, "exclusions", None)
    )
    if kind is None or getattr(partitions, "end_offset", None) or not plain:
        fix = 'Write Daily("2013-01-01", timezone="America/New_York"), Hourly(...), or Dagster\'s definitions of these that begin at a full day or hour, without offsets, exclusions or a format of their own.'
        raise DefinitionError(where, "partitions by day or hour", repr(partitions), fix, code="DEFINITION-095")
    text = "%Y-%m-%d" if kind is Daily else "%Y-%m-%dT%H:%M"
    return kind(
        partitions.start.strftime(text),
        timezone=partitions.timezone,
        end=partitions.end and partitions.end.strftime(text),
    )


def _check_partitions(operator: Operator, partitions: Partitions, where: str) -> None:
    for step in operator.stages:
        _check_divisible(step, partitions, where)


def _check_divisible(step: Stateful, partitions: Partitions, where: str) -> None:
    window = step.window if isinstance(step, WindowAggregate) else None
    if step.over_all_time is not None:
        fix = "Leave partitions out."
        if window is not None:
            fix = "Leave partitions out, or use Tumbling, Sliding, Calendar or Session of event time."
        got = f"{step.describe_window()}, {step.over_all_time}"
        raise DefinitionError(where, "results with an event time inside a partition", got, fix, code="DEFINITION-092")
    if isinstance(window, Calendar) and (window.timezone != partitions.timezone or window.offset):
        got = f"Calendar {window.unit}s in {window.timezone}" + (", with an offset" if window.offset else "")
        fix = f'Partition it in the same time zone: {type(partitions).__name__}("{partitions.start}", timezone="{window.timezone}").'
        expected = f"calendar windows that begin where its partitions do, in {partitions.timezone}"
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-092")
