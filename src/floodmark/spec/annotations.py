"""What a field's annotation may say beside its type: how a time is written, that a value is JSON, where unknown fields are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from floodmark.core.errors import DefinitionError, closest

EPOCHS = {"epoch s": 1, "epoch ms": 1_000, "epoch us": 1_000_000, "epoch ns": 1_000_000_000}
"""Formats of instants that are numbers -> how many of them are a second."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How a timestamp or date is written, where that is not ISO 8601: ``Annotated[EventTime, TimeFormat("%d.%m.%Y %H:%M")]``.

    Values that are times already, as in Parquet, stay as they are. Without an offset in the text a time is UTC; with
    ``LocalTime("...")`` beside this annotation it is of that zone.

    Args:
        format: as of ``datetime.strptime``; or ``"epoch s"``, ``"epoch ms"``, ``"epoch us"``, ``"epoch ns"``: a number since 1970.

    Raises:
        DefinitionError: DEFINITION-150, the format has no year, month or day, or another directive is unknown.
    """

    format: str

    def __post_init__(self) -> None:
        if self.format in EPOCHS:
            return
        try:
            written = _FIRST.replace(year=2001, month=2, day=3).strftime(self.format)
            known = datetime.strptime(written, self.format)  # noqa: DTZ007 - only whether it can be read
        except ValueError:
            known = None
        if known is None or known.date() != date(2001, 2, 3):
            near = closest(self.format, EPOCHS)
            fix = f'{near}For example "%d.%m.%Y %H:%M", "%b %d %Y" or "epoch ms".'
            expected = f"a format of datetime.strptime with year, month and day, or one of {', '.join(EPOCHS)}"
            raise DefinitionError("TimeFormat", expected, repr(self.format), fix, code="DEFINITION-150")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def parse(self, value: object) -> object:
        """The time a text or number means; anything else unchanged.

        Raises:
            PydanticCustomError: the text is not written so.
        """
        if value is None or isinstance(value, date):
            return value
        try:
            return self._epoch(str(value)) if self.format in EPOCHS else datetime.strptime(str(value), self.format)  # noqa: DTZ007 - UTC is decided behind
        except (ValueError, OverflowError, InvalidOperation):
            raise PydanticCustomError(
                "time_format", "Input should be a time written as {format}", {"format": self.format}
            ) from None

    def _epoch(self, text: str) -> datetime:
        number = Decimal(text) * 1_000_000 / EPOCHS[self.format]
        return _FIRST + timedelta(microseconds=int(number // 1))


def _as_json_text(value: object) -> object:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


JsonText = Annotated[str, BeforeValidator(_as_json_text)]
"""Any JSON value as text: objects, lists, numbers and booleans are written as JSON, a text stays as it is. ``get_json_object`` takes it apart."""


@dataclass(frozen=True, slots=True)
class IsRescued:
    """Marks the field of a contract that keeps the fields it does not name."""


Rescued = Annotated[str | None, IsRescued()]
"""The fields of a row that the contract does not name, as one JSON object; null where there are none: ``unknown: Rescued``.

Without such a field unknown fields are left out, and a landing says which; ``class X(Contract, extra="forbid")`` sets rows that have some aside. Fields of nested
models are not rescued: they follow the ``extra`` of their own model.
"""


def rescued_text(extra: Mapping[str, object] | None) -> str | None:
    """The value of a ``Rescued`` field."""
    return json.dumps(dict(extra), ensure_ascii=False, default=str) if extra else None
