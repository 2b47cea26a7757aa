"""Patience: whether a request that is refused or not answered may wait, as the caller of the caller decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PATIENCE: ContextVar[Callable[[str, float], bool] | None] = ContextVar("patience", default=None)


@contextmanager
def patient(wait: Callable[[str, float], bool]) -> Iterator[None]:
    """Context manager in which a request waits where what it asks is away for a while, such as credentials that are just being renewed.

    Args:
        wait: (message, seconds) -> True once the time has passed; False to give up.
    """
    token = _PATIENCE.set(wait)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def waits(message: str, seconds: float) -> bool:
    """Wait for some seconds before a request is repeated. False if it is to fail: outside of ``patient``, or at a stop."""
    wait = _PATIENCE.get()
    return wait is not None and wait(message, seconds)


def is_patient() -> bool:
    """Whether the caller goes on for as long as it takes, and so comes again by itself."""
    return _PATIENCE.get() is not None
