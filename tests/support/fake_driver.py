"""A driver without a stream, for tests of the supervisor: python fake_driver.py URL DRIVER runs|crashes|writes|VERSION, which crashes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress

from floodmark.control.state.store import Store
from floodmark.control.state.tables import DRIVERS
from floodmark.core.errors import SetupError
from floodmark.core.handlers import defer


def main(url: str, number: str, what: str) -> int:
    """Run until SIGTERM, or crash at once."""
    store, stop = Store(url), threading.Event()
    if what in {"crashes", store.driver(int(number)).version}:
        store.end(int(number), "crashed", "EXECUTION-004 something is missing")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: defer(stop.set))
    store.update(int(number), state="running", batch=7, heartbeat_at=time.time())
    if what == "writes" and store.driver(int(number)).epoch == 0:
        with store.transaction() as connection:
            connection.execute(DRIVERS.update().where(DRIVERS.c.id == int(number)).values(batch=8))
            os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(6000):
        if stop.wait(0.1):
            break
        with suppress(SetupError):  # the store is away: a stream goes on
            store.update(int(number), heartbeat_at=time.time())
    store.end(int(number), "stopped", "stopped at a micro-batch boundary")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
