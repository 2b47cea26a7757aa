"""Arguments that Spark does not compute for a row in which another argument of the call is null. Sail computes all arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("nulls.json")


def left_out(name: str, count: int) -> Mapping[int, Sequence[int]]:
    """Argument of a call -> arguments of which one being null keeps Spark from computing it.

    Args:
        name: of the function or operator.
        count: number of arguments.
    """
    return _order().get(f"{name}/{count}", {})


@cache
def _order() -> Mapping[str, Mapping[int, Sequence[int]]]:
    """Function and number of arguments -> as of ``left_out``; written by ``make parity``."""
    calls: Mapping[str, Mapping[str, Sequence[int]]] = json.loads(FILE.read_text("utf-8"))
    return {name: {int(place): earlier for place, earlier in places.items()} for name, places in calls.items()}
