"""Only what is lost is computed again: the event log of Spark, on a cluster that loses an executor in the middle of a bounded run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import spark_cluster
from cluster_site import Site


@pytest.mark.soak
@pytest.mark.feature("B5")
def test_after_a_lost_executor_only_lost_stages_are_computed_again(tmp_path: Path) -> None:
    """From Spark's event log: no task of a stage is repeated whose outcome was on the executor that lives, or was not lost."""
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with spark_cluster.cluster(tmp_path / "cluster", tmp_path / "hidden") as cluster:
        log = cluster.shared / "events"
        log.mkdir()
        settings = spark_cluster.SETTINGS | logged | {"spark.eventLog.dir": str(log)}
        site = Site.made(cluster.hidden[0], cluster.shared, cluster.master, settings=settings)
        done = site.run("spark", "end", "ambush:executor", "bounded:streaks")
    assert done.returncode == 0, done.stderr[-3000:]
    assert (site.shared / "executor.killed").exists()
    (file,) = (path for path in log.rglob("*") if path.is_file() and "app-" in path.name)
    events = [json.loads(line) for line in file.read_text().splitlines()]
    _check_repeats(events)


def _check_repeats(events: list[dict[str, Any]]) -> None:
    lost = {event["Executor ID"] for event in events if event["Event"] == "SparkListenerExecutorRemoved"}
    assert lost
    succeeded: dict[tuple[int, int], list[str]] = {}
    repeated = Counter[int]()
    for event in events:
        if event["Event"] != "SparkListenerTaskEnd":
            continue
        task, info = (event["Stage ID"], event["Task Info"]["Index"]), event["Task Info"]
        before = succeeded.setdefault(task, [])
        if before:
            repeated[event["Stage ID"]] += 1
            assert set(before) <= lost, f"task {task} is computed again, though executor {before} has its outcome"
        if event["Task End Reason"]["Reason"] == "Success":
            before.append(info["Executor ID"])
    stages = {event["Stage ID"] for event in events if event["Event"] == "SparkListenerTaskEnd"}
    assert len(repeated) < len(stages), "not all is computed again"
    failed = [
        event
        for event in events
        if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] != "Success"
    ]
    assert failed, "the executor was lost in the middle of a task"
