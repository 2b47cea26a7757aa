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
            return {str(name): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case _:
            return value
