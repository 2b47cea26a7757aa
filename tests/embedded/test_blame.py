"""The row for which an expression stops a stream is named, and the stream goes on from there under another version."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from events import START, Event

from floodmark import Operator, Stream, Tumbling, operator, sum
from floodmark.core.errors import ExecutionError
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log


def _filtered(events: Stream[Event]) -> Stream:
    return events.filter("100 DIV (value - 7) <> 1")


def _column(events: Stream[Event]) -> Stream:
    return events.filter("value <> 3").with_columns(ratio="100 DIV (value - 7)", other="100 DIV (value - 3)")


def _narrow(events: Stream[Event]) -> Stream:
    """Reads no key: the error shows it nonetheless."""
    return events.select(narrow="100 DIV (value - 7)")


def _aggregated(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("10 minutes")).aggregate(total=sum("100 DIV (value - 7)"))


def _behind(events: Stream[Event]) -> Stream:
    totals = events.key_by("key").window(Tumbling("1 minute")).aggregate(total=sum("value"))
    return totals.with_columns(ratio="100 DIV (total - 7)")


PROGRAMS = {
    "filter": (operator(_filtered, name="filtered"), "100 DIV (value - 7) <> 1"),
    "column 'ratio'": (operator(_column, name="columns"), "100 DIV (value - 7)"),
    "column 'narrow'": (operator(_narrow, name="narrow"), "100 DIV (value - 7)"),
    "step 'total'": (operator(_aggregated, name="aggregated"), "100 DIV (value - 7)"),
    "behind": (operator(_behind, name="behind"), "100 DIV (total - 7)"),
}


def _log(code: Operator) -> Log:
    """The row with value 7 is among others, in a micro-batch behind the first one."""
    log, values = Log(code.inputs[0].schema), [*range(8, 40), 7, *range(41, 60)]
    order = values[20:]
    random.Random(1).shuffle(order)
    log.rows([{"at": START, "key": "ab"[value % 2], "value": value} for value in values[:20]], "at", 60_000)
    for place, value in enumerate(order):
        log.rows([{"at": START.replace(minute=place), "key": f"k{value}", "value": value}], "at", 60_000)
    log.end()
    return log


@pytest.mark.parametrize("step", PROGRAMS)
def test_the_row_is_named_with_its_step(sail: Sail, step: str, tmp_path: Path) -> None:
    (code, text), lake = PROGRAMS[step], Lake(str(tmp_path))
    log = _log(code)
    land(lake, code, log, 0, 20)
    run_unbounded(sail, code, lake, until_caught_up=True)
    before = outputs(lake, code)[""].num_rows
    land(lake, code, log, 20)
    with pytest.raises(ExecutionError, match="EXECUTION-050") as raised:
        run_unbounded(sail, code, lake, until_caught_up=True)
    named = {"step 'total'": "step 'aggregate", "behind": "column 'ratio'"}.get(step, step)
    assert raised.value.where.startswith(f"unbounded run of {code.version}, {named}")
    assert raised.value.got.startswith(f"{text}: ")
    assert '"total": 7' in raised.value.got if step == "behind" else '"value": 7' in raised.value.got
    assert "k7" in raised.value.got
    assert outputs(lake, code)[""].num_rows == before


def test_what_is_no_row_s_fault_is_told_as_it_is(sail: Sail, tmp_path: Path) -> None:
    def broken(events: Stream[Event]) -> Stream:
        def fail(row: object) -> list[object]:
            raise ValueError(row)

        return events.flat_map(fail, schema=Event)

    code, lake = operator(broken, name="broken"), Lake(str(tmp_path))
    land(lake, code, _log(code))
    with pytest.raises(ExecutionError, match=r"EXECUTION-004 .*--engine embedded") as raised:
        run_unbounded(sail, code, lake, until_caught_up=True)
    assert "USER-" in raised.value.got
