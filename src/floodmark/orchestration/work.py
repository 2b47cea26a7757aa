"""Long work inside a Dagster run, in a thread of its own, so that terminating the run can cancel the work."""

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
    """Run ``work`` in a thread. If the Dagster run is terminated, cancel the work and wait until the thread has ended, for at most a minute.

    Dagster interrupts the main thread. An interrupt inside a call to Spark would break the connection, and the next call would wait for
    ever; here the main thread only waits.

    Args:
        work: () -> the result; called in another thread.
        cancel: makes the work end soon; called every second until the thread has ended.

    Raises:
        Exception: the error of the work, or Dagster's interruption.
    """
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - ``done.result`` raises the error again
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


_TAG = "floodmark/operator"


def tagged(context: dg.OpExecutionContext | dg.AssetExecutionContext, operator: str) -> str:
    """Tag a run with the operator that it acts on, for the list of runs: after those of its earlier steps. Returns the operator."""
    run = context.instance.get_run_by_id(context.run.run_id)
    earlier = run.tags.get(_TAG, "") if run is not None else ""
    names = [*filter(None, earlier.split(", ")), *operator.split(", ")]
    context.instance.add_run_tags(context.run.run_id, {_TAG: ", ".join(dict.fromkeys(names))})
    return operator


@contextmanager
def failing(operator: str = "") -> Iterator[None]:
    """Convert floodmark's errors and refusals of the machine to a failed step with the next step to take, without a stack trace or retries.

    Args:
        operator: the operator of the step, for advice that fits Dagster.

    Raises:
        dg.Failure: the failed step; its text is the error with Dagster's advice.
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
