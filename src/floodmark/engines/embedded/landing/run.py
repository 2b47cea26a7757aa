"""Landing and replay of a quarantine on the embedded engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from floodmark.engines.embedded.landing.workers import EmbeddedWorkers
from floodmark.engines.landing import quarantine
from floodmark.engines.landing import run as landing
from floodmark.engines.landing.quarantine import Again, Replayed
from floodmark.engines.landing.run import How
from floodmark.engines.landing.session import LandingResult
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.source import Source

if TYPE_CHECKING:
    from floodmark.engines.embedded.sail.session import Sail


def land(sail: Callable[[], Sail], source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
    """Land the pending units of a source; as ``engines.landing.run.land``.

    Args:
        sail: called only if a predicate of the source is to be computed; other sources need no server.
        source: contract, connector, watermark strategy.
        lake: where the log is, on a local disk.
        how: the further arguments.
    """
    return landing.land(EmbeddedWorkers(sail), source, lake, **how)


def replay(sail: Callable[[], Sail], source: Source, lake: Lake, **how: Unpack[Again]) -> Replayed:
    """Land the quarantined rows that keep the contract now; as ``engines.landing.quarantine.replay``."""
    return quarantine.replay(EmbeddedWorkers(sail), source, lake, **how)
