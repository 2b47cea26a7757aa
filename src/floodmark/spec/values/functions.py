"""Arguments of the user's functions, ``Pane`` and ``Request``, and ``Function``, which holds a function with its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError

Timing = Literal["early", "on_time", "late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pane:
    """One firing of a window, as a window function sees it.

    Args:
        key: key columns and their values.
        start: of the window, ms UTC; None for windows without bounds.
        end: of the window, ms UTC, exclusive; None for windows without bounds.
        index: of the firing, from 0.
        timing: before the watermark has reached the end of the window, when it does, or after it.
        is_last: no pane of this window can follow.
        watermark: in force for the row or timer that caused the firing, ms.
    """

    key: Mapping[str, Any]
    start: int | None
    end: int | None
    index: int
    timing: Timing
    is_last: bool
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of another system, as the second argument of a function of ``Stream.call``.

    Args:
        key: names the row to the system, so that the system can drop a repeated call: the same in each attempt, after a restart, in a replay
            and in a rebuild. 32 hex digits.
        attempt: of this run, from 0.
        timestamp: event time of the row, ms UTC; with ``cache`` the beginning of the time for which the answer holds.
    """

    key: str
    attempt: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the user, compared by its code and by all code it reaches."""

    call: Callable[..., Any] = field(compare=False)
    code: Code

    @staticmethod
    def of(function: object, where: str) -> Function:
        """The function with its code.

        Raises:
            DefinitionError: DEFINITION-003 no readable source, DEFINITION-057 no function.
        """
        if not callable(function):
            fix = "Give a function defined in a module of your operators/ folder."
            raise DefinitionError(where, "a function", repr(function), fix, code="DEFINITION-057")
        return Function(function, Code.of(function))
