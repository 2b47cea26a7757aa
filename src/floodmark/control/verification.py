"""Verification of a new version of a stream: whether it runs, gets on, and writes what is expected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from floodmark.control.fleet import Fleet
from floodmark.core.time import span
from floodmark.lake import cuts, history
from floodmark.lake.commits import MicroBatch
from floodmark.lake.outputs import input_path
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.timeline import Timeline, inputs_at
from floodmark.lifecycle.requests import PromotionRequest, UpgradeRequest
from floodmark.lifecycle.savepoint import Manifest
from floodmark.spec.asset import PATIENCE, SOAK

_POLL_SECONDS = 0.2

Check = Callable[[Savepoint], Iterable[str]]
"""Looks at what was written since a savepoint; says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a new version has to do before its upgrade counts.

    Args:
        patience: s until it has committed a micro-batch, or has read everything there is.
        soak: s it must have run without a crash.
        checks: further ones, of what it has written.
        set_aside: whether it may begin to set rows aside that its predecessor did not.
        cancelled: when set, the new version is taken back.
    """

    patience: float = span(PATIENCE) / 1000
    soak: float = span(SOAK) / 1000
    checks: tuple[Check, ...] = ()
    set_aside: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)

    @staticmethod
    def of(request: UpgradeRequest | PromotionRequest, **extra: Any) -> Verification:
        """As it is asked for.

        Args:
            request: any.
            extra: ``checks``, ``cancelled``.
        """
        return Verification(patience=request.patience, soak=request.soak, set_aside=request.set_aside, **extra)


def verify(
    fleet: Fleet,
    name: str,
    version: str,
    savepoint: Savepoint,
    wanted: Verification,
    turn: Callable[[], None],
) -> str | None:
    """Why a new version does not count, by what it does since it was deployed; None when it does.

    Args:
        fleet: it runs in.
        name: of the operator.
        version: the new one.
        savepoint: made before it.
        wanted: what it has to do.
        turn: raises when somebody else has taken over.
    """
    until, begun = time.monotonic() + wanted.patience, None
    since = fleet.deployments([name])[name].changed_at
    while True:
        turn()
        if wanted.cancelled.is_set():
            return "it was cancelled"
        drivers = [
            d for d in fleet.store.drivers(fleet.stream(name)) if d.started_at >= since - 1 and d.version == version
        ]
        for driver in drivers:
            if driver.state == "crashed":
                return f"it crashed: {driver.reason}"
        if drivers and drivers[0].state == "running":
            begun = begun or time.monotonic()
            batch = drivers[0].batch
            further = (batch is not None and batch > savepoint.manifest.batch) or _caught_up(fleet, name)
            if further and time.monotonic() - begun >= wanted.soak:
                break
        if time.monotonic() > until:
            return f"no micro-batch of it within {wanted.patience:.0f} s"
        time.sleep(_POLL_SECONDS)
    if not wanted.set_aside and (aside := _begins_to_set_aside(fleet, name, version, savepoint.manifest)):
        return aside
    return next((told for look in wanted.checks for told in look(savepoint)), None)


def _caught_up(fleet: Fleet, name: str) -> bool:
    """Whether a stream has read all rows that its inputs have."""
    timeline = Timeline.current(fleet.lake, name)
    read = inputs_at(timeline, timeline.checkpoint.last_committed())
    return all(cuts.unchanged(input_path(fleet.lake, one.table), one.version) for one in read.values())


def _begins_to_set_aside(fleet: Fleet, name: str, version: str, manifest: Manifest) -> str | None:
    """What a version sets aside though the one before did not."""
    table, deployed = f"{name}__quarantine", Timeline.current(fleet.lake, name).identity.deployed()
    if deployed is None or table not in deployed.tables:
        return None
    written = [batch for _, batch in history.standing_of(fleet.lake.output(table), MicroBatch)]
    now = sum(b.rows for b in written if b.version == version and b.batch > manifest.batch)
    before = sum(b.rows for b in written if b.version == manifest.version)
    if now and not before:
        return f"it sets rows aside, which {manifest.version} did not: {now:,} in '{table}'"
    return None
