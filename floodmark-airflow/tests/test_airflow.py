"""A workspace in a real Airflow: what its DAGs compute is what the command line computes, whoever is killed in between."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import DAYS, FLOODMARK, SECONDS, Airflow, until
from floodmark_airflow import Workspace, dags

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def workspace(shop: Path) -> Workspace:
    return Workspace(folder=str(shop), program=FLOODMARK)


def published(airflow: Airflow, workspace: Workspace, text: str = "") -> None:
    """A file of DAGs: those of the workspace, and what the text makes."""
    lines = [
        "from floodmark_airflow import *",
        f"shop = Workspace(folder={workspace.folder!r}, program={workspace.program!r})",
        "globals().update(dags(shop, landing=None, reports=None))",
        text,
    ]
    (airflow.home / "dags" / "shop.py").write_text("\n".join(lines))


def test_a_workspace_becomes_dags_and_is_asked_again_only_after_a_change(workspace: Workspace) -> None:
    made = dags(workspace)
    verbs = {"start", "stop", "savepoint", "upgrade", "rollback", "rollout"}
    assert set(made) == {f"shop_{name}" for name in {"land", "partitions", "hourly_sales", "voucher_use"} | verbs}
    assert [task.task_id for task in made["shop_land"].tasks] == ["orders"]
    (run,) = made["shop_hourly_sales"].tasks
    assert [asset.name for asset in run.outlets] == ["hourly_sales", "hourly_sales__late"]
    assert [asset.name for asset in run.inlets] == ["orders"]

    silent = Workspace(folder=workspace.folder, program="/bin/false")
    assert set(dags(silent)) == set(made), "asked again, with no change"
    operators = Path(workspace.folder) / "operators" / "orders.py"
    operators.write_text(operators.read_text() + "\n")
    with pytest.raises(Exception, match="status 1"):
        dags(silent)


@pytest.mark.feature("Z10")
def test_days_are_landed_computed_awaited_and_reported_in_airflow(airflow: Airflow, workspace: Workspace) -> None:
    published(airflow, workspace, WAITING)
    waiting = airflow.launch("waiting", partition_key=DAYS[0])
    assert airflow.ended("shop_land", airflow.launch("shop_land")) == "success"
    runs = [airflow.launch("shop_hourly_sales", partition_key=day) for day in DAYS[:3]]
    assert [airflow.ended("shop_hourly_sales", run) for run in runs] == ["success"] * 3
    assert airflow.ended("waiting", waiting) == "success", "its sensor waits in the triggerer"
    assert sorted(airflow.events("hourly_sales")) == list(DAYS[:3])
    assert workspace.ask("partitions", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[2]}")["complete"]

    for _ in range(2):  # the second report has nothing that is new
        assert airflow.ended("shop_partitions", airflow.launch("shop_partitions")) == "success"
    assert sorted(airflow.events("hourly_sales")) == sorted([*DAYS[:3], *DAYS[:3]])

    wrong = airflow.launch("shop_hourly_sales", partition_key="2031-01-01")
    assert airflow.ended("shop_hourly_sales", wrong) == "failed"
    assert "LIFECYCLE-190" in airflow.log("shop_hourly_sales", wrong, "run")


def test_the_dags_of_the_page_run_over_a_day(airflow: Airflow, workspace: Workspace) -> None:
    """Both programs of README.md as they stand, but for the folder of the workspace and the path of floodmark."""
    whole, own = re.findall(r"^```python\n(.+?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for name, text in {"shop": whole, "daily_sales": own}.items():
        assert text.count('folder="/srv/shop"') == 1
        here = text.replace('folder="/srv/shop"', f"folder={workspace.folder!r}, program={workspace.program!r}")
        (airflow.home / "dags" / f"{name}.py").write_text(here)
    production = Workspace(folder=workspace.folder, program=workspace.program, environment="prod")
    for words in (["land", "orders", "--end"], ["run", "hourly_sales", "--partition", DAYS[0]]):
        command = [workspace.program, *words, "--environment", "prod"]
        subprocess.run(command, cwd=workspace.folder, check=True)
    run = airflow.launch("daily_sales", partition_key=DAYS[0])
    assert airflow.ended("daily_sales", run) == "success"
    assert production.ask("partitions", "voucher_use", "--partition", DAYS[0])["complete"]
    assert DAYS[0] in airflow.events("voucher_use")
    assert airflow.ended("shop_land", airflow.launch("shop_land")) == "success"
    (airflow.home / "dags" / "daily_sales.py").unlink()


WAITING = """
from airflow.sdk import DAG, PartitionedAtRuntime
with DAG("waiting", schedule=PartitionedAtRuntime()):
    PartitionSensor(task_id="complete", workspace=shop, operator="hourly_sales", poke_interval=1)
"""


SLOW = """
from airflow.sdk import DAG, PartitionedAtRuntime
slow = Workspace(folder=shop.folder, program=shop.folder + "/slow")
with DAG("slow", schedule=PartitionedAtRuntime()):
    Run(task_id="run", workspace=slow, operators=["hourly_sales"], retries=3, retry_delay=1)
"""
PROGRAM = """#!/bin/sh
echo "$$" >> {folder}/started
while [ ! -e {folder}/go ]; do sleep 0.2; done
exec {program} "$@"
"""
"""``floodmark``, once a file says go."""


@pytest.mark.feature("Z10")
def test_a_try_after_the_death_of_scheduler_and_worker_waits_for_the_verb_that_runs(
    airflow: Airflow, workspace: Workspace
) -> None:
    folder = Path(workspace.folder)
    slow = folder / "slow"
    slow.write_text(PROGRAM.format(folder=folder, program=FLOODMARK))
    slow.chmod(0o755)
    published(airflow, workspace, SLOW)
    workspace.ask("land", "--all")
    run = airflow.launch("slow", partition_key=f"{DAYS[0]}...{DAYS[2]}")
    until((folder / "started").exists)

    airflow.kill("scheduler")  # with the worker and its task
    airflow.start("scheduler")
    until(lambda: airflow.ask(f"dags/slow/dagRuns/{run}/taskInstances/run")["try_number"] > 1)
    (folder / "go").touch()

    assert airflow.ended("slow", run) == "success"
    assert len((folder / "started").read_text().split()) == 1, "the verb was started again"
    assert "Reconnecting" in airflow.log("slow", run, "run", 2)
    other = Workspace(folder=str(folder), program=FLOODMARK, lake=str(folder / "undisturbed"))
    other.ask("land", "--all")
    other.ask("run", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[2]}")
    workspace.ask("diff", "hourly_sales", "--against", str(folder / "undisturbed"), "--all")


MORE = ('cents=sum("cents"))', 'cents=sum("cents")).with_columns(euros="cents / 100.0")')


def version(workspace: Workspace) -> str:
    """Of the stream's table."""
    (output,) = [
        one
        for one in workspace.ask("status")["tables"]
        if one["kind"] == "output" and one["table"].endswith("/hourly_sales")
    ]
    return str(output.get("version", ""))


@pytest.mark.feature("Z10")
def test_a_stream_is_started_upgraded_rolled_back_and_stopped_by_dags(airflow: Airflow, workspace: Workspace) -> None:
    folder, form = Path(workspace.folder), {"operator": "hourly_sales"}
    published(airflow, workspace)
    workspace.ask("land", "--all")
    with subprocess.Popen([FLOODMARK, "supervise"], cwd=folder, stderr=subprocess.DEVNULL) as supervisor:
        try:
            assert airflow.ended("shop_start", airflow.launch("shop_start", conf=form)) == "success"
            until(lambda: workspace.ask("partitions", "hourly_sales")["partitions"])
            assert {one["by"] for one in workspace.ask("partitions", "hourly_sales")["partitions"]} == {"stream"}
            first = version(workspace)

            operators = folder / "operators" / "orders.py"
            text = operators.read_text()
            assert MORE[0] in text
            operators.write_text(text.replace(*MORE))
            upgrade = airflow.launch("shop_upgrade", conf={**form, "options": ["--forward-only", "--soak", "1"]})
            assert airflow.ended("shop_upgrade", upgrade) == "success", airflow.log("shop_upgrade", upgrade, "upgrade")
            streams = workspace.ask("savepoint", "list", "hourly_sales")["savepoints"]
            assert streams, "an upgrade begins with a savepoint"

            rollback = airflow.launch("shop_rollback", conf=form)
            assert airflow.ended("shop_rollback", rollback) == "success", airflow.log(
                "shop_rollback", rollback, "rollback"
            )
            until(lambda: version(workspace) == first)
            stop = airflow.launch("shop_stop", conf=form)
            assert airflow.ended("shop_stop", stop) == "success", airflow.log("shop_stop", stop, "stop")
        finally:
            subprocess.run([FLOODMARK, "stop", "--all"], cwd=folder, check=False)  # streams outlive their supervisor
            supervisor.send_signal(signal.SIGINT)
            supervisor.wait(SECONDS)
