"""The exception tree. Every message states where, the expected and the actual condition, and the next step.

FloodmarkError
├── DefinitionError      an operator, contract or source is written wrongly; raised when it is defined
├── PlanError            the deployed and the defined version do not fit together
├── CapabilityError      a valid definition that this engine or release cannot run
├── StateError           state or a checkpoint does not belong to the operator that reads it
├── ConnectorError       a source's input, or a delivery's sink, is missing, broken or has changed
├── ExecutionError       a run failed
├── UserCodeError        a function of the user's raised an exception, which stays the cause
├── LifecycleError       two runs at once, a reversed interval, nothing to stop
└── SetupError           the machine lacks something (Java, Python, jars)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_LONGEST = 2000
"""Longest message of a user's exception that an error includes, characters."""


class FloodmarkError(Exception):
    """An error for a person to act on.

    Args:
        where: the thing at fault, as the user names it: ``operator 'x', step 'filter'``.
        expected: the condition that was required.
        got: the actual condition.
        fix: the user's next step; a command if possible.
        code: stable identifier, documented in ``docs/errors.md``.
    """

    def __init__(self, where: str, expected: str, got: str, fix: str, *, code: str) -> None:
        self.where, self.expected, self.got, self.fix, self.code = where, expected, got, fix, code
        shown = got[:-1] if got.endswith(".") and not got.endswith("..") else got
        super().__init__(f"{code} {where}: expected {expected}, got {shown}. {fix}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.where, self.expected, self.got, self.fix, self.code)

    def as_json(self) -> dict[str, str]:
        """{name: text} of code, where, expected, got and fix. For ``--json``."""
        return {k: getattr(self, k) for k in ("code", "where", "expected", "got", "fix")}


def _rebuild(kind: type[FloodmarkError], where: str, expected: str, got: str, fix: str, code: str) -> FloodmarkError:
    return kind(where, expected, got, fix, code=code)


class DefinitionError(FloodmarkError):
    """An operator, contract or source is written wrongly."""


class PlanError(FloodmarkError):
    """Deployed and defined versions do not fit together."""


class CapabilityError(FloodmarkError):
    """A valid definition that this engine or release cannot run."""


class StateError(FloodmarkError):
    """State or a checkpoint does not belong to the operator that reads it."""


class ConnectorError(FloodmarkError):
    """A source's input, or a delivery's sink, is missing, broken or has changed."""


class ExecutionError(FloodmarkError):
    """A run failed."""


class UserCodeError(FloodmarkError):
    """A function of the user's raised an exception, which is the cause of this error."""

    def inside(self, where: str) -> UserCodeError:
        """The same error with an enclosing ``where`` before its own."""
        enclosing = UserCodeError(f"{where}, {self.where}", self.expected, self.got, self.fix, code=self.code)
        enclosing.__cause__ = self.__cause__
        return enclosing


class LifecycleError(FloodmarkError):
    """The action does not fit the moment: two runs at once, a reversed interval."""


class SetupError(FloodmarkError):
    """The machine lacks something floodmark needs."""


def closest(name: str, known: Iterable[str]) -> str:
    """``Did you mean 'x'? `` for the known name closest to ``name``; empty if none is close."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'? " if near else ""


@contextmanager
def user_code_boundary(
    where: str, fix: str = "See the traceback above for the line in your function."
) -> Iterator[None]:
    """A context for calls of the user's function.

    Args:
        where: the function and its step, for the error.
        fix: the user's next step.

    Raises:
        UserCodeError: USER-001, the function raised an exception, which is the cause; or the function's own UserCodeError, unchanged.
    """
    try:
        yield
    except UserCodeError:
        raise
    except Exception as error:
        raise user_error(error, where, fix) from error


def user_error(error: Exception, where: str, fix: str) -> UserCodeError:
    """(exception of the user's code, where, fix) -> the USER-001 error that reports the exception."""
    return UserCodeError(where, "a result", described(error), fix, code="USER-001")


def described(error: BaseException) -> str:
    """``Type: message`` of an exception, with at most 2,000 characters of the message and lone surrogates escaped.

    Never raises, even if ``str`` of the exception does.
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the message of an exception may raise anything
        text = "(its message raises, too)"
    text = printable(text)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text):,} characters)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def printable(text: str) -> str:
    """The text with lone surrogates, which no table can hold, escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown(value: object) -> str:
    """(value) -> its text for a message, at most 80 characters; ``null`` for None."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = repr(value if not isinstance(value, str) else value[:100])
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - a line
