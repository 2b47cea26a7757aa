"""Conditions of a stage as the user writes them: SQL text or a Python function, combined by AND and OR."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal

from attrs import field, frozen

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError, shown

Test = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""A condition in Python: (row, rows matched so far by stage) -> whether the row fits."""


@frozen
class Text:
    """A condition as Spark SQL text over the row's columns and over stages: ``amount > last(a.amount)``."""

    text: str

    def canonical(self) -> object:
        """The text."""
        return self.text


@frozen
class Coded:
    """A condition as a Python function, compared by its code."""

    function: Test = field(eq=False)
    code: Code

    def canonical(self) -> object:
        """The digest of the code."""
        return {"code": str(self.code)}


@frozen
class Combined:
    """Two conditions joined by ``and`` or ``or``."""

    operator: Literal["and", "or"]
    left: Condition
    right: Condition

    def canonical(self) -> object:
        """Operator, left, right."""
        return [self.operator, self.left.canonical(), self.right.canonical()]


Condition = Text | Coded | Combined


def condition(written: object, where: str) -> Condition:
    """(SQL text or function) -> condition.

    Raises:
        DefinitionError: DEFINITION-420, neither text nor a function of two arguments that returns at once.
    """
    if isinstance(written, str):
        return Text(written)
    if wrong := _unfit(written):
        fix = 'Write Spark SQL text, where("amount < 1"), or a function of (row, match).'
        raise DefinitionError(where, "a condition", wrong, fix, code="DEFINITION-420")
    assert callable(written)
    return Coded(written, Code.of(written))


def _unfit(written: object) -> str:
    """What is wrong with a function as a condition; empty for nothing."""
    if not callable(written):
        return shown(written)
    name = getattr(written, "__name__", type(written).__name__)
    if inspect.iscoroutinefunction(written) or inspect.iscoroutinefunction(getattr(written, "__call__", None)):  # noqa: B004 - looked at, not called
        return f"the coroutine function '{name}': what it returns is true, whatever it would answer"
    if inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written):
        return f"the generator function '{name}': what it returns is true, whatever it would yield"
    with suppress(ValueError):  # of Python's own, whose arguments are not known
        signature = inspect.signature(written)
        try:
            signature.bind(None, None)
        except TypeError:
            return f"'{name}', which takes {signature}"
    return ""


def leaves(written: Condition | None) -> Iterator[Text | Coded]:
    """The texts and functions in a condition."""
    if isinstance(written, Combined):
        yield from leaves(written.left)
        yield from leaves(written.right)
    elif written is not None:
        yield written
