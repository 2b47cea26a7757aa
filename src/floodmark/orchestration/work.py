"""Long work inside a Dagster run: in a thread of its own, so that terminating the run reaches it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

import dagster as dg

from floodmark.core import machine
from floodmark.core.errors import FloodmarkError
from floodmark.orchestration.advice import advice

Result = TypeVar("Result")

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 60


def interruptible(work: Callable[[], Result], cancel: Callable[[], None]) -> Result:
    """Do the work; when the run is terminated, cancel it and wait until it has stopped.

    Dagster interrupts the main thread. Were that inside a call to Spark, the interrupt would break the connection and the next
    call would wait for ever; here the main thread only waits.

    Args:
        work: runs in another thread.
        cancel: makes the work end soon; called again and again until it has.
    """
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is asked for
            done.set_exception(error)

    thread = threading.Thread(target=run, name="floodmark-work", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
    except BaseException:  # Dagster's interruption and Ctrl-C are no Exceptions
        for _ in range(_PATIENCE_SECONDS):
            cancel()
            thread.join(1)
            if not thread.is_alive():
                break
        raise
    return done.result()


@contextmanager
def failing(operator: str = "") -> Iterator[None]:
    """Floodmark's errors, and what the machine refuses, as a failed step that says what to do, without a stack; such a step is not tried again by itself.

    Args:
        operator: the step is about, for advice that fits Dagster.
    """
    try:
        yield
    except (FloodmarkError, OSError) as error:
        refusal = error if isinstance(error, FloodmarkError) else machine.refused(error, f"step '{operator}'")
        if refusal is None:
            raise
        fix = advice(refusal, operator)
        text = str(FloodmarkError(refusal.where, refusal.expected, refusal.got, fix, code=refusal.code))
        raise dg.Failure(text, metadata={"code": refusal.code, "what to do": fix}, allow_retries=False) from None
