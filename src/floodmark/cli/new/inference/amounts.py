"""Columns of amounts: which decimal sign and currency they are written with, and which could be read in two ways."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from floodmark.spec.values.amounts import Written, digits, parts

_TOLERATED = 0.01
"""Greatest share of other values in a column of amounts; rows with such values would be quarantined."""
_LEAST_DIGITS = 18
_LOOKED = 20
"""First values of a column. All values are parsed only if one of these is an amount."""
_POINTED = re.compile(r"[0-9]{1,3}(?:[.][0-9]{3})+(?:,[0-9]+)?|[0-9]+(?:,[0-9]+)?|,[0-9]+")
_SPACES = " \u00a0\u202f\u2009"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The amounts of a column.

    Args:
        readings: decimal sign -> (precision, scale), for each sign with which the values can be read.
        currency: the only currency; empty if there is none.
        misfits: number of values that are no amounts.
        simple: whether nothing but a leading sign stands beside the numbers.
        pointed: whether ``Files(decimal=",")`` reads all the numbers: no separators but commas, and points between thousands.
        commas: number of values with a comma and no other separator, currency or odd sign; of all values if some have these.
        separators: of all kinds in the numbers.
        example: a value that tells the readings apart.
    """

    readings: dict[str, tuple[int, int]]
    currency: str
    misfits: int
    simple: bool
    pointed: bool
    commas: int
    separators: frozenset[str]
    example: str = ""

    def thousands(self, decimal: str) -> bool:
        """Whether there are separators of thousands, read with a decimal sign."""
        return bool(self.separators - {decimal})


@dataclass(frozen=True, slots=True)
class Currencies:
    """Several currencies in a column: the amounts alone would not say what they are."""

    names: tuple[str, ...]


def amounts(texts: Sequence[str]) -> Amounts | Currencies | None:
    """(texts of a column) -> its amounts; its currencies, if there are several; None if the column holds no amounts."""
    if not any(map(parts, texts[:_LOOKED])):
        return None
    rows = Counter(texts)
    written = {text: amount for text in rows if (amount := parts(text)) is not None}
    total = sum(rows.values())
    limit = _TOLERATED * total
    if total - sum(rows[text] for text in written) > limit:
        return None
    currencies = tuple(dict.fromkeys(amount.currency for amount in written.values() if amount.currency))
    if len(currencies) > 1:
        return Currencies(currencies)
    readings = dict[str, tuple[int, int]]()
    most, values = 0, dict[str, list[str]]()
    for decimal in ".,":
        read = {text: number for text, amount in written.items() if (number := digits(amount.number, decimal))}
        fits = sum(rows[text] for text in read)
        if total - fits <= limit and read:
            readings[decimal] = _digits(list(read.values()))
            values[decimal] = [read.get(text, "") for text in written]
            most = max(most, fits)
    if not readings or not _is_amount(list(written.values()), currencies):
        return None
    example = ""
    if len(readings) > 1:
        differing = (
            text for text, number, other in zip(written, *values.values(), strict=True) if _differ(number, other)
        )
        example = next(differing, "")
        if not example:
            readings = {".": readings["."]}
    numbers = [amount.number for amount in written.values()]
    return Amounts(
        readings=readings,
        currency=currencies[0] if currencies else "",
        misfits=total - most,
        simple=all(amount.plain for amount in written.values()),
        pointed=all(map(_POINTED.fullmatch, numbers)),
        commas=total
        if currencies or any(not a.plain or set(a.number) & set(".'\u2019" + _SPACES) for a in written.values())
        else sum(rows[text] for text, amount in written.items() if "," in amount.number),
        separators=frozenset(sign for number in numbers for sign in number if not sign.isdecimal()),
        example=example,
    )


def _differ(number: str, other: str) -> bool:
    return bool(number and other) and Decimal(number) != Decimal(other)


def _is_amount(written: Sequence[Written], currencies: Sequence[str]) -> bool:
    """False for numbers in groups that may be telephone or card numbers: spaces alone divide them, and all have as many digits."""
    if currencies or any(re.search("[.,'\u2019]", amount.number) for amount in written):
        return True
    if not any(sign in amount.number for amount in written for sign in _SPACES):
        return any(not amount.plain for amount in written)
    return len({sum(map(str.isdecimal, amount.number)) for amount in written}) > 1


def _digits(numbers: Sequence[str]) -> tuple[int, int]:
    """(numbers) -> (precision, scale) of a decimal that holds them all, with room for larger ones."""
    scale = max(len(number.partition(".")[2]) for number in numbers)
    whole = max(len(number.partition(".")[0].lstrip("0")) for number in numbers)
    return max(_LEAST_DIGITS, whole + scale), scale
