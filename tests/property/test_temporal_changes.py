"""Joins with versions, of rows that are taken back: what is left is the join of the rows that are left, whatever versions came in between."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sql_tables import TABLES, Flight, Weather, entries_of, flights, oracle, plain, weather

import floodmark as fm
from floodmark import sql_operator
from floodmark.compiler.explain import explain
from floodmark.core.errors import CapabilityError
from floodmark.spec.values.schema import RETRACTION
from floodmark.testing.proof import bounded, prove


def _changing(name: str, contract: type[fm.Contract]) -> fm.Source:
    table = fm.DeltaTable(f"tables/{name}", read="changes")
    return fm.Source(name, contract=contract, connector=table, watermark=fm.BoundedOutOfOrderness("0 s"))


SOURCES = {"flights": _changing("flights", Flight), "weather": Weather}
JOIN = "SELECT f.flight, f.tail, w.temp, w.delay FROM flights AS f {} weather FOR SYSTEM_TIME AS OF f.scheduled AS w ON f.origin = w.origin"
KINDS = {"JOIN": "ASOF JOIN", "LEFT JOIN": "ASOF LEFT JOIN"}


@pytest.mark.feature("J4", "Q4")
@given(st.integers(0, 500), st.sampled_from(sorted(KINDS)))
def test_a_row_that_is_taken_back_takes_back_what_it_was_joined_with(seed: int, kind: str) -> None:
    drawn, rows = random.Random(seed), flights(seed, 24)
    for row in rows:
        row |= {"flight": drawn.randrange(4), "tail": None}
    rows[3:5] = [rows[2], rows[2]]  # equal rows, of which some are taken back
    written = sql_operator("stated", f"{JOIN.format(kind)} EMIT CHANGES", inputs=SOURCES)
    entries = entries_of(written, {"flights": rows, "weather": weather(seed)})
    gone = sorted(drawn.sample(range(len(rows)), 9), reverse=True)
    places = [place for place, (name, _) in enumerate(entries) if name == "flights"]
    for number in gone:
        name, row = entries[places[number]]
        later = drawn.randrange(number, len(rows))
        entries.insert(
            places[later] + 1,
            (name, row | {"_kind": RETRACTION, "_watermark": entries[places[later]][1]["_watermark"]}),
        )
        places = [place for place, (n, r) in enumerate(entries) if n == "flights" and r["_kind"] != RETRACTION]
    numbers = iter(range(len(entries)))
    entries = [(name, row | {"_sequence": next(numbers)}) for name, row in entries]
    left = [row for number, row in enumerate(rows) if number not in gone]
    question = f"SELECT f.flight, f.tail, w.temp, w.delay FROM flights AS f {KINDS[kind]} weather AS w ON f.origin = w.origin AND f.scheduled >= w.observed"
    answer = bounded(written, entries)
    net = plain([values for (_, values), times in answer.items() for _ in range(times)])
    assert net == plain(oracle(question, {"flights": left, "weather": weather(seed)}))
    proof = prove(written, entries, cuts=2, seed=seed)
    assert proof.seed is None, proof.differences


def test_only_a_statement_that_says_so_holds_rows_that_may_be_taken_back() -> None:
    changing = sql_operator("stated", f"{JOIN.format('JOIN')} EMIT CHANGES", inputs=SOURCES)
    assert changing.outputs[0].revisable
    assert "TemporalJoinOfChanges" in str(explain(changing))
    assert "stays in the state for ever, with the version that it was joined with" in "".join(changing.warnings)
    final = sql_operator("stated", JOIN.format("JOIN"), inputs=TABLES)
    assert not final.outputs[0].revisable
    assert final.warnings == ()
    with pytest.raises(CapabilityError, match="CAPABILITY-003 .*TemporalJoin"):
        sql_operator("stated", JOIN.format("JOIN"), inputs=SOURCES)
    both = {name: _changing(name, contract) for name, contract in {"flights": Flight, "weather": Weather}.items()}
    with pytest.raises(CapabilityError, match="CAPABILITY-003 .*final rows for process function TemporalJoinOfChanges"):
        sql_operator("stated", f"{JOIN.format('JOIN')} EMIT CHANGES", inputs=both)
