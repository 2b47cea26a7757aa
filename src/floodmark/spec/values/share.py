"""Shares of rows or keys, as people write them: ``0.1``, or ``10%``."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

EXPECTED = "a share of 0 to 1, as 0.1, or a percentage, as 10%"
"""The expected form of a share, for errors."""


def parse_share(value: object) -> float | None:
    """(number from 0 to 1, its text, or a text such as ``10%``) -> the share; None for anything else.

    ``99.9%`` is exactly the number that ``0.999`` is.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    text = str(value).strip()
    try:
        number = Decimal(text.removesuffix("%").rstrip())
    except InvalidOperation:
        return None
    number = number / 100 if text.endswith("%") else number
    return float(number) if number.is_finite() and 0 <= number <= 1 else None
