"""Rows and panes a function fails for: the quarantine of a stream is that of a bounded run, and of a run in memory."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from deltalake import DeltaTable
from engines import embedded
from events import START, Event, row, source

import floodmark as fm
from floodmark.core.time import Interval, to_ms
from floodmark.lake.folder.paths import Lake
from floodmark.testing import RUNS


class Told(fm.Contract):
    """A text."""

    text: str


def failing():
    """Functions that workers get by value, as they cannot import this module."""

    def doubled(given):
        """Fails for each fifth row."""
        if given["value"] % 5 == 4:
            message = f"no {given['value']}"
            raise ValueError(message)
        yield {**given, "value": given["value"] * 2}

    def told(pane, rows):
        """Fails for one window of one key."""
        if pane.key["key"] == "a" and pane.index == 0 and any(row["value"] == 12 for row in rows):
            message = "twelve"
            raise LookupError(message)
        yield {"text": f"{pane.key['key']} {[row['value'] for row in rows]}"}

    def shouted(given):
        """Fails for one result."""
        if given["text"].startswith("b [2,"):
            message = "too quiet"
            raise ValueError(message)
        yield {"text": given["text"].upper()}

    return doubled, told, shouted


doubled, told, shouted = failing()


@fm.operator
def everywhere(events: fm.Stream[Event]) -> fm.Stream:
    """Before a window, in it and after it."""
    good = events.flat_map(doubled, Event, on_error="quarantine").filter("value >= 0").with_columns(more="value + 1")
    panes = good.key_by("key").window(fm.Tumbling("10 min"), on_error="quarantine").process(told, Told)
    return panes.flat_map(shouted, Told, on_error="quarantine")


@fm.operator
def columnar(events: fm.Stream[Event]) -> fm.Stream:
    """Before a window that is computed in columns."""
    good = events.flat_map(doubled, Event, on_error="quarantine")
    return good.key_by("key").window(fm.Tumbling("10 min"), late="side_output").aggregate(total=fm.sum("value"))


@fm.operator
def stateless(events: fm.Stream[Event]) -> fm.Outputs:
    """Two results that share a step that fails."""
    good = events.flat_map(doubled, Event, on_error="quarantine")
    return fm.Outputs(
        low=good.filter("value < 20"), high=good.filter("value >= 20").flat_map(doubled, Event, on_error="quarantine")
    )


@pytest.mark.parametrize(
    ("operator", "runs"),
    [
        (everywhere, RUNS),
        pytest.param(columnar, RUNS[::5], marks=pytest.mark.soak),
        pytest.param(stateless, RUNS[::5], marks=pytest.mark.soak),
    ],  # these in memory and as a stream on Spark
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_engine_and_mode_sets_the_same_aside(operator, runs):
    rows = [row(minute) | {"at": START + timedelta(minutes=minute)} for minute in range(40)]
    answers = [run(operator, {"events": rows}) for run in runs]
    quarantine = answers[0]["quarantine"]
    assert {"no 4", "no 9"} <= {one["reason"].split(": ")[1] for one in quarantine}
    if operator is everywhere:
        assert {one["reason"] for one in quarantine} >= {"LookupError: twelve", "ValueError: too quiet"}
    for run, answer in zip(runs, answers, strict=True):
        for name, wanted in answers[0].items():
            assert answer[name] == wanted, f"{run}: {name}"


def test_a_bounded_run_over_a_part_replaces_that_part_of_the_quarantine(engine, tmp_path):
    lake = Lake(str(tmp_path / "lake"))
    embedded().land(source([row(minute) for minute in range(40)]), lake, end=True)

    def reasons():
        table = DeltaTable(lake.output("columnar__quarantine")).to_pyarrow_table()
        return sorted(one["reason"] for one in table.to_pylist() if one["_kind"] == 0)

    part = Interval(start=to_ms(START) + 600_000, end=to_ms(START) + 1_200_000)
    engine.run_bounded(columnar, lake, part)
    assert reasons() == ["ValueError: no 14", "ValueError: no 19"]
    engine.run_bounded(columnar, lake, Interval())
    assert len(reasons()) == 8
    engine.run_bounded(columnar, lake, part, force=True)
    assert len(reasons()) == 8


def test_an_operator_that_begins_to_set_rows_aside_begins_a_quarantine(engine, tmp_path):
    @fm.operator(name="columnar")
    def before(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("key").window(fm.Tumbling("10 min")).aggregate(total=fm.sum("value"))

    lake = Lake(str(tmp_path / "lake"))
    embedded().land(source([row(minute) for minute in range(40)]), lake, end=True)
    engine.run_bounded(before, lake, Interval())
    part = Interval(start=to_ms(START), end=to_ms(START) + 600_000)
    assert engine.run_bounded(columnar, lake, part).rows["columnar__quarantine"] == 2


def test_a_stream_goes_on_and_counts_what_it_set_aside(engine, tmp_path):
    lake = Lake(str(tmp_path / "lake"))
    embedded().land(source([row(minute) for minute in range(40)]), lake, end=True)
    result = engine.run_unbounded(everywhere, lake, until_caught_up=True)
    assert result.rows["everywhere__quarantine"] == 10
    assert any("floodmark quarantine show everywhere" in warning for warning in result.warnings)
    table = DeltaTable(lake.output("everywhere__quarantine")).to_pyarrow_table()
    given = [json.loads(one["given"]) for one in table.to_pylist() if one["_kind"] == 0]
    assert {one.get("value") for one in given} >= {4, 9, 14}
