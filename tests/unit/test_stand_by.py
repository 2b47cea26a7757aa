"""The supervisor of an `up` that was started beside another one takes over when that one ends, or was killed."""

from __future__ import annotations

from pathlib import Path

from scripted_waits import ScriptedWaits

from floodmark.control.processes.supervisor import LEASE, Supervisor
from floodmark.control.state.store import Store


def test_a_supervisor_that_stands_by_takes_over_when_the_lease_is_free(tmp_path: Path):
    store, holders = Store(f"sqlite:///{tmp_path / 'control.db'}"), list[str | None]()
    store.lease(LEASE, "a killed one", 3600)
    waiting = Supervisor(store=store, home=tmp_path, holder="the next one", say=lambda _: None)

    def look() -> None:
        holders.append(store.holder(LEASE))

    def expire() -> None:
        look()
        store.lease(LEASE, "a killed one", -1)

    waiting.stand_by(ScriptedWaits(look, expire, look))
    assert holders == ["a killed one", "a killed one", "the next one"]
    assert store.holder(LEASE) is None
