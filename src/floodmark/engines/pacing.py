"""How far the micro-batches of a stream are apart, and how long one takes at most."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf

from floodmark.core.errors import ExecutionError
from floodmark.core.time import span
from floodmark.spec.assets.checkpoints import Checkpoints

Within = Callable[[], AbstractContextManager[None]]
"""() -> context in which a micro-batch is computed and committed."""
Overdue = Callable[[ExecutionError, str], None]
"""(error, stack of the thread that is late) -> None; called in a thread of its own."""


@dataclass(slots=True)
class Pace:
    """The earliest moment of the next micro-batch.

    Args:
        interval: least seconds from the start of a micro-batch to the start of the next.
        pause: least seconds from the end of a micro-batch to the start of the next.
        now: seconds of a clock that never goes back.
    """

    interval: float = 0.0
    pause: float = 0.0
    now: Callable[[], float] = time.monotonic
    _began: float = -inf
    _ended: float = -inf

    @property
    def left(self) -> float:
        """Seconds until the next micro-batch may start; 0 before the first one."""
        return max(0.0, self._began + self.interval - self.now(), self._ended + self.pause - self.now())

    def begin(self) -> None:
        """A micro-batch starts."""
        self._began = self.now()

    def end(self) -> None:
        """A micro-batch is committed."""
        self._ended = self.now()


def within(checkpoints: Checkpoints, operator: str, overdue: Overdue) -> Within:
    """The context of each micro-batch of a stream. It calls ``overdue`` if a micro-batch takes longer than its timeout; it ends nothing itself.

    Args:
        checkpoints: of the stream.
        operator: name of the operator.
        overdue: called with EXECUTION-091.
    """
    text = checkpoints.timeout
    if text is None:
        return nullcontext
    seconds = span(text, "Checkpoints") / 1000

    @contextmanager
    def timed() -> Iterator[None]:
        late = threading.get_ident()

        def tell() -> None:
            frame = sys._current_frames().get(late)  # noqa: SLF001 - the only way to another thread's stack
            overdue(_error(operator, text), "" if frame is None else "".join(traceback.format_stack(frame)))

        timer = threading.Timer(seconds, tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    return timed


def _error(operator: str, timeout: str) -> ExecutionError:
    fix = (
        "Nothing is lost or double: the next start reads the same rows again. If the micro-batch only needs more time, give it more, or fewer files: "
        f"Checkpoints(timeout=..., files=...). The log has where it was: floodmark logs {operator}"
    )
    where = f"operator '{operator}', micro-batch"
    return ExecutionError(where, f"a commit within {timeout}", "none", fix, code="EXECUTION-091")
