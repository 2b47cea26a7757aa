"""Signal handlers, which run in the main thread between any two of its steps."""

from __future__ import annotations

import _thread
from collections.abc import Callable


def defer(act: Callable[[], object]) -> None:
    """Act in another thread, as a signal handler may not take a lock: the main thread may hold it, and goes on only once the handler is done.

    ``Event.set`` takes such a lock, the one that ``Event.wait`` holds when it begins and when it ends, and so does what prints.
    ``threading.Thread`` would take one itself.

    Args:
        act: takes the locks, and waits for them if need be.
    """
    _thread.start_new_thread(act, ())
