"""DAGs made of a workspace: landings, a DAG per operator, reports of complete partitions, and the verbs that act on streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronPartitionTimetable, Param, PartitionedAssetTimetable

from floodmark_airflow.operators import (
    Command,
    Land,
    Partitions,
    Rollback,
    Rollout,
    Run,
    Savepoint,
    Start,
    Stop,
    Upgrade,
)
from floodmark_airflow.workspace import Workspace

_CODE = ("*.py", "*/*.py", "*/*/*.py", "*.toml")
"""Files of a workspace whose change may change its definitions."""
_CRON = {"day": "0 0 * * *", "hour": "0 * * * *"}
_KEYS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H:%M"}


def dags(
    workspace: Workspace, *, landing: str | None = "*/5 * * * *", reports: str | None = "*/5 * * * *", prefix: str = ""
) -> dict[str, DAG]:
    """{id: DAG} of a workspace; in a file of Airflow's DAG folder, ``globals().update(dags(Workspace(folder=...)))``.

    - ``land``: a task per source, by a schedule.
    - One per operator, named after it: computes an asset partition bounded. It runs after each partition of the operators it reads, if it reads
      operators with the same partitions; otherwise after each day or hour, in the partitions' time zone. Without partitions it has no
      schedule, and computes all of event time. Backfills are Airflow's own.
    - ``partitions``: reports the partitions that streams have completed, as events of the operators' assets.
    - ``start``, ``stop``, ``savepoint``, ``upgrade``, ``rollback``, ``rollout``: act on the stream of one operator, launched by hand.

    All are paused until somebody turns them on. The workspace is asked again only once a file of it has changed.

    Args:
        workspace: the workspace.
        landing: cron expression of landings; None: by hand.
        reports: cron expression of reports; None: by hand.
        prefix: of the ids; by default the name of the workspace's folder and an underscore.

    Raises:
        VerbError: the workspace does not load; Airflow shows it as an import error.
    """
    described = _described(workspace)
    prefix = prefix or f"{Path(workspace.folder).name}_"
    operators = {one["name"]: one for one in described["operators"]}
    made = [_landing(workspace, described["sources"], landing, prefix), _reports(workspace, operators, reports, prefix)]
    made += [_computing(workspace, one, operators, prefix) for one in operators.values()]
    made += _acting(workspace, list(operators), prefix) if operators else []
    return {dag.dag_id: dag for dag in made if dag is not None}


def _described(workspace: Workspace) -> dict[str, Any]:
    """The definitions of a workspace. Airflow reads a DAG file every half minute; floodmark is asked only if a file is newer than the answer kept."""
    folder = Path(workspace.folder)
    kept = folder / ".floodmark" / "airflow" / f"definitions-{workspace.environment}.json"
    newest = max((file.stat().st_mtime for pattern in _CODE for file in folder.glob(pattern)), default=0.0)
    if kept.exists() and kept.stat().st_mtime > newest:
        document: dict[str, Any] = json.loads(kept.read_text("utf-8"))
        return document
    document = workspace.ask("validate")
    kept.parent.mkdir(parents=True, exist_ok=True)
    whole = kept.with_suffix(".new")
    whole.write_text(json.dumps(document), "utf-8")
    whole.replace(kept)
    return document


def _dag(name: str, what: str, schedule: Any, **settings: Any) -> DAG:
    return DAG(
        name,
        description=what,
        schedule=schedule,
        catchup=False,
        is_paused_upon_creation=True,
        tags=["floodmark"],
        **settings,
    )


def _landing(workspace: Workspace, sources: list[str], schedule: str | None, prefix: str) -> DAG | None:
    if not sources:
        return None
    with _dag(f"{prefix}land", "Lands new rows of every source.", schedule, max_active_runs=1) as dag:
        for source in sources:
            Land(task_id=source, workspace=workspace, sources=[source], outlets=[workspace.asset(source)])
    return dag


def _reports(
    workspace: Workspace, operators: Mapping[str, dict[str, Any]], schedule: str | None, prefix: str
) -> DAG | None:
    divided = [name for name, one in operators.items() if one["partitions"]]
    if not divided:
        return None
    what = "Reports the asset partitions that streams have completed."
    with _dag(f"{prefix}partitions", what, schedule, max_active_runs=1) as dag:
        for name in divided:
            outlets = [workspace.asset(table) for table in operators[name]["writes"]]
            Partitions(task_id=name, workspace=workspace, operator=name, outlets=outlets)
    return dag


def _computing(
    workspace: Workspace, operator: dict[str, Any], operators: Mapping[str, dict[str, Any]], prefix: str
) -> DAG:
    divided = operator["partitions"]
    writers = {table: one for one in operators.values() for table in one["writes"]}
    read = [table for table in operator["reads"] if table in writers]
    follows = (
        divided and len(read) == len(operator["reads"]) and all(_alike(writers[t]["partitions"], divided) for t in read)
    )
    schedule: Any = None
    if follows:
        assets = [workspace.asset(table) for table in read]
        schedule = PartitionedAssetTimetable(assets=reduce(and_, assets))
    elif divided:
        by = divided["by"]
        schedule = CronPartitionTimetable(_CRON[by], timezone=divided["timezone"], run_offset=-1, key_format=_KEYS[by])
    name = operator["name"]
    lineage = {
        "inlets": [workspace.asset(table) for table in operator["reads"]],
        "outlets": [workspace.asset(table) for table in operator["writes"]],
    }
    what = f"Computes {name} bounded, {'an asset partition at a time' if divided else 'over all of event time'}."
    with _dag(f"{prefix}{name}", what, schedule, max_active_runs=1) as dag:  # an operator's runs take turns
        if divided:
            Run(task_id="run", workspace=workspace, operators=[name], **lineage)
        else:
            Command(task_id="run", workspace=workspace, words=["run", name], **lineage)
    return dag


def _alike(first: dict[str, Any] | None, second: dict[str, Any]) -> bool:
    """Whether two operators' partitions have the same names."""
    return first is not None and (first["by"], first["timezone"]) == (second["by"], second["timezone"])


def _acting(workspace: Workspace, names: list[str], prefix: str) -> list[DAG]:
    """A DAG for each verb that acts on a stream, whose form asks for the operator."""
    chosen, made = "{{ params.operator }}", []
    for verb, kind in (("start", Start), ("stop", Stop)):
        with _dag(
            f"{prefix}{verb}", kind.__doc__.split(":")[0] + ".", None, params={"operator": _operator(names)}
        ) as dag:
            kind(task_id=verb, workspace=workspace, operators=[chosen])
        made.append(dag)
    for verb, one in (("savepoint", Savepoint), ("upgrade", Upgrade), ("rollback", Rollback), ("rollout", Rollout)):
        options = Param([], type="array", items={"type": "string"}, description="Further options, as one types them.")
        params = {"operator": _operator(names), "options": options}
        what = one.__doc__.split(":")[0] + "."
        with _dag(f"{prefix}{verb}", what, None, params=params, render_template_as_native_obj=True) as dag:
            one(task_id=verb, workspace=workspace, operator=chosen, options="{{ params.options }}")  # type: ignore[arg-type]
        made.append(dag)
    return made


def _operator(names: list[str]) -> Param:
    return Param(names[0], type="string", enum=names, description="Operator of the stream.")
