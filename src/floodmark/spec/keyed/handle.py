"""Handles: states, timers and metrics are class attributes of a process function; in an opened one they act on the current key."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from floodmark.core.errors import UserCodeError


class Handle:
    """What a process function declares as a class attribute; in an opened function a copy of it that acts on a target.

    Source: Flink's ``ValueState`` and its like, which ``RuntimeContext`` binds to the current key.
    """

    noun: ClassVar[str]
    """What it is, for people."""
    use: ClassVar[str]
    """What is written in place of an assignment, for people."""
    name: str = ""
    target: Any = None
    """What it acts on: a cell, the times of timers, the observations of metrics, whose ``open`` says whether there is a current key. None where it is
    declared."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Self:
        if instance is None:
            return self
        handle: Self = vars(instance).get(f"_state_{self.name}", self)
        return handle

    def __set__(self, instance: Any, value: Any) -> None:
        fix = f"Write self.{self.name}{self.use}."
        raise UserCodeError(f"{self.noun} '{self.name}'", "a call", "an assignment", fix, code="USER-004")

    def bound(self, target: Any) -> Self:
        """A copy as a handle on ``target``."""
        handle = object.__new__(type(self))
        vars(handle).update(vars(self))
        handle.target = target
        return handle

    def _opened(self) -> Any:
        """The target, while there is a current key."""
        if self.target is None or not self.target.open:
            fix = "Use it in on_element, on_timer and their like: only there is there a key."
            raise UserCodeError(f"{self.noun} '{self.name}'", "a key", "none at this point", fix, code="USER-006")
        return self.target
