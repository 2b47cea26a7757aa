"""Changed code behind whatever import style is another version: a bounded run computes anew, and a stream refuses to resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import row, source
from packages import imported, named

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import StateError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.testing.lakes import outputs

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


@pytest.mark.feature("Z23")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_behind_an_import_is_another_version(tmp_path: Path, style: str, change: str) -> None:
    before, again = (prices(tmp_path, style) for _ in range(2))
    assert before.version == again.version != prices(tmp_path, style, CHANGES[change]).version


@pytest.mark.feature("Z23")
def test_changed_code_computes_anew_in_a_bounded_run_and_is_refused_by_its_stream(
    engine: Computing, tmp_path: Path
) -> None:
    bounded, stream = Lake(str(tmp_path / "bounded")), Lake(str(tmp_path / "stream"))
    for lake in (bounded, stream):
        engine.land(source([row(minute) for minute in range(3)]), lake)
    before, after = prices(tmp_path, "from module"), prices(tmp_path, "from module", CHANGES["constant"])
    engine.run_bounded(before, bounded, Interval())
    assert cents(bounded, before) == [10, 30, 50]
    assert engine.run_bounded(before, bounded, Interval()).skipped
    assert not engine.run_bounded(after, bounded, Interval()).skipped
    assert cents(bounded, after) == [10, 40, 70]
    engine.run_unbounded(before, stream, until_caught_up=True)
    with pytest.raises(StateError, match=r"STATE-003 .*prices@"):
        engine.run_unbounded(after, stream, until_caught_up=True)
    engine.run_unbounded(before, stream, until_caught_up=True)
    assert cents(stream, before) == [10, 30, 50]


def cents(lake: Lake, code: Operator) -> list[int]:
    """Of all rows there are."""
    table = outputs(lake, code)[""]
    return sorted(value for value in table["cents"].to_pylist() if value is not None)
