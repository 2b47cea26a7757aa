"""Ends runs that were killed together with Dagster: no process ends them, and they hold slots of the queue.

``python -m floodmark.orchestration.lost_runs HOME``: ``floodmark up`` runs this module in a process of its own, as Dagster takes seconds to import.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

_AT_WORK = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_ELSEWHERE = {"storage", "run_storage", "run_launcher"}
"""Settings of Dagster with which runs may be at work on other machines, or for other processes."""


def give_up(home: Path) -> list[str]:
    """Report every run that has lost its process as failed. Returns the jobs of these runs.

    Args:
        home: folder of Dagster's own state. No Dagster may run with this state. If its settings name other storage or another launcher of
            runs, nothing is done: Dagster's monitoring ends lost runs.
    """
    settings = yaml.safe_load((home / "dagster.yaml").read_text("utf-8")) or {}
    if _ELSEWHERE & settings.keys():
        return []
    jobs = list[str]()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for run in instance.get_runs(dg.RunsFilter(statuses=_AT_WORK)):
            instance.report_run_failed(run, "it was killed with Dagster; `floodmark up` has ended it. Launch it again.")
            jobs.append(run.job_name)
    return jobs


if __name__ == "__main__":
    sys.stdout.write("\n".join(give_up(Path(sys.argv[1]))))
