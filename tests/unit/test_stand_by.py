"""The supervisor of an `up` that was started beside another one takes over when that one ends, or was killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from floodmark.control.processes.supervisor import LEASE, Supervisor
from floodmark.control.state.store import Store


def test_a_supervisor_that_stands_by_takes_over_when_the_lease_is_free(tmp_path: Path):
    store, stop = Store(f"sqlite:///{tmp_path / 'control.db'}"), threading.Event()
    store.lease(LEASE, "a killed one", 5.0)
    waiting = Supervisor(store=store, home=tmp_path, holder="the next one", say=lambda _: None)
    thread = threading.Thread(target=waiting.stand_by, args=(stop,))
    thread.start()
    try:
        assert store.holder(LEASE) == "a killed one"
        until = time.monotonic() + 300
        while store.holder(LEASE) != "the next one" and time.monotonic() < until:
            time.sleep(0.1)
        assert store.holder(LEASE) == "the next one"
    finally:
        stop.set()
        thread.join(60)
    assert store.holder(LEASE) is None
