"""How often a stream makes its state and rows durable: a micro-batch is a checkpoint, and its commit is the only one there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How far the micro-batches of a stream are apart, how much one of them reads, and how long one takes at most.

    Every micro-batch ends with a commit of its rows and its state, so these settings trade the delay of results against the cost of commits. They change no
    row: windows, timers and late rows depend on event time alone. A run until it has caught up, and one whose ``run_when`` is ``"data"`` or a cron
    expression, do not wait between micro-batches. Source of semantics: the interval, the pause and the timeout of checkpoints of Flink. There interval and
    pause divide a stream of records, here they divide commits of the inputs. There the stream continues without a checkpoint that takes too long, until
    more have failed than are tolerated; here a checkpoint is the commit of a micro-batch's rows, so the stream starts again with the same rows, and the
    tolerable number is the ``budget`` of its ``Restart``.

    Args:
        interval: time from the start of a micro-batch to the start of the next: ``"10 seconds"``. What lands meanwhile is one micro-batch. On the embedded engine it is
            the least such time. On Spark micro-batches start at multiples of the interval, counted from 1970 UTC, so that the second one may start
            earlier than an interval after the first; one that takes longer than the interval is followed at once. By default a
            micro-batch starts as soon as there is something to read, which the embedded engine looks for ten times a second (more often, if the interval is shorter), and
            Spark at each full second.
        pause: least time from the end of a micro-batch to the start of the next; by default none.
        files: most files that a micro-batch reads of each input, 1 or more; None: all there are.
        timeout: longest time of a micro-batch, from the moment at which it is known what it reads to its commit: ``"10 minutes"``; None: any. Only the end of
            a process ends what hangs in it. So the process of a stream whose micro-batch takes longer ends (EXECUTION-091), once other streams in the process
            have stopped at a boundary of theirs; these start again at once, and the stream itself as its ``Restart`` says, from then on in a process of its own.
            Leave room for the first micro-batch after a start, which takes several times as long as later ones, on Spark tens of seconds where the machine is busy.

    Raises:
        DefinitionError: DEFINITION-001, no duration; DEFINITION-097, a negative time, a timeout of 0 s, or fewer files than one.
    """

    interval: str | None = None
    pause: str = "0 seconds"
    files: int | None = None
    timeout: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no run could follow."""
        times = [span(text, "Checkpoints") for text in (self.interval, self.pause) if text is not None]
        endless = self.timeout is None or span(self.timeout, "Checkpoints") > 0
        if min(times) < 0 or (self.files is not None and self.files < 1) or not endless:
            fix = 'For example Checkpoints(interval="10 seconds", files=100, timeout="10 minutes").'
            got = f"interval={self.interval!r}, pause={self.pause!r}, files={self.files!r}, timeout={self.timeout!r}"
            raise DefinitionError("Checkpoints", "valid settings", got, fix, code="DEFINITION-097")

    @property
    def options(self) -> dict[str, Any]:
        """Interval, pause and files as options of ``run_unbounded`` of both engines."""
        interval = {} if self.interval is None else {"interval_seconds": span(self.interval, "Checkpoints") / 1000}
        return {**interval, "pause_seconds": span(self.pause, "Checkpoints") / 1000, "files_per_batch": self.files}
