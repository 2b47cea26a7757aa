"""An operator whose helper is imported in one style or another, and changes of what the helper is."""

from __future__ import annotations

from pathlib import Path

from packages import imported, named

import floodmark as fm
from floodmark.spec.graph.operator import Operator

HELPERS = """
RATE = 2


def scaled(function):
    def inner(row):
        return function(row) * 10

    return inner


@scaled
def cents(row, more=1):
    return row["value"] * RATE + more
"""
FLOWS = """
import floodmark as fm
from events import Event
{outside}


class Priced(fm.Contract):
    cents: int


def priced(row):
    {inside}
    yield {{"cents": {called}}}


@fm.operator
def prices(events: fm.Stream[Event]) -> fm.Stream:
    return events.flat_map(priced, schema=Priced)
"""
STYLES = {
    "import": ("import shop.helpers", "", "shop.helpers.cents(row)"),
    "import as": ("import shop.helpers as h", "", "h.cents(row)"),
    "from package": ("from shop import helpers", "", "helpers.cents(row)"),
    "from module": ("from shop.helpers import cents", "", "cents(row)"),
    "from module as": ("from shop.helpers import cents as c", "", "c(row)"),
    "star": ("from shop.helpers import *", "", "cents(row)"),
    "relative": ("from .helpers import cents", "", "cents(row)"),
    "in the function": ("", "from shop.helpers import cents", "cents(row)"),
}
CHANGES = {
    "helper": ('row["value"] * RATE', 'row["value"] + RATE'),
    "default": ("more=1", "more=2"),
    "constant": ("RATE = 2", "RATE = 3"),
    "decorator": ("(row) * 10", "(row) * 100"),
}
SAME = ("", "")


def prices(folder: Path, style: str, change: tuple[str, str] = SAME) -> Operator:
    """The operator, with a change in what it imports."""
    outside, inside, called = STYLES[style]
    flows = FLOWS.format(outside=outside, inside=inside or "pass", called=called)
    files = {"shop/__init__.py": "", "shop/flows.py": flows, "shop/helpers.py": HELPERS.replace(*change)}
    with imported(files, folder):
        found = named("shop.flows.prices")
        assert isinstance(found, fm.Operator)
        assert found.version
        return found
