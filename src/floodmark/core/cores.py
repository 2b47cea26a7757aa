"""The cores of the machine that this process, and the processes it starts, may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def available() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def limited(cores: int | None) -> Iterator[None]:
    """Use no more than a number of cores, where the system can do that (Linux); processes that are started meanwhile use these cores for good.

    Args:
        cores: number of cores; None for no limit.
    """
    if cores is None or not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-cores:])  # most programs begin with the first core
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
