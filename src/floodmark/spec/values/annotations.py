"""Annotations of a contract's fields: the format of a time, a JSON value as text, the field that receives unknown fields."""

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
"""Format of an instant that is a number -> its units per second."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How a timestamp or date is written, where that is not ISO 8601: ``Annotated[EventTime, TimeFormat("%d.%m.%Y %H:%M")]``.

    Values that are times already, as in Parquet, stay unchanged. A text without an offset is UTC, or local time of the zone of a
    ``LocalTime("...")`` beside this annotation.

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
        """(text or number in this format) -> the time. None and dates are returned unchanged.

        Raises:
            PydanticCustomError: the text is not in this format.
        """
        if value is None or isinstance(value, date):
            return value
        try:
            return self._epoch(str(value)) if self.format in EPOCHS else datetime.strptime(str(value), self.format)  # noqa: DTZ007 - EventTime or LocalTime sets the zone
        except (ValueError, OverflowError, InvalidOperation):
            raise PydanticCustomError(
                "time_format", "Input should be a time written as {format}", {"format": self.format}
            ) from None

    def _epoch(self, text: str) -> datetime:
        number = Decimal(text) * 1_000_000 / EPOCHS[self.format]
        return _FIRST + timedelta(microseconds=int(number // 1))


class Digits(Decimal):
    """A number of JSON that has more digits than a float holds."""


def _as_json(value: object) -> float | str:
    """A value that JSON has no form for, as a value that has one."""
    return float(value) if isinstance(value, Digits) else str(value)


def _as_json_text(value: object) -> object:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_as_json)


JsonText = Annotated[str, BeforeValidator(_as_json_text)]
"""Any JSON value as text: objects, lists, numbers and booleans are written as JSON, a text stays as it is. Read parts of it by ``get_json_object``."""


@dataclass(frozen=True, slots=True)
class IsRescued:
    """Marks the contract's field that receives all fields the contract does not name."""


Rescued = Annotated[str | None, IsRescued()]
"""The fields of a row that the contract does not name, as one JSON object; null where there are none: ``unknown: Rescued``.

Without such a field unknown fields are left out, and the landing lists them; ``class X(Contract, extra="forbid")`` quarantines rows that have unknown fields. Fields of
nested models are not rescued: they follow the ``extra`` of their own model.
"""


def rescued_text(extra: Mapping[str, object] | None) -> str | None:
    """(unknown fields of a row) -> the value of its ``Rescued`` field: JSON text, None if there are no unknown fields."""
    return json.dumps(dict(extra), ensure_ascii=False, default=_as_json) if extra else None
