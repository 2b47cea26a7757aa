"""Health of streams in Dagster: the check `stream` of each source, operator and delivery, and observations with its numbers, which Dagster plots.

The sensor `streams` evaluates them from the records of the control store and the commits of the tables. Dagster keeps 4 KB of each event, and never removes
one: a check that has not changed is reported every hour, the numbers every ten minutes, and of more than four streams more rarely.
"""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from deltalake.exceptions import DeltaError

from floodmark.core import background
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import describe
from floodmark.lake.restore import savepoints
from floodmark.lifecycle.usage import Usage
from floodmark.orchestration.advice import links, repository_of_run
from floodmark.orchestration.assets import delivery_key, output_key, source_key
from floodmark.orchestration.checks import newest_results
from floodmark.orchestration.jobs import Streams
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from floodmark.control.health.judgement import Health, Judged, Observed

NAME = "stream"
"""The check."""
_WHAT = "Whether its supervised stream does what it should; green while none was started. Evaluated by the sensor `streams` on each change."
UNREADABLE = (FloodmarkError, DeltaError, OSError)
"""What is raised where a table, or the whole lake, cannot be read."""
_NOT_STARTED = "no stream was started"
_LEAST_SECONDS = 60.0
"""Between two evaluations of a check; one that turns red is not held back."""
_CHECK_SECONDS, _NUMBERS_SECONDS = 3600.0, 600.0
"""Between two evaluations of a check that has not changed, and between two observations of a stream that moves."""
_STREAMS = 4
"""Streams of a workspace above which these times grow with their number, so that the event log does not."""
_TAIL_BYTES = 2_000
"""Of the log of a driver at fault."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A stream as it was looked at.

    Args:
        key: the asset: of the source, or of the operator's first output.
        judged: what is known of it, and the verdict.
    """

    key: dg.AssetKey
    judged: "Judged"

    @property
    def observed(self) -> "Observed":
        """What is known of it."""
        return self.judged.observed

    @property
    def health(self) -> "Health":
        """The verdict."""
        return self.judged.health


def health_checks(workspace: Workspace, streams: Streams) -> list[dg.AssetChecksDefinition]:
    """The checks, which *Execute* and each run of the assets evaluate too."""
    names = {key: name for name, key in _keys(workspace).items()}
    if not names:
        return []
    specs = [dg.AssetCheckSpec(NAME, asset=key, description=_WHAT) for key in names]

    @dg.multi_asset_check(specs=specs, name="check_streams", can_subset=True)
    def check_step(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        verdicts, refusal = dict[str, Seen](), ""
        try:
            verdicts = look(workspace, streams, {}) if streams.any else {}
        except FloodmarkError as error:  # the store is unreachable: no reason for a run of the assets to fail
            refusal = str(error)
        for chosen in context.selected_asset_check_keys:
            seen = verdicts.get(names[chosen.asset_key])
            passed, severity, about = (
                not refusal,
                dg.AssetCheckSeverity.WARN,
                {"state": refusal or _NOT_STARTED},
            )
            if seen is not None:
                passed, severity, about = _verdict(seen, streams, repository_of_run(context.run))
            yield dg.AssetCheckResult(
                asset_key=chosen.asset_key, check_name=NAME, passed=passed, severity=severity, metadata=about
            )

    return [check_step]


def look(workspace: Workspace, streams: Streams, known: dict[str, Any]) -> dict[str, Seen]:
    """Source or operator -> its deployed stream as it is now.

    Args:
        workspace: of the streams.
        streams: what acts on them.
        known: of each stream what the last look kept, as ``reports`` does.
    """
    from floodmark.control.health.judgement import judged  # noqa: PLC0415 - definitions load without Spark
    from floodmark.control.processes.holding import Holding  # noqa: PLC0415 - as above

    fleet, keys = streams.fleet(print), _keys(workspace)
    deployed = {name: replace(one, watch=fleet.watch(name)) for name, one in fleet.deployments(keys).items()}
    seen = {fleet.stream(name): known.get(name, {}).get("crash") for name in deployed}
    verdicts = judged(fleet.store, deployed.values(), holding=Holding(), now=fleet.store.now(), seen=seen)
    names = [one.name for one in workspace.streams if one.name in deployed]
    return {name: Seen(keys[name], verdicts[fleet.stream(name)]) for name in names}


def reports(
    workspace: Workspace,
    streams: Streams,
    known: dict[str, Any],
    instance: dg.DagsterInstance,
    repository: str = "",
) -> Iterator[Any]:
    """Evaluations and observations that are due. Updates ``known``: stream -> what was reported of it last, and when.

    Args:
        workspace: of the streams.
        streams: what acts on them.
        known: of each stream what the last look kept.
        instance: where the results of the checks are: runs evaluate them too.
        repository: of the definitions, for links to jobs.
    """
    looked = look(workspace, streams, known)
    keys = _keys(workspace)
    for name in sorted(known.keys() - looked.keys()):  # of another lake, or another operator has its name
        del known[name]
        if name in keys:
            yield dg.AssetCheckEvaluation(
                asset_key=keys[name], check_name=NAME, passed=True, metadata={"state": _NOT_STARTED}
            )
    results = newest_results(instance, (dg.AssetCheckKey(seen.key, NAME) for seen in looked.values()))
    for name, seen in looked.items():
        state: list[str] = [seen.health.level, seen.health.condition]
        crash, moved = seen.observed.newest_crash, seen.observed.standing.at
        result = results.get(dg.AssetCheckKey(seen.key, NAME))
        # a run may have looked in a bad moment
        differs = result is not None and result.of_run and result.passed not in {None, seen.health.level == "ok"}
        again = differs or (result is not None and not result.shown)
        check, numbers, after = due(
            known.get(name, {}), state, moved, seen.observed.now, streams=len(looked), again=again
        )
        known[name] = after | {"crash": -1 if crash is None else crash.id}
        if check:
            passed, severity, about = _verdict(seen, streams, repository)
            yield dg.AssetCheckEvaluation(
                asset_key=seen.key,
                check_name=NAME,
                passed=passed,
                severity=severity,
                metadata=about,
                target_materialization_data=None if result is None else result.target,
            )
        if numbers:
            with suppress(*UNREADABLE):  # these numbers come with a later observation
                yield dg.AssetObservation(seen.key, metadata=_numbers(seen, streams))


def due(
    before: dict[str, Any], state: list[str], moved: float, now: float, streams: int = 1, *, again: bool = False
) -> tuple[bool, bool, dict[str, Any]]:
    """(whether the check is to be reported, whether the numbers are, what is kept of this look).

    Args:
        before: what was kept of the look before; empty for the first one.
        state: level and condition.
        moved: changes with the numbers.
        now: s since 1970.
        streams: number of streams of the workspace.
        again: whether Dagster shows no result of the check, or another one.
    """
    rarer = max(1.0, streams / _STREAMS)
    waited = abs(now - before.get("at", 0))  # the clock may be set back
    turns_red = state[0] == "error" and before.get("state", ["ok"])[0] != "error"
    changed = before.get("state") != state
    check = (
        "at" not in before or waited >= (_LEAST_SECONDS if changed or again else _CHECK_SECONDS * rarer) or turns_red
    )
    pause = _LEAST_SECONDS if check and changed else _NUMBERS_SECONDS * rarer
    rested = "numbers_at" not in before or abs(now - before["numbers_at"]) >= pause
    numbers = rested and (moved != before.get("moved") or (check and changed))
    after = before | ({"state": state, "at": now} if check else {})
    return check, numbers, after | ({"numbers_at": now, "moved": moved} if numbers else {})


def _keys(workspace: Workspace) -> dict[str, dg.AssetKey]:
    """Source, operator or delivery -> the asset that has its check."""
    keys = {asset.source.name: source_key(asset) for asset in workspace.source_assets}
    keys |= {route.name: delivery_key(route) for route in workspace.deliveries}
    return keys | {asset.operator.name: output_key(asset.operator.outputs[0]) for asset in workspace.operator_assets}


def _verdict(seen: Seen, streams: Streams, repository: str = "") -> tuple[bool, dg.AssetCheckSeverity, dict[str, Any]]:
    """(whether the check is passed, its severity, its metadata)."""
    from floodmark.control.serving.server import page_of  # noqa: PLC0415 - definitions load without Spark

    health, driver = seen.health, next(iter(seen.observed.drivers), None)
    about: dict[str, Any] = {"state": health.condition, "reason": health.reason or "none"}
    if health.mend:
        about["mends it"] = health.mend
    if driver is not None:
        about |= {"version": driver.version, "driver": f"{driver.epoch}", "log": dg.MetadataValue.path(driver.log)}
    logged = {"failed": seen.observed.newest_crash, "crashed": seen.observed.newest_crash}.get(health.condition, driver)
    end = "" if health.level != "error" or logged is None else background.tail(Path(logged.log), _TAIL_BYTES)[0].strip()
    if end:
        about["end of its log"] = dg.MetadataValue.md(f"```\n{end}\n```")
    if (page := page_of(streams.fleet(print).store, seen.observed.deployment.stream)) is not None:
        about["page"] = dg.MetadataValue.url(page)
    about |= links(repository, seen.observed.deployment)
    severity = dg.AssetCheckSeverity.ERROR if health.level == "error" else dg.AssetCheckSeverity.WARN
    return health.level == "ok", severity, about


def _numbers(seen: Seen, streams: Streams) -> dict[str, Any]:
    """Metadata of an observation. Dagster plots its numbers."""
    from floodmark.control.serving.server import page_of  # noqa: PLC0415 - definitions load without Spark
    from floodmark.control.streams.vitals import vitals  # noqa: PLC0415 - as above

    observed, store, lake = seen.observed, streams.fleet(print).store, streams.location.lake
    stream, driver = observed.deployment, next(iter(observed.drivers), None)
    (measured,) = vitals(store, [stream], judgements={stream.stream: seen.judged})
    totals, usage = measured.measured.totals, Usage.parse(None if driver is None else driver.usage)
    about: dict[str, Any] = {
        "state": str(seen.health),
        "watermark": describe(observed.standing.progress),
        {"source": "commits", "operator": "micro-batches", "delivery": "deliveries"}[stream.kind]: totals.commits,
        "rows": totals.rows_in,
        "late": totals.late,
        "dropped": totals.dropped,
        "set aside": totals.quarantined,
        "crashes": sum(one.state == "crashed" for one in observed.drivers),
        "busy, share of a minute": round(measured.busy, 3),
        "rows waited, share of a minute": round(measured.waited, 3),
        "memory": usage.memory,
    }
    if measured.behind_input is not None:
        about["lag, s"] = measured.behind_input
    if (behind := observed.behind_clock) is not None:
        about["behind the clock, s"] = round(behind, 1)
    if measured.backlog is not None:
        about["commits that wait"] = measured.backlog.commits
    if driver is not None:
        about |= {"version": driver.version, "driver": f"{driver.epoch}"}
    if stream.kind == "operator":
        about["savepoints"] = sum(name.startswith(f"{stream.operator}-") for name in savepoints.names(lake))
    if measured.error:
        about["last error"] = measured.error
    if (page := page_of(store, stream.stream)) is not None:
        about["page"] = dg.MetadataValue.url(page)
    return about
