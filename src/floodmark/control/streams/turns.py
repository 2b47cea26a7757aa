"""Turns: leases that admit one action at a time on a stream, across processes and machines."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import FloodmarkError, LifecycleError

LEASE_SECONDS = 15.0
"""Time after which the turn of a killed action expires."""
LOST = "LIFECYCLE-055"
"""Code of the error that another process has taken an action over."""
_POLL_SECONDS = 0.2


@contextmanager
def taking_turn(fleet: Fleet, name: str, wait_seconds: float = 0.0) -> Iterator[Callable[[], None]]:
    """Hold the turn of a stream. The value is a function that checks that this process still holds the turn.

    Args:
        fleet: the fleet of the stream.
        name: name of the operator.
        wait_seconds: longest wait for another action; 0 by default.

    Raises:
        LifecycleError: LIFECYCLE-054 another action is running; from the function, LIFECYCLE-055 another process has taken over.
    """
    holder, lease = f"{socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex[:6]}", fleet.stream(name).action
    until = time.monotonic() + wait_seconds
    while fleet.store.lease(lease, holder, LEASE_SECONDS) is None:
        if time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            continue
        fix = f"Wait until it is done. One that was killed is taken over {LEASE_SECONDS:.0f} s later."
        got = f"one of {fleet.store.holder(lease)}"
        raise LifecycleError(f"operator '{name}'", "no other action at work", got, fix, code="LIFECYCLE-054")
    over = threading.Event()

    def renew() -> None:
        while not over.wait(LEASE_SECONDS / 4):
            with suppress(FloodmarkError):  # the store is unreachable; the next check reports that
                fleet.store.lease(lease, holder, LEASE_SECONDS)

    def still() -> None:
        if fleet.store.lease(lease, holder, LEASE_SECONDS) is None:
            fix = f"See what the other one does: floodmark status. Then ask again for '{name}'."
            got = f"{fleet.store.holder(lease)}, who took over when nothing was heard of it"
            raise LifecycleError(f"action on '{name}'", "its turn", got, fix, code="LIFECYCLE-055")

    thread = threading.Thread(target=renew, name="floodmark-turn", daemon=True)
    thread.start()
    try:
        yield still
    finally:
        over.set()
        thread.join()
        with suppress(FloodmarkError):
            fleet.store.release(lease, holder)
