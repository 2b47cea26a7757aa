"""Work in a thread beside a test. What the work fails with is raised where the test looks or waits: a thread that dies alone would leave the test waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_background(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
    """Work in a thread of its own, which does not outlive the tests; ``result`` waits for its end and raises its failure."""
    ended = Future[T]()

    def run() -> None:
        try:
            ended.set_result(work(*arguments, **named))
        except BaseException as error:  # noqa: BLE001 - raised by ``result``
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


def check(ended: Future[object]) -> bool:
    """Raise the failure of work that has failed; returns whether the work goes on."""
    if ended.done():
        ended.result()
    return not ended.done()
