"""Changed code is another version: a bounded run computes anew, and a stream refuses to resume; code that reads a clock is flagged."""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_code import CHANGES, prices
from engines import embedded
from events import Event, row, source

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import StateError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.testing.lakes import outputs

pytestmark = pytest.mark.engines("embedded", "spark")


@pytest.mark.feature("Z23")
def test_changed_code_computes_anew_in_a_bounded_run_and_is_refused_by_its_stream(
    engine: Computing, tmp_path: Path
) -> None:
    bounded, stream = Lake(str(tmp_path / "bounded")), Lake(str(tmp_path / "stream"))
    for lake in (bounded, stream):
        embedded().land(source([row(minute) for minute in range(3)]), lake)
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


def stamped(name: str, moment: str) -> Operator:
    """Events with a moment."""

    @fm.operator(name=name)
    def found(events: fm.Stream[Event]) -> fm.Stream:
        return events.with_columns(moment=moment)

    return found


@pytest.mark.feature("T20")
def test_what_reads_a_clock_is_flagged_as_no_second_run_says_the_same(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    embedded().land(source([row(minute) for minute in range(3)]), lake)
    moments = dict[str, list[object]]()
    for code in (stamped("clocked", "current_timestamp()"), stamped("sober", "at")):
        assert [text for text in code.warnings if "reads a clock" in text] == (
            ["operator 'clocked': 'current_timestamp()' reads a clock or a random number; a replay will differ"]
            if code.name == "clocked"
            else []
        )
        for _ in range(2):
            engine.run_bounded(code, lake, Interval(), force=True)
            moments.setdefault(code.name, []).append(
                sorted(filter(None, outputs(lake, code)[""]["moment"].to_pylist()))
            )
    assert moments["clocked"][0] != moments["clocked"][1]
    assert moments["sober"][0] == moments["sober"][1]
