"""Verification of a new version of a stream: the version runs, makes progress, and writes expected rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from floodmark.control.streams.fleet import Fleet
from floodmark.core.time import span
from floodmark.lake.restore import cuts
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.results.verdicts import HELD
from floodmark.lake.stream.timeline import Timeline, inputs_at
from floodmark.lake.table import history
from floodmark.lake.table.commits import MicroBatch
from floodmark.lake.table.outputs import input_path
from floodmark.lifecycle.requests import PromotionRequest, UpgradeRequest
from floodmark.lifecycle.savepoint import Manifest
from floodmark.spec.assets.asset import PATIENCE, SOAK

_POLL_SECONDS = 0.2

Check = Callable[[Savepoint], Iterable[str]]
"""Savepoint -> faults of the rows written since, one text each; none if the check passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The conditions that a new version must meet for its upgrade to be kept.

    Args:
        patience: longest time, s, until the version has committed a micro-batch or read all input.
        soak: time, s, that the version must run without a crash.
        checks: further checks of the rows it has written.
        set_aside: True if the version may quarantine rows although its predecessor did not.
        cancelled: when set, the new version is rolled back.
    """

    patience: float = span(PATIENCE) / 1000
    soak: float = span(SOAK) / 1000
    checks: tuple[Check, ...] = ()
    set_aside: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)

    @staticmethod
    def of(request: UpgradeRequest | PromotionRequest, **extra: Any) -> Verification:
        """The verification that a request asks for.

        Args:
            request: an upgrade or promotion.
            extra: ``checks`` and ``cancelled``.
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
    """Wait until a deployed version meets its conditions. Returns the reason why it fails, or None if it passes.

    Args:
        fleet: the fleet of the stream.
        name: name of the operator.
        version: the new version.
        savepoint: the savepoint made before the version started.
        wanted: the conditions.
        turn: raises if another process has taken the turn over.
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
        if drivers and (drivers[0].state == "running" or drivers[0].read_to is not None):
            begun = begun or time.monotonic()
            batch = drivers[0].batch
            held = (drivers[0].reason or "").startswith(HELD)  # by a strict gate: there is nothing that it may read
            further = (batch is not None and batch > savepoint.manifest.batch) or held or _caught_up(fleet, name)
            if further and time.monotonic() - begun >= wanted.soak:
                break
        if time.monotonic() > until:
            return f"no micro-batch of it within {wanted.patience:.0f} s"
        time.sleep(_POLL_SECONDS)
    if not wanted.set_aside and (aside := _begins_to_set_aside(fleet, name, version, savepoint.manifest)):
        return aside
    return next((told for look in wanted.checks for told in look(savepoint)), None)


def _caught_up(fleet: Fleet, name: str) -> bool:
    """True if a stream has read all rows of its inputs."""
    timeline = Timeline.current(fleet.lake, name)
    read = inputs_at(timeline, timeline.checkpoint.last_committed())
    return all(cuts.unchanged(input_path(fleet.lake, one.table), one.version) for one in read.values())


def _begins_to_set_aside(fleet: Fleet, name: str, version: str, manifest: Manifest) -> str | None:
    """The reason why a version fails if it quarantines rows and its predecessor did not; else None."""
    table, deployed = f"{name}__quarantine", Timeline.current(fleet.lake, name).identity.deployed()
    if deployed is None or table not in deployed.tables:
        return None
    written = [batch for _, batch in history.standing_of(fleet.lake.output(table), MicroBatch)]
    now = sum(b.rows for b in written if b.version == version and b.batch > manifest.batch)
    before = sum(b.rows for b in written if b.version == manifest.version)
    if now and not before:
        return f"it sets rows aside, which {manifest.version} did not: {now:,} in '{table}'"
    return None
