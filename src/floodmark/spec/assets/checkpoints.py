"""How often a stream makes its state and rows durable: a micro-batch is a checkpoint, and its commit is the only one there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How far the micro-batches of a stream are apart, and how much one of them reads.

    Every micro-batch ends with a commit of its rows and its state, so these settings trade the delay of results against the cost of commits. They change no
    row: windows, timers and late rows depend on event time alone. A run until it has caught up, and one whose ``run_when`` is ``"data"`` or a cron
    expression, do not wait. Source of semantics: the interval and the pause between checkpoints of Flink; there the two divide a stream of records, here
    they divide commits of the inputs.

    Args:
        interval: least time from the start of a micro-batch to the start of the next: ``"10 seconds"``. What lands meanwhile is one micro-batch. By default a
            micro-batch starts as soon as there is something to read, which the embedded engine looks for ten times a second (more often, if the interval is shorter), and on
            Spark a second after the start of the last one.
        pause: least time from the end of a micro-batch to the start of the next; by default none.
        files: most files that a micro-batch reads of each input, 1 or more; None: all there are.

    Raises:
        DefinitionError: DEFINITION-001, no duration; DEFINITION-097, a negative time, or fewer files than one.
    """

    interval: str | None = None
    pause: str = "0 seconds"
    files: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no run could follow."""
        times = [span(text, "Checkpoints") for text in (self.interval, self.pause) if text is not None]
        if min(times) < 0 or (self.files is not None and self.files < 1):
            fix = 'For example Checkpoints(interval="10 seconds", files=100).'
            got = f"interval={self.interval!r}, pause={self.pause!r}, files={self.files!r}"
            raise DefinitionError("Checkpoints", "valid settings", got, fix, code="DEFINITION-097")

    @property
    def options(self) -> dict[str, Any]:
        """The same as options of ``run_unbounded`` of both engines."""
        interval = {} if self.interval is None else {"interval_seconds": span(self.interval, "Checkpoints") / 1000}
        return {**interval, "pause_seconds": span(self.pause, "Checkpoints") / 1000, "files_per_batch": self.files}
