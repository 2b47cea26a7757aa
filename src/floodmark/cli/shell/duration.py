"""Durations in options of verbs."""

from __future__ import annotations

from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span


def duration(text: str, option: str, *, least: int) -> int:
    """(text of an option, name of the option, least length in ms) -> a length of time in ms.

    Raises:
        DefinitionError: DEFINITION-001, not a duration; DEFINITION-004, a shorter one.
    """
    milliseconds = span(text, option)
    if milliseconds < least:
        expected = "zero or more" if least == 0 else "more than zero"
        fix = f"Write the duration without a minus: {option} '1 hour'."
        raise DefinitionError(option, expected, describe_span(milliseconds), fix, code="DEFINITION-004")
    return milliseconds
