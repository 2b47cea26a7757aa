"""Division of the ``_sequence`` of one commit among the tasks that write the commit: each task has a stretch of its own."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.errors import ExecutionError
from floodmark.spec.values.schema import BOUNDED, SEQUENCES, first_sequence

_BOUNDED_WIDTH = 1 << 40
"""Sequences of one task of a bounded run."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """The stretches of a commit.

    Args:
        base: first ``_sequence`` of the commit.
        width: sequences of one task.
        end: first ``_sequence`` of the next commit.
    """

    base: int
    width: int
    end: int

    def first(self, task: int) -> int:
        """The first sequence of a task.

        Raises:
            ExecutionError: EXECUTION-061, there are more tasks than stretches.
        """
        start = self.base + task * self.width
        self.check(task, start)
        return start

    def check(self, task: int, last: int) -> None:
        """Make sure that a sequence is in a task's stretch.

        Raises:
            ExecutionError: EXECUTION-061, the sequence belongs to the next task, or to the next commit.
        """
        if last >= min(self.base + (task + 1) * self.width, self.end):
            raise _too_many(f"task {task}", self.width, f"at least {last - self.base - task * self.width + 1:,}")


def of_batch(number: int, rows: int, wanted: int) -> tuple[Numbering, int]:
    """The numbering of a micro-batch, and the most tasks into which its rows may be divided.

    Any task may get all of the rows, so more rows allow fewer tasks.

    Args:
        number: of the micro-batch.
        rows: number of rows that the stateful step has emitted, retractions too.
        wanted: number of tasks.

    Raises:
        ExecutionError: EXECUTION-061, the rows are more than the sequences of one micro-batch.
    """
    if rows > SEQUENCES:
        raise _too_many(f"micro-batch {number}", SEQUENCES, f"{rows:,}")
    tasks = max(1, min(wanted, SEQUENCES // max(rows, 1)))
    base = first_sequence(number)
    return Numbering(base, SEQUENCES // tasks, base + SEQUENCES), tasks


def of_bounded_run() -> Numbering:
    """The numbering of a bounded run: after the sequences of all micro-batches, for any number of tasks that Spark runs."""
    return Numbering(BOUNDED, _BOUNDED_WIDTH, 2 * BOUNDED)


def _too_many(what: str, room: int, got: str) -> ExecutionError:
    fix = (
        "Nothing of it is committed. Let the stream take fewer rows at a time (floodmark run NAME --unbounded --files-per-batch N), "
        "or emit fewer: a coarser window, an aggregate."
    )
    return ExecutionError(f"results of {what}", f"at most {room:,} rows", f"{got} rows", fix, code="EXECUTION-061")
