"""Ids of savepoints: operator, second, and five characters that put the ids of one second in the order in which they were made."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime

from floodmark.core.time import from_ms, to_ms

_ID = re.compile(r"(?P<operator>\w+)-(?P<second>\d{8}T\d{6})-(?P<end>[0-9a-z]{4,5})")
"""An end of four characters is random: ids of earlier versions of floodmark."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTH = 5
_PER_MS = len(_DIGITS) ** _LENGTH // 1000
"""Ends for each millisecond of a second."""
_SECOND = "%Y%m%dT%H%M%S"


def new_id(operator: str, at: int) -> str:
    """(operator, ms UTC) -> an id. Of two ids of an operator with different times the later one is greater as text, too."""
    number = at % 1000 * _PER_MS + secrets.randbelow(_PER_MS)
    end = ""
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        end = _DIGITS[digit] + end
    return f"{operator}-{from_ms(at):{_SECOND}}-{end}"


def operator_of(savepoint_id: str) -> str | None:
    """The operator in an id; None for a text that is no id."""
    parts = _ID.fullmatch(savepoint_id)
    return None if parts is None else parts["operator"]


def latest_of(names: Iterable[str]) -> int:
    """The latest time in ids, ms UTC: of one that tells no milliseconds the last one of its second. Texts that are no ids do not count; -1 without an id.

    Args:
        names: may be very many.
    """
    ids = [parts for name in names if (parts := _ID.fullmatch(name)) is not None]
    for second in sorted({parts["second"] for parts in ids}, reverse=True):
        try:
            at = to_ms(datetime.strptime(second, _SECOND).replace(tzinfo=UTC))
        except ValueError:  # digits that are no time
            continue
        return at + max(_ms_of(parts["end"]) for parts in ids if parts["second"] == second)
    return -1


def _ms_of(end: str) -> int:
    return int(end, len(_DIGITS)) // _PER_MS if len(end) == _LENGTH else 999
