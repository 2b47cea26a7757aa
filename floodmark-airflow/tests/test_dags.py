"""DAGs of a workspace, run in Airflow: the rows are those of the command line, and each partition is an event."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from conftest import FLOODMARK

from floodmark_airflow import Land, Partitions, PartitionSensor, Run, Savepoint, Workspace, dags
from floodmark_airflow.job import Job


@pytest.fixture
def workspace(shop: Path) -> Workspace:
    return Workspace(folder=str(shop), program=FLOODMARK)


def told(workspace: Workspace, *words: str) -> dict[str, Any]:
    """What a verb says on the command line."""
    return workspace.ask(*words)


def ran(dag: DAG, **given: Any) -> Any:
    """A run of a DAG, to its end."""
    return dag.test(**given)


def test_a_workspace_becomes_dags_and_is_asked_again_only_after_a_change(workspace: Workspace) -> None:
    made = dags(workspace)
    verbs = {"start", "stop", "savepoint", "upgrade", "rollback", "rollout"}
    assert set(made) == {f"shop_{name}" for name in {"land", "partitions", "hourly_sales"} | verbs}
    assert [task.task_id for task in made["shop_land"].tasks] == ["orders"]
    (run,) = made["shop_hourly_sales"].tasks
    assert [asset.name for asset in run.outlets] == ["hourly_sales"]
    assert [asset.name for asset in run.inlets] == ["orders"]

    silent = Workspace(folder=workspace.folder, program="/bin/false")
    assert set(dags(silent)) == set(made), "asked again, with no change"
    (Path(workspace.folder) / "operators" / "orders.py").touch()
    with pytest.raises(Exception, match="status 1"):
        dags(silent)


def test_a_dag_lands_computes_a_day_and_its_event_names_the_partition(workspace: Workspace) -> None:
    landed, run = dags(workspace)["shop_land"], dags(workspace)["shop_hourly_sales"]
    assert ran(landed).state == "success"
    assert told(workspace, "status")["tables"][0]["rows"] > 0
    assert ran(run, partition_key="2025-03-01").state == "success"

    (shown,) = told(workspace, "partitions", "hourly_sales", "--partition", "2025-03-01")["missing"] or ["none"]
    assert shown == "2025-03-01", "the log has not passed the day's end yet"
    covered = told(workspace, "run", "hourly_sales", "--partition", "2025-03-01")
    assert covered["skipped"], covered
