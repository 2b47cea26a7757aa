"""Assets: what an orchestrator shows of sources and operators. Frozen values; no orchestrator is needed to define them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span, zone
from floodmark.spec.contract import expectations as of_contract
from floodmark.spec.cron import check_cron
from floodmark.spec.expectation import Expectation, distinct
from floodmark.spec.operator import Isolation, Operator
from floodmark.spec.partitions import Daily, Hourly, Partitions
from floodmark.spec.rollout import Rollout
from floodmark.spec.source import Source
from floodmark.spec.steps import WindowAggregate
from floodmark.spec.windows import Calendar

Behind = Literal["fail", "wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAsset:
    """A source as an asset: materialized by landing what is new.

    Args:
        source: landed.
        group: of assets it is shown in.
        owners: e-mail addresses, or teams as ``team:name``.
        tags: shown beside it.
        expectations: of the rows each landing brought; those of its contract included.
        ends: whether all there will ever be is there: a landing lands the end of input after the last row.
    """

    source: Source
    group: str = "sources"
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    expectations: tuple[Expectation, ...] = ()
    ends: bool = False


PATIENCE, SOAK = "3 minutes", "10 seconds"
"""Until a new version's first micro-batch, and for how long it must run without a crash then, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Upgrades:
    """When a stream that runs by itself goes on under the code there is then: with a savepoint first, and back to it when that fails.

    Args:
        at: cron expression: ``"0 3 * * sun"``.
        timezone: it is in.
        forward_only: accept that open windows hold what the old definition let through.
        rebuild: compute everything with the new code beside the stream, and switch.
        patience: until the new version's first micro-batch.
        soak: it must run without a crash.
    """

    at: str
    timezone: str = "UTC"
    forward_only: bool = False
    rebuild: bool = False
    patience: str = PATIENCE
    soak: str = SOAK


@dataclass(frozen=True, slots=True)
class Savepoints:
    """When savepoints of a stream are made by a schedule, and how many of these are retained.

    Args:
        at: cron expression: ``"0 * * * *"``.
        keep: the newest so many of those the schedule has made, 1 or more; one that is pinned or still needed is retained beside them.
        timezone: of ``at``.
    """

    at: str
    keep: int = 24
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAsset:
    """An operator as assets, one per output: materialized by bounded runs.

    Args:
        operator: run; its outputs are divided by ``partitions``.
        partitions: of event time; None: always all of it.
        group: of assets it is shown in.
        owners: e-mail addresses, or teams as ``team:name``.
        tags: shown beside it.
        expectations: output name (``""`` for the only one) -> what must hold of each asset partition.
        behind: what a run does when its inputs have not reached the end of its partitions: ``"fail"``, or ``"wait"``.
        wait: for at most so long, ms.
        upgrades: when its stream is upgraded by a schedule; None: when somebody says so.
        rollout: how a changed version becomes its stream beside the one that runs; None: in place only.
        savepoints: when savepoints of its stream are made by a schedule; None: when somebody says so.
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


def source_asset(
    source: Source,
    *,
    group: str = "sources",
    owners: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    contract_checks: bool = True,
    ends: bool = False,
) -> SourceAsset:
    """Show a source as an asset.

    Args:
        source: any.
        group: of assets.
        owners: e-mail addresses, or teams as ``team:name``.
        tags: shown beside it.
        contract_checks: check every landing against the expectations its contract declares and implies.
        ends: for an archive to which nothing is added: a materialization lands the end of input after the last row, so that the last
            asset partition completes too. Nothing can land after the end.
    """
    expectations = of_contract(source.contract) if contract_checks else ()
    for one in expectations:
        one.check(source.schema, f"contract '{source.contract.__name__}'")
    return SourceAsset(
        source=source, group=group, owners=tuple(owners), tags=tags or {}, expectations=expectations, ends=ends
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
    isolation: Isolation = "read_committed",
) -> OperatorAsset:
    """Show an operator's outputs as assets.

    Args:
        operator: any.
        partitions: ``Daily``, ``Hourly``, or Dagster's ``DailyPartitionsDefinition`` or ``HourlyPartitionsDefinition``.
        group: of assets.
        owners: e-mail addresses, or teams as ``team:name``.
        tags: shown beside them.
        expectations: of the first output, or output name -> expectations.
        behind: ``"fail"`` or ``"wait"`` when an input has not reached the end of a partition.
        wait: for at most so long.
        upgrades: ``Upgrades("0 3 * * sun")``: when its stream is upgraded by a schedule, which is off until it is turned on.
        rollout: ``Rollout(schedule="0 3 * * sun", promote=PromoteWhen(match=0.999))``: a changed version runs beside its stream first, and is
            promoted when the rule holds. ``upgrades`` is the way in place: give one of them.
        savepoints: ``Savepoints("0 * * * *", keep=24)``: when savepoints of its stream are made by a schedule, which is off until it is turned
            on, and how many of them are retained.
        isolation: of its ``current`` tables. ``"read_committed"``: they follow what is committed. ``"read_uncommitted"``: its stream writes them
            first, about a second earlier; values of a micro-batch that a crash has ended are overwritten when it is repeated. The output
            tables themselves are always committed once. Source: Friedman and Tzoumas, "Introduction to Apache Flink", chapter 5.

    Raises:
        DefinitionError: DEFINITION-092, the operator cannot be cut into these partitions; 094, an unknown column, or no expectation;
            095, not partitions; 097, another ``behind`` or ``isolation``, a negative span, or upgrades beside a rollout; 162, a rule
            about a column it has not; 098, no cron expression; 099, no output that
            is revised.
    """
    where = f"asset of operator '{operator.name}'"
    longest = span(wait, f"{where}, wait")
    if behind not in get_args(Behind) or longest < 0:
        fix = 'behind is "fail" or "wait", wait a span such as "1 hour".'
        raise DefinitionError(where, "valid settings", f"behind={behind!r}, wait={wait!r}", fix, code="DEFINITION-097")
    if upgrades is not None:
        _check_upgrades(upgrades, where)
    if rollout is not None:
        _check_rollout(rollout, upgrades, operator, where)
    if savepoints is not None:
        _check_savepoints(savepoints, where)
    _check_isolation(operator, isolation, where)
    cut = _partitions(partitions, where)
    if cut is not None:
        _check_cut(operator, cut, where)
    first = operator.outputs[0].name
    given = expectations if isinstance(expectations, Mapping) else {first: expectations}
    wanted = {name: distinct(_expectations(some, where)) for name, some in given.items() if some}
    for name, some in wanted.items():
        for one in some:
            one.check(operator.output(name).schema, where)
    return OperatorAsset(
        operator=replace(operator, partitions=cut, isolation=isolation),
        partitions=cut,
        group=group,
        owners=tuple(owners),
        tags=tags or {},
        expectations=wanted,
        behind=behind,
        wait=longest,
        upgrades=upgrades,
        rollout=rollout,
        savepoints=savepoints,
    )


def _check_isolation(operator: Operator, given: Any, where: str) -> None:
    if given not in get_args(Isolation):
        fix = 'isolation is "read_committed" or "read_uncommitted".'
        raise DefinitionError(where, "valid settings", f"isolation={given!r}", fix, code="DEFINITION-097")
    if given == "read_uncommitted" and not any(output.current for output in operator.outputs):
        fix = "Leave isolation out, or let it be revised: allowed_lateness, or a trigger with early panes."
        got = "one whose rows are final, so that there is no table of last values"
        raise DefinitionError(where, "an operator whose results are revised", got, fix, code="DEFINITION-099")


def _check_upgrades(given: Upgrades, where: str) -> None:
    check_cron(given.at, f"{where}, upgrades", 'Upgrades("0 3 * * sun")')
    zone(given.timezone, f"{where}, upgrades")
    for text in (given.patience, given.soak):
        if span(text, f"{where}, upgrades") < 0:
            fix = 'Spans such as "3 minutes".'
            raise DefinitionError(f"{where}, upgrades", "spans of time", repr(text), fix, code="DEFINITION-097")


def _check_savepoints(given: Any, where: str) -> None:
    if (
        not isinstance(given, Savepoints)
        or not isinstance(given.keep, int)
        or isinstance(given.keep, bool)
        or given.keep < 1
    ):
        fix = 'For example savepoints=Savepoints("0 * * * *", keep=24).'
        raise DefinitionError(f"{where}, savepoints", "1 or more to retain", repr(given), fix, code="DEFINITION-097")
    check_cron(given.at, f"{where}, savepoints", 'Savepoints("0 3 * * sun")')
    zone(given.timezone, f"{where}, savepoints")


def _check_rollout(given: Any, upgrades: Upgrades | None, operator: Operator, where: str) -> None:
    if not isinstance(given, Rollout) or upgrades is not None:
        fix = 'rollout=Rollout(schedule="0 3 * * sun"), or upgrades=Upgrades("0 3 * * sun"), not both.'
        got = "upgrades and rollout" if isinstance(given, Rollout) else repr(given)
        raise DefinitionError(where, "one way in which its stream is changed", got, fix, code="DEFINITION-097")
    given.promote.check(operator)


def _expectations(given: Iterable[Any], where: str) -> tuple[Expectation, ...]:
    found = tuple(given)
    for one in found:
        if not isinstance(one, Expectation):
            fix = 'For example expectations=[Expectation("column_values_to_be_between", column="delay", min_value=0)].'
            raise DefinitionError(where, "expectations", repr(one), fix, code="DEFINITION-094")
    return found


def _partitions(given: Any, where: str) -> Partitions | None:
    """Our own as they are; Dagster's by what they say, so that Dagster need not be there."""
    if given is None or isinstance(given, Daily | Hourly):
        return given
    known: dict[str, type[Partitions]] = {"0 0 * * *": Daily, "0 * * * *": Hourly}
    kind = known.get(getattr(given, "cron_schedule", ""))
    start = getattr(given, "start", None)
    aligned = start is not None and not (start.minute or (kind is Daily and start.hour))
    plain = (
        aligned
        and getattr(given, "fmt", None) in {"%Y-%m-%d", "%Y-%m-%d-%H:%M"}
        and not getattr(given, "exclusions", None)
    )
    if kind is None or getattr(given, "end_offset", None) or not plain:
        fix = 'Write Daily("2013-01-01", timezone="America/New_York"), Hourly(...), or Dagster\'s definitions of these that begin at a full day or hour, without offsets, exclusions or a format of their own.'
        raise DefinitionError(where, "partitions by day or hour", repr(given), fix, code="DEFINITION-095")
    text = "%Y-%m-%d" if kind is Daily else "%Y-%m-%dT%H:%M"
    return kind(given.start.strftime(text), timezone=given.timezone, end=given.end and given.end.strftime(text))


def _check_cut(operator: Operator, partitions: Partitions, where: str) -> None:
    step = operator.stateful
    window = step.window if isinstance(step, WindowAggregate) else None
    if step and step.over_all_time:
        fix = "Leave partitions out, or use Tumbling, Sliding, Calendar or Session of event time."
        got = f"{step.describe_window()}, whose results are known over all of time only"
        raise DefinitionError(where, "results with an event time inside a partition", got, fix, code="DEFINITION-092")
    if isinstance(window, Calendar) and (window.timezone != partitions.timezone or window.offset):
        got = f"Calendar {window.unit}s in {window.timezone}" + (", with an offset" if window.offset else "")
        fix = f'Partition it in the same time zone: {type(partitions).__name__}("{partitions.start}", timezone="{window.timezone}").'
        expected = f"calendar windows that begin where its partitions do, in {partitions.timezone}"
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-092")
