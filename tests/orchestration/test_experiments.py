"""What the jobs of experiments refuse in Dagster."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from floodmark.orchestration import build_definitions

from .test_jobs import workspace


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
