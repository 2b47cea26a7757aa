"""The embedded engine of a test process: it also lands what tests on Spark read, as both engines land the same."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

from floodmark.control.processes.engine import OnEmbedded
from floodmark.spec.workspace import Settings


@cache
def embedded() -> OnEmbedded:
    """It starts a server when it is needed, which ends with this process."""
    return OnEmbedded(Settings(memory=300), lambda _: nullcontext())
