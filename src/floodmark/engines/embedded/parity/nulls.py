"""Arguments that Spark does not compute for a row, because another argument of the call is null there: Sail computes all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("nulls.json")


def left_out(name: str, count: int) -> Mapping[int, Sequence[int]]:
    """Argument of a call -> those beside which it is not computed where one of them is null.

    Args:
        name: of the function or operator.
        count: of its arguments.
    """
    return _order().get(f"{name}/{count}", {})


@cache
def _order() -> Mapping[str, Mapping[int, Sequence[int]]]:
    """As ``make parity`` found it."""
    calls: Mapping[str, Mapping[str, Sequence[int]]] = json.loads(FILE.read_text("utf-8"))
    return {name: {int(place): earlier for place, earlier in places.items()} for name, places in calls.items()}
