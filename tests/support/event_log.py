"""What Spark's event log says of an application's tasks: which were repeated, which ran beside each other, and how long they would take on other numbers of cores."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTINGS = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Task:
    """An attempt at a task.

    Args:
        stage: its id.
        partition: of the stage's rows. The index of a task is no name of it: the tasks of a later attempt at a stage are those alone that lack an outcome.
        executor: id.
        began: ms since 1970.
        ended: ms since 1970.
        succeeded: whether it has an outcome.
    """

    stage: int
    partition: int
    executor: str
    began: int
    ended: int
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Application:
    """What its log has.

    Args:
        tasks: in the order in which they ended.
        lost: executors.
    """

    tasks: Sequence[Task]
    lost: frozenset[str]

    def check_repeats(self) -> None:
        """No task is computed again whose outcome an executor has that lives; and an executor was lost in the middle of one."""
        assert self.lost
        outcomes: dict[tuple[int, int], set[str]] = {}
        repeated = set[int]()
        for task in self.tasks:
            before = outcomes.setdefault((task.stage, task.partition), set())
            if before:
                repeated.add(task.stage)
                assert before <= self.lost, f"{task} is computed again, though executor {before} has its outcome"
            if task.succeeded:
                before.add(task.executor)
        assert len(repeated) < len({task.stage for task in self.tasks}), "not all is computed again"
        assert not all(task.succeeded for task in self.tasks), "an executor was lost in the middle of a task"

    def last(self, seconds: float) -> Application:
        """The tasks of the last seconds alone."""
        since = max(task.ended for task in self.tasks) - 1000 * seconds
        return Application([task for task in self.tasks if task.began >= since], self.lost)

    def beside(self) -> set[int]:
        """Stages of which two tasks ran at the same time on two executors."""
        by_stage: dict[int, list[Task]] = {}
        for task in self.tasks:
            by_stage.setdefault(task.stage, []).append(task)
        return {
            stage
            for stage, tasks in by_stage.items()
            for one in tasks
            for other in tasks
            if one.executor < other.executor and one.began < other.ended and other.began < one.ended
        }

    def on_paper(self, cores: int) -> float:
        """Seconds of all stages, one after the other, if their tasks had been dealt to so many cores, each to the first that is free."""
        total, by_stage = 0.0, dict[int, list[int]]()
        for task in self.tasks:
            by_stage.setdefault(task.stage, []).append(task.ended - task.began)
        for lengths in by_stage.values():
            free = [0] * cores
            for length in lengths:
                heapq.heappush(free, heapq.heappop(free) + length)
            total += max(free)
        return total / 1000


def applications(folder: Path) -> list[Application]:
    """Those whose logs are in a folder, in the order in which they began. The last line of one that was killed may be cut."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name.startswith("app-"))
    return [_read(file.read_text()) for file in files]


def _read(text: str) -> Application:
    events: list[dict[str, Any]] = [json.loads(line) for line in text[: text.rindex("\n")].splitlines()]
    lost = (event["Executor ID"] for event in events if event["Event"] == "SparkListenerExecutorRemoved")
    ended = (event for event in events if event["Event"] == "SparkListenerTaskEnd")
    return Application([_task(event) for event in ended], frozenset(lost))


def _task(event: dict[str, Any]) -> Task:
    info = event["Task Info"]
    return Task(
        event["Stage ID"],
        info["Partition ID"],
        info["Executor ID"],
        info["Launch Time"],
        info["Finish Time"],
        event["Task End Reason"]["Reason"] == "Success",
    )
