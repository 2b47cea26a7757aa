"""Calls of the user's function about rows: several at a time, each with a timeout and repeated where it fails.

Coroutines run on one event loop of the process, in a thread of its own; a plain function runs in a thread per call. The caller's thread
waits for answers and watches that the loop moves: a coroutine that blocks the loop could be ended by nothing else.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from pydantic import BaseModel

from floodmark.core.errors import UserCodeError, described
from floodmark.core.time import describe_span
from floodmark.spec.graph.calls import takes_request
from floodmark.spec.graph.steps import Call
from floodmark.spec.values.functions import Request

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 10.0
_PORTION_SECONDS = 1.0
"""Longest time for which answers wait to be recorded while others are being asked for."""
_PORTION = 4096
"""Most answers that are recorded together."""
_BEAT_SECONDS = 1.0
"""Longest wait of the caller's thread between two looks at the loop."""
_PATIENCE_SECONDS = 10.0
"""Time beyond the timeout of a call for which a loop that does not move may have been held back by a busy machine."""


UNANSWERED = "USER-009"
"""Code of the error that ends a run because a call has failed for good."""


@dataclass(frozen=True, slots=True)
class Question:
    """A row to ask about.

    Args:
        key: of the answer.
        row: what the function receives.
        timestamp: as of ``Request``.
    """

    key: bytes
    row: Mapping[str, Any]
    timestamp: int


Reply = list[dict[str, Any]] | UserCodeError
"""The rows of an answer; or why there is none."""


def asked(step: Call, questions: Sequence[Question]) -> Iterator[list[tuple[Question, Reply]]]:
    """The replies to all questions, in portions as they come in. With ``on_error="stop"`` no call begins after one that has failed for good.

    Args:
        step: whose function is called.
        questions: in the order of their rows.

    Raises:
        UserCodeError: USER-010 a coroutine blocks the event loop, USER-011 threads of a plain function do not return.
    """
    if not questions:
        return
    work = _Work(step)
    loop = _loop(os.getpid())
    running = asyncio.run_coroutine_threadsafe(work.run(questions), loop)
    try:
        left, portion, since = True, list[tuple[Question, Reply]](), time.monotonic()
        while left:
            reply = _next(work, loop)
            if reply is None:
                left = False
            elif isinstance(reply, tuple):
                portion.append(reply)
            late = time.monotonic() - since > _PORTION_SECONDS
            if portion and (not left or late or len(portion) >= _PORTION):
                yield portion
                portion, since = [], time.monotonic()
        running.result()
    finally:
        running.cancel()


def _next(work: _Work, loop: asyncio.AbstractEventLoop) -> tuple[Question, Reply] | str | None:
    """The next reply; None after the last one; "" if none has come in for a while and the loop moves.

    Raises:
        UserCodeError: USER-010, the loop does not move.
    """
    try:
        return work.replies.get(timeout=min(_BEAT_SECONDS, _PORTION_SECONDS))
    except queue.Empty:
        beat = threading.Event()
        loop.call_soon_threadsafe(beat.set)
        step = work.step
        if not beat.wait(step.timeout / 1000 + _PATIENCE_SECONDS):
            _loop.cache_clear()  # this one is lost with its thread
            got = f"one that has held the event loop for longer than its timeout of {describe_span(step.timeout)}"
            fix = "Await what it waits for, such as asyncio.sleep and an asynchronous client; or make it a plain def, which runs in a thread."
            raise UserCodeError(step.name, "a coroutine that awaits", got, fix, code="USER-010") from None
    return ""


@dataclass(slots=True)
class _Work:
    """The calls of one step about some questions. All but ``replies`` belongs to the loop."""

    step: Call
    replies: queue.SimpleQueue[tuple[Question, Reply] | None] = field(default_factory=queue.SimpleQueue)
    failed: bool = False
    hanging: set[threading.Thread] = field(default_factory=set)
    abandoned: set[asyncio.Future[Any]] = field(default_factory=set)

    async def run(self, questions: Sequence[Question]) -> None:
        """Ask all questions."""
        try:
            await (self._in_order(questions) if self.step.ordered else self._as_they_end(questions))
        finally:
            self.replies.put(None)

    async def _in_order(self, questions: Sequence[Question]) -> None:
        """A call begins once the question ``concurrency`` before it is answered."""
        waiting: deque[asyncio.Task[None]] = deque()
        try:
            for question in questions:
                if len(waiting) >= self.step.concurrency:
                    await waiting.popleft()
                if self._stops():
                    break
                waiting.append(asyncio.create_task(self._ask(question)))
        finally:
            for error in await asyncio.gather(*waiting, return_exceptions=True):
                if error is not None:
                    raise error

    async def _as_they_end(self, questions: Sequence[Question]) -> None:
        """A call begins whenever another one has ended."""
        open_questions = iter(questions)

        async def worker() -> None:
            for question in open_questions:
                if self._stops():
                    break
                await self._ask(question)

        await asyncio.gather(*(worker() for _ in range(min(self.step.concurrency, len(questions)))))

    def _stops(self) -> bool:
        return self.failed and self.step.on_error == "stop"

    async def _ask(self, question: Question) -> None:
        """Call the function until it answers or has no attempt left."""
        pause, error = _FIRST_PAUSE_SECONDS, ""
        for attempt in range(self.step.retries + 1):
            if attempt:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            request = Request(key=question.key.hex(), attempt=attempt, timestamp=question.timestamp)
            try:
                self.replies.put((question, await self._answer(question, request)))
            except UserCodeError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises
                error = described(raised)
            else:
                return
        self.failed = True
        self.replies.put((question, failed(self.step, error, question.row)))

    async def _answer(self, question: Question, request: Request) -> list[dict[str, Any]]:
        function, row = self.step.function, copy.deepcopy(dict(question.row))
        arguments = (row, request) if takes_request(function) else (row,)
        if _is_coroutine(function):
            task: asyncio.Future[Any] = asyncio.ensure_future(_guarded(cast("Awaitable[Any]", function(*arguments))))
        else:
            task = self._in_thread(function, arguments)
        done, _ = await asyncio.wait({task}, timeout=self.step.timeout / 1000)
        if not done:  # not waited for: a coroutine may refuse to be cancelled
            self.abandoned.add(task)
            task.add_done_callback(self._forget)
            task.cancel()
            message = f"no answer within {describe_span(self.step.timeout)}"
            raise TimeoutError(message)
        if task.cancelled():
            message = "it was cancelled, by code of its own"
            raise RuntimeError(message)
        return rows_of(task.result())

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self.abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # asked for, so that asyncio does not report it

    def _in_thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        """The result of a plain function, in a thread of its own, which ends with the process if the function never returns.

        Raises:
            UserCodeError: USER-011, as many threads hang as there may be calls.
        """
        loop, result = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        self.hanging = {thread for thread in self.hanging if thread.is_alive()}
        if len(self.hanging) >= 2 * self.step.concurrency:
            got = f"{len(self.hanging)} calls that do not return"
            fix = "Set a timeout in the client that it uses, shorter than timeout=..., so that a thread ends with its call."
            raise UserCodeError(self.step.name, "a function that returns", got, fix, code="USER-011")

        def settle(value: Any, error: BaseException | None) -> None:
            if result.done():
                return
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        def work() -> None:
            try:
                value, error = rows_of(function(*arguments)), None
            except BaseException as raised:  # noqa: BLE001 - handed to the waiting coroutine
                value, error = None, _failure(raised)
            loop.call_soon_threadsafe(settle, value, error)

        thread = threading.Thread(target=work, daemon=True, name=self.step.name)
        self.hanging.add(thread)
        thread.start()
        return result


async def _guarded(answer: Awaitable[Any]) -> Any:
    """An answer; what would end the loop or the process fails the call."""
    try:
        return await answer
    except (SystemExit, KeyboardInterrupt) as raised:
        raise _failure(raised) from raised


def _failure(raised: BaseException) -> Exception:
    """What a future can hold."""
    holds = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
    return raised if holds else RuntimeError(described(raised))  # type: ignore[return-value]  # an Exception


def failed(step: Call, error: str, row: Mapping[str, Any]) -> UserCodeError:
    """USER-009: no attempt has brought an answer.

    Args:
        step: that asks.
        error: of the last attempt.
        row: asked about.
    """
    tries = f"{step.retries + 1} attempts" if step.retries else "1 attempt"
    fix = f'The row was {dict(row)}. Mend the system and run again; or write on_error="quarantine" to set such rows aside.'
    return UserCodeError(step.name, f"an answer within {tries}", error, fix, code="USER-009")


def rows_of(answer: object) -> list[dict[str, Any]]:
    """(what a function has returned) -> its rows.

    Raises:
        TypeError: neither a row nor None nor rows.
    """
    if answer is None:
        return []
    if isinstance(answer, BaseModel):
        return [answer.model_dump()]
    if isinstance(answer, Mapping):
        return [dict(answer)]
    if inspect.isawaitable(answer) or isinstance(answer, (str, bytes)) or not hasattr(answer, "__iter__"):
        if inspect.iscoroutine(answer):
            answer.close()
        message = f"it returned a {type(answer).__name__}; expected a row, None or a list of rows"
        raise TypeError(message)
    return [row for each in answer for row in rows_of(each)]


def _is_coroutine(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - looked at, not called


@cache
def _loop(_process: int) -> asyncio.AbstractEventLoop:
    """The event loop of this process: one for all calls, so that a client that a module has opened can be used again."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="calls").start()
    return loop
