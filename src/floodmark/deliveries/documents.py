"""Changes as JSON documents."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def document(value: Any) -> str:
    """A value as JSON. Decimals, times, dates, bytes (hexadecimal), NaN and infinities are texts, which JSON has no numbers for."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def field_name(key: Any) -> str:
    """(key of a map or struct) -> the name of a field: a text as it is, another value as JSON has it."""
    value = plain(key)
    return value if isinstance(value, str) else json.dumps(value)


def plain(value: Any) -> Any:
    """A value as JSON has values."""
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case Mapping():
            return {field_name(name): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case _:
            return value
