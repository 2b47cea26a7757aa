"""Runs that were killed with all of Dagster: nobody is there to end them, and they hold places of the queue.

``python -m floodmark.orchestration.lost_runs HOME``: ``floodmark up`` asks for it in a process of its own, as Dagster takes seconds to import.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

_AT_WORK = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_ELSEWHERE = {"storage", "run_storage", "run_launcher"}
"""Settings by which runs may be at work on other machines, for other processes."""


def give_up(home: Path) -> list[str]:
    """Report as failed what no process can be at work on any more; the jobs of these runs.

    Args:
        home: Dagster's own state, of which no Dagster runs on this machine. Where its settings name other storage, or who else starts runs,
            nothing is done: Dagster's monitoring of runs ends them then.
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
