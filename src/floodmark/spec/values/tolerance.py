"""Tolerances: by how much two numbers may differ and still count as the same."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

from floodmark.core.errors import DefinitionError
from floodmark.spec.values.share import parse_share

_WHERE = "tolerance"


@dataclass(frozen=True, slots=True)
class Within:
    """Two numbers count as the same if their difference is within one of the two bounds.

    Args:
        absolute: largest difference, in the column's unit, 0 or more.
        relative: largest difference as a share of the larger absolute value of the two, 0 to 1.

    Raises:
        DefinitionError: DEFINITION-160, a bound that is no such number.
    """

    absolute: float = 0.0
    relative: float = 0.0

    def __post_init__(self) -> None:
        for name, most in (("absolute", math.inf), ("relative", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
                expected = "a number of 0 or more" if name == "absolute" else "a share between 0 and 1"
                fix = "Within(0.5) for half a unit, Within(relative=0.001) for a thousandth."
                raise DefinitionError(f"{_WHERE}, {name}", expected, repr(value), fix, code="DEFINITION-160")

    @staticmethod
    def parse(text: str, where: str = _WHERE) -> Within:
        """``0.5``, or ``0.1%`` for a share.

        Raises:
            DefinitionError: DEFINITION-160, neither of them.
        """
        if text.strip().endswith("%"):
            relative = parse_share(text)
            if relative is not None:
                return Within(relative=relative)
        else:
            with suppress(ValueError):
                absolute = float(text)
                if 0 <= absolute < math.inf:
                    return Within(absolute)
        fix = "For example 0.5, or 0.1% of the greater of the two."
        raise DefinitionError(where, "a number of 0 or more, or a percentage", repr(text), fix, code="DEFINITION-160")

    def __str__(self) -> str:
        parts = [f"{self.absolute:g}"] if self.absolute or not self.relative else []
        return " or ".join([*parts, *([f"{self.relative * 100:g}%"] if self.relative else [])])
