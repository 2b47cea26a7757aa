"""Amounts as people write them: separators of thousands, either decimal sign, signs, currencies."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from floodmark.core.errors import DefinitionError

_CODES = frozenset(
    re.findall(
        r"[A-Z]{3}",
        "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTC BTN BWP BYN BZD CAD CDF CHF CLP CNY COP CRC CUP CVE "
        "CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR "
        "KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK "
        "PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD "
        "UYU UZS VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWL",
    )
)
"""Codes of currencies, ISO 4217."""
_NAMES = frozenset(["kr", "kr.", "zł", "Kč", "Ft", "Fr.", "Rs", "Rs."])
"""Other spellings of currencies."""
_SPACES = "\u0020\u00a0\u202f\u2009"
_PARTS = re.compile(
    rf"^(?P<before>[^0-9.,]*)(?P<number>[0-9.,](?:[0-9.,'\u2019{_SPACES}]*[0-9.,])?)(?P<after>[^0-9]*)$"
)
_SIGNS = {"+": 1, "-": -1, "\u2212": -1}
_GROUPED = re.compile(
    rf"[1-9][0-9]{{0,2}}(?:(?P<sign>[.,'\u2019{_SPACES}])[0-9]{{3}})(?:(?P=sign)[0-9]{{3}})*|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}}"
)
"""Whole part with separators of thousands, or of lakhs and crores."""


@dataclass(frozen=True, slots=True)
class Written:
    """The parts of an amount.

    Args:
        negative: whether a sign, or parentheses, say so.
        number: digits with their separators.
        currency: the sign, code or name; empty if there is none.
        plain: whether nothing but a leading sign stands beside the number.
    """

    negative: bool
    number: str
    currency: str
    plain: bool


def parts(text: str) -> Written | None:
    """(text) -> the parts of the amount; None if the text is no amount."""
    match = _PARTS.match(text.strip())
    if match is None:
        return None
    before, after = match["before"].strip(_SPACES), match["after"].strip(_SPACES)
    in_parentheses = before.count("(") == after.count(")") == 1
    if in_parentheses:
        before, after = before.replace("(", ""), after.replace(")", "")
    signs = [sign for sign in before + after if sign in _SIGNS]
    if len(signs) + in_parentheses > 1:
        return None
    leading = bool(before) and before in _SIGNS
    for sign in signs:
        before, after = before.replace(sign, ""), after.replace(sign, "")
    currencies = [name for name in (before.strip(_SPACES), after.strip(_SPACES)) if name]
    if len(currencies) > 1 or not all(map(_is_currency, currencies)):
        return None
    return Written(
        negative=in_parentheses or any(_SIGNS[sign] < 0 for sign in signs),
        number=match["number"],
        currency=currencies[0] if currencies else "",
        plain=not currencies and not in_parentheses and leading == bool(signs),
    )


def _is_currency(text: str) -> bool:
    symbols = [character for character in text if unicodedata.category(character) == "Sc"]
    if len(symbols) == 1:
        return all(character.isupper() for character in text if character not in symbols)
    return text in _CODES or text in _NAMES


def digits(number: str, decimal: str) -> str | None:
    """(digits with separators, decimal sign) -> the number with a point and no separators; None if the separators do not fit."""
    whole, point, fraction = number.partition(decimal)
    if (point and not fraction.isdecimal()) or decimal in fraction:
        return None
    if whole and not whole.isdecimal():
        if _GROUPED.fullmatch(whole) is None or decimal in whole:
            return None
        whole = "".join(filter(str.isdecimal, whole))
    return f"{whole or '0'}{'.' if point else ''}{fraction}" if whole or fraction else None


@dataclass(frozen=True, slots=True)
class Amount:
    """How a number is written, where that is not with digits and a point alone: ``Annotated[Decimal, Amount(",", currency="EUR")]``.

    Separators of thousands are a comma, point, space or apostrophe, whichever is not the decimal sign. A sign may stand before or behind the
    number, or parentheses around it. A number without separators is read as well.

    Args:
        decimal: the sign between whole and fraction.
        currency: the only currency that may stand beside the number, as it is written there; an amount in any other is set aside.

    Raises:
        DefinitionError: DEFINITION-200.
    """

    decimal: Literal[".", ","] = "."
    currency: str = ""

    def __post_init__(self) -> None:
        if self.decimal not in {".", ","}:
            fix = 'For 1.000,50 EUR: Amount(",", currency="EUR").'
            raise DefinitionError("Amount", 'decimal="." or ","', repr(self.decimal), fix, code="DEFINITION-200")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def parse(self, value: object) -> object:
        """(text) -> the number; any other value unchanged.

        Raises:
            PydanticCustomError: the text is no amount in this spelling.
        """
        if not isinstance(value, str):
            return value
        amount = parts(value)
        number = None if amount is None else digits(amount.number, self.decimal)
        if amount is None or number is None or amount.currency not in {"", self.currency}:
            example = f"1{'.' if self.decimal == ',' else ','}000{self.decimal}50 {self.currency}".rstrip()
            raise PydanticCustomError("amount", "Input should be an amount written as {example}", {"example": example})
        return -Decimal(number) if amount.negative else Decimal(number)
