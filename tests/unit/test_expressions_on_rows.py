"""Expressions of the user's over rows: nothing else among the rows is computed, and a row an expression fails for can be set aside."""

from __future__ import annotations

import itertools
import json

import pytest

import floodmark as fm
from floodmark.core.errors import DefinitionError, ExecutionError
from floodmark.core.time import from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lifecycle.plan import Deployed, plan
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.testing.log import Log


class Event(fm.Contract):
    """A keyed number."""

    at: fm.EventTime
    key: str
    v: int


BIG = 2**63 - 2
SUM = f"{BIG} + coalesce(v, 5)"
"""Too large where ``v`` is more than 1, and where it is null, as in a marker."""


def operator(build):
    @fm.operator(name="summed")
    def summed(events: fm.Stream[Event]) -> fm.Stream:
        return build(events)

    return summed


BUILDS = {
    "filter": lambda events, on_error: events.filter(f"greatest({SUM}, 1) > 0", on_error=on_error),
    "with_columns": lambda events, on_error: events.with_columns(big=SUM, bigger=f"{SUM} - 1", on_error=on_error),
    "select": lambda events, on_error: events.select("v", big=SUM, on_error=on_error),
    "aggregate": lambda events, on_error: (
        events.key_by("key").window(fm.Tumbling("1 s"), on_error=on_error).aggregate(big=fm.max(SUM), n=fm.count())
    ),
    "before a window": lambda events, on_error: (
        events.with_columns(big=SUM, on_error=on_error)
        .key_by("key")
        .window(fm.Tumbling("1 s"))
        .aggregate(big=fm.max("big"), n=fm.count())
    ),
    "session": lambda events, on_error: (
        events.key_by("key").window(fm.Session("1 s"), on_error=on_error).aggregate(big=fm.max(SUM), n=fm.count())
    ),
}


def log_of(*values):
    log = Log(operator(lambda events: events).inputs[0].schema)
    for place, value in enumerate(values):
        log.row({"at": from_ms(place), "key": "k", "v": value}, place)
    return log


def batches(found, log, cuts=()):
    """Output name -> its rows, without those that only one way of cutting has."""
    run, rows = MemoryRun(found), {}
    for start, stop in itertools.pairwise([0, *cuts, len(log.entries)]):
        for name, table in run.batch({"events": log.table(start, stop)}).items():
            rows.setdefault(name, []).extend(row for row in table.to_pylist() if row["_kind"] <= ROW)
    plain = {"_progress", "_sequence", "_watermark"}
    return {name: [{k: v for k, v in row.items() if k not in plain} for row in found] for name, found in rows.items()}


@pytest.mark.parametrize("name", BUILDS)
def test_no_expression_is_computed_for_a_marker_or_a_tick(name):
    log = log_of(1)
    log.tick(5)
    log.end()
    assert len(batches(operator(lambda events: BUILDS[name](events, "stop")), log)[""]) == 1


@pytest.mark.parametrize("name", BUILDS)
def test_a_row_an_expression_fails_for_is_set_aside_and_the_others_come_out_as_without_it(name):
    found = operator(lambda events: BUILDS[name](events, "quarantine"))
    log, clean = log_of(1, 7, 0, 9), log_of(1, 7, 0, 9)
    clean.entries = [entry for entry in clean.entries if entry["v"] < 7]
    for one in (log, clean):
        one.end()
    rows = batches(found, log)
    for cuts in ([1], [2, 3], [1, 2, 3, 4]):
        assert batches(found, log, cuts) == rows
    assert rows[""] == batches(found, clean)[""]
    assert [json.loads(row["given"])["v"] for row in rows["quarantine"]] == [7, 9]
    assert all(SUM in row["reason"] and "out of range" in row["reason"] for row in rows["quarantine"])
    keyed = name in {"aggregate", "session"}
    assert {row["key"] for row in rows["quarantine"]} == {'{"key": "k"}' if keyed else None}


@pytest.mark.parametrize("name", BUILDS)
def test_a_run_that_stops_names_the_row(name):
    log = log_of(1, 7, 0, 9)
    log.end()
    keyed = 'key {"key": "k"}, ' if name in {"aggregate", "session", "before a window"} else ""
    wanted = f"{keyed}event time 1970-01-01T00:00:00.001000+00:00, _sequence 1; the row: "
    with pytest.raises(ExecutionError, match="EXECUTION-050 in-memory run of summed@") as raised:
        batches(operator(lambda events: BUILDS[name](events, "stop")), log)
    assert wanted in raised.value.got
    assert '"v": 7' in raised.value.got


def test_a_retraction_an_expression_fails_for_is_passed_over_as_its_row_was_set_aside():
    @fm.operator
    def totals(events: fm.Stream[Event]) -> fm.Stream:
        late = events.key_by("key").window(fm.Tumbling("10 ms"), allowed_lateness="1 s")
        return late.aggregate(total=fm.sum("v")).with_columns(big=f"{BIG} + total", on_error="quarantine")

    log = Log(totals.inputs[0].schema)
    for place, value in ((0, 1), (11, 0), (2, 5), (3, -6)):
        log.row({"at": from_ms(place), "key": "k", "v": value}, place)
        log.move(10)
    log.end()
    rows = batches(totals, log, [2, 4, 6])
    assert [(row["total"], row["_kind"]) for row in rows[""]] == [(1, ROW), (1, RETRACTION), (0, ROW), (0, ROW)]
    assert [json.loads(row["given"])["total"] for row in rows["quarantine"]] == [6]


def test_on_error_is_stop_or_quarantine():
    for build in (
        lambda events: events.filter("v > 0", on_error="skip"),
        lambda events: events.with_columns(w="v", on_error="skip"),
        lambda events: events.select("v", on_error="skip"),
    ):
        with pytest.raises(DefinitionError, match=r"DEFINITION-055 .*'skip'. on_error is \"stop\" or \"quarantine\""):
            operator(build)


@pytest.mark.parametrize("name", BUILDS)
def test_beginning_to_set_rows_aside_keeps_the_state(name):
    stops, sets_aside = (operator(lambda e, o=on_error: BUILDS[name](e, o)) for on_error in ("stop", "quarantine"))
    assert [output.name for output in sets_aside.outputs] == ["", "quarantine"]
    tables = {output.table: tuple(output.schema.types.items()) for output in stops.outputs}
    before = Deployed(version=stops.version, fingerprint=stops.fingerprint, graph=stops.canonical(), tables=tables)
    assert plan(before, sets_aside).verdict == "stateless change"
