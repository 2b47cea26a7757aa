"""What a process and all that it starts use, seen from outside ten times a second."""

from __future__ import annotations

import threading
import time

import psutil

_LOOK_SECONDS = 0.1


class Watch:
    """Peak memory and processor seconds of a process tree.

    Args:
        pid: of the process, whose end ends the watch.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._peak, self._cpu = pid, 0, dict[int, float]()
        self._watching = threading.Thread(target=self._look, daemon=True)
        self._watching.start()

    def end(self) -> Watch:
        """Wait until the process has ended."""
        self._watching.join()
        return self

    @property
    def peak_memory_mb(self) -> float:
        """Most memory of all processes at once."""
        return self._peak / 1e6

    @property
    def cpu_seconds(self) -> float:
        """Of all processes that were there long enough to be seen."""
        return sum(self._cpu.values())

    def _look(self) -> None:
        try:
            root = psutil.Process(self._pid)
            while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
                total = 0
                for one in (root, *root.children(recursive=True)):
                    try:
                        total += one.memory_info().rss
                        self._cpu[one.pid] = sum(one.cpu_times()[:2])
                    except psutil.NoSuchProcess:
                        continue
                self._peak = max(self._peak, total)
                time.sleep(_LOOK_SECONDS)
        except psutil.NoSuchProcess:
            return
