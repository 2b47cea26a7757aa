"""Refusals: why a question has no answer, each with its HTTP status."""

from __future__ import annotations

from typing import ClassVar

from floodmark.core.errors import ExecutionError


class Refusal(ExecutionError):  # noqa: N818 - an answer, not a fault of the program
    """A question that is not answered."""

    status: ClassVar[int] = 500


class Malformed(Refusal):
    """The question is not written as the service reads questions."""

    status: ClassVar[int] = 400


class Unauthorized(Refusal):
    """The token is missing, wrong or expired."""

    status: ClassVar[int] = 401


class Missing(Refusal):
    """What is asked for does not exist."""

    status: ClassVar[int] = 404


class Unanswerable(Refusal):
    """What is asked for exists, and has no such answer."""

    status: ClassVar[int] = 409


class Gone(Refusal):
    """What is asked for existed, and was removed."""

    status: ClassVar[int] = 410


class TooLarge(Refusal):
    """The question is too long."""

    status: ClassVar[int] = 413


class NotReady(Refusal):
    """There is no answer yet."""

    status: ClassVar[int] = 503
