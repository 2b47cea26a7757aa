"""Runs that were killed with all of Dagster are over with the next ``floodmark up``; where Dagster's state is shared it decides itself."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

STATUS = dg.DagsterRunStatus


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Dagster's state after a kill: one run at work, one that waits, one that is over."""
    settings = (files("floodmark.orchestration") / "dagster.yaml").read_text("utf-8")
    (tmp_path / "dagster.yaml").write_text(settings, "utf-8")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        for status in (STATUS.STARTED, STATUS.NOT_STARTED, STATUS.SUCCESS):
            create_run_for_test(instance, job_name=f"was_{status.value.lower()}", status=status)
    return tmp_path


def statuses(home: Path) -> dict[str, dg.DagsterRunStatus]:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return {run.job_name: run.status for run in instance.get_runs()}


def give_up(home: Path) -> str:
    command = [sys.executable, "-m", "floodmark.orchestration.lost_runs", str(home)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_was_at_work_has_failed_and_what_waits_goes_on(home: Path) -> None:
    assert give_up(home) == "was_started"
    expected = {"was_started": STATUS.FAILURE, "was_not_started": STATUS.NOT_STARTED, "was_success": STATUS.SUCCESS}
    assert statuses(home) == expected
    assert not give_up(home), "once"


@pytest.mark.parametrize("elsewhere", ["run_launcher: {module: k8s, class: L}", "storage: {postgres: {}}"])
def test_runs_that_others_may_be_at_work_on_are_left_alone(home: Path, elsewhere: str) -> None:
    before, settings = statuses(home), (home / "dagster.yaml").read_text("utf-8")
    (home / "dagster.yaml").write_text(f"{settings}\n{elsewhere}\n", "utf-8")
    assert not give_up(home)
    (home / "dagster.yaml").write_text(settings, "utf-8")
    assert statuses(home) == before
