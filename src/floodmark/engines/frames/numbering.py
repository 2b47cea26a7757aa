"""How the ``_sequence`` of one commit is divided among the tasks that write it: a stretch for each, which no other one reaches into."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.errors import ExecutionError
from floodmark.spec.schema import BOUNDED, SEQUENCES, first_sequence

_BOUNDED_WIDTH = 1 << 40
"""Sequences of one task of a bounded run."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """The stretches of a commit.

    Args:
        base: where ``_sequence`` of the commit begins.
        width: sequences of one task.
        end: where those of the next commit begin.
    """

    base: int
    width: int
    end: int

    def first(self, task: int) -> int:
        """Where the sequences of a task begin.

        Raises:
            ExecutionError: EXECUTION-061, there are more tasks than stretches.
        """
        found = self.base + task * self.width
        self.check(task, found)
        return found

    def check(self, task: int, last: int) -> None:
        """Make sure that a sequence is one of a task's own.

        Raises:
            ExecutionError: EXECUTION-061, it belongs to the next task, or to the next commit.
        """
        if last >= min(self.base + (task + 1) * self.width, self.end):
            raise _too_many(f"task {task}", self.width, f"at least {last - self.base - task * self.width + 1:,}")


def of_batch(number: int, rows: int, wanted: int) -> tuple[Numbering, int]:
    """The numbering of a micro-batch, and into how many tasks its rows may be divided at most.

    Any one of the tasks may hold all of the rows, so there are fewer tasks the more rows there are.

    Args:
        number: of the micro-batch.
        rows: that the stateful step has emitted, retractions too.
        wanted: tasks.

    Raises:
        ExecutionError: EXECUTION-061, they are more than one micro-batch has sequences for.
    """
    if rows > SEQUENCES:
        raise _too_many(f"micro-batch {number}", SEQUENCES, f"{rows:,}")
    tasks = max(1, min(wanted, SEQUENCES // max(rows, 1)))
    base = first_sequence(number)
    return Numbering(base, SEQUENCES // tasks, base + SEQUENCES), tasks


def of_bounded_run() -> Numbering:
    """The numbering of a bounded run: behind those of all micro-batches, with room for every number of tasks that Spark runs."""
    return Numbering(BOUNDED, _BOUNDED_WIDTH, 2 * BOUNDED)


def _too_many(what: str, room: int, got: str) -> ExecutionError:
    fix = (
        "Nothing of it is committed. Let the stream take fewer rows at a time (floodmark run NAME --unbounded --files-per-batch N), "
        "or emit fewer: a coarser window, an aggregate."
    )
    return ExecutionError(f"results of {what}", f"at most {room:,} rows", f"{got} rows", fix, code="EXECUTION-061")
