"""Experiments in Dagster: assets of those that exist, and what the jobs refuse."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from floodmark.cli.shell.console import Console
from floodmark.cli.verbs import up
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments
from floodmark.lifecycle.experiment import Experiment
from floodmark.orchestration import build_definitions

from .test_jobs import workspace

JOBS = {"experiment_start", "experiment_stop", "experiment_promote"}


def begun(lake: Lake) -> Experiment:
    """The record of an experiment, as its start leaves it."""
    made = Experiment(
        name="first",
        operator="per_hour",
        savepoint="per_hour-1",
        arms=(),
        state="running",
        who="someone",
        why="",
        began_at=0,
        since=0,
    )
    return experiments.keep(lake, made)


def assets(root: Path) -> set[str]:
    """The assets of experiments of a workspace whose definitions are loaded now; the jobs are always there."""
    definitions = build_definitions(workspace(root), root=root)
    assert {job.name for job in definitions.resolve_all_job_defs()} >= JOBS
    keys = definitions.resolve_all_asset_keys()
    return {key.to_user_string() for key in keys if key.path[0] == "experiments"}


def test_an_operator_has_assets_of_experiments_while_it_has_an_experiment(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    assert assets(tmp_path) == set()
    made = begun(lake)
    assert assets(tmp_path) == {"experiments/per_hour/arms", "experiments/per_hour/report"}
    experiments.forget(lake, made)
    assert assets(tmp_path) == set()


def test_every_asset_has_a_group(tmp_path: Path) -> None:
    begun(Lake(str(tmp_path / "lake")))
    definitions = build_definitions(workspace(tmp_path), root=tmp_path)
    groups = {spec.key.to_user_string(): spec.group_name for spec in definitions.resolve_all_asset_specs()}
    assert "default" not in groups.values(), groups
    assert None not in groups.values(), groups


def test_definitions_load_where_a_record_cannot_be_read_and_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = tmp_path / "lake" / "_floodmark" / "experiments" / "first" / "experiment.json"
    record.parent.mkdir(parents=True)
    record.write_text("{")
    assert assets(tmp_path) == set()
    assert "no assets of experiments" in caplog.text


def test_up_loads_the_definitions_again_for_the_first_experiment_and_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, asked, console = Lake(str(tmp_path / "lake")), list[str](), Console(as_json=False)
    monkeypatch.setattr(up, "_ask", lambda url, query: asked.append(query))
    loaded = up._Loaded(lake)
    assert not loaded.renew("url", console)
    made = begun(lake)
    assert [loaded.renew("url", console), loaded.renew("url", console)] == [True, False]
    experiments.forget(lake, made)
    assert [loaded.renew("url", console), loaded.renew("url", console)] == [True, False]
    assert asked == ["mutation { reloadWorkspace { __typename } }"] * 2


def test_up_asks_again_where_dagster_did_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, console, away = Lake(str(tmp_path / "lake")), Console(as_json=False), [True]

    def ask(url: str, query: str) -> None:
        if away.pop():
            away.append(False)
            raise OSError("refused")

    monkeypatch.setattr(up, "_ask", ask)
    loaded = up._Loaded(lake)
    begun(lake)
    assert [loaded.renew("url", console), loaded.renew("url", console)] == [False, True]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    definitions = build_definitions(workspace(tmp_path), root=tmp_path)
    start = {"ops": {"start_experiment": {"config": {"operator": "per_hour", "name": "one"}}}}
    promote = {"ops": {"promote_arm": {"config": {"arm": "b"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("floodmark_experiments", ["gone"])
        for job, op, config, partition, code in (
            ("experiment_start", "start_experiment", start, None, "LIFECYCLE-053"),
            ("experiment_promote", "promote_arm", promote, "gone", "LIFECYCLE-090"),
            ("experiment_stop", "stop_experiment", {}, "gone", "LIFECYCLE-090"),
        ):
            done = definitions.resolve_job_def(job).execute_in_process(
                instance=instance, run_config=config, partition_key=partition, raise_on_error=False
            )
            failure = done.failure_data_for_node(op)
            assert failure is not None
            assert code in str(failure.user_failure_data.description), job
