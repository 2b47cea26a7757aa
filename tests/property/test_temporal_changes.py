"""Joins with versions, of rows that are taken back: what is left is the join of the rows that are left, whatever versions came in between."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sql_tables import TABLES, Flight, Weather, oracle, plain, weather
from versions_of_changes import JOIN, KINDS, SOURCES, changing, taken_back

from floodmark import sql_operator
from floodmark.compiler.explain import explain
from floodmark.core.errors import CapabilityError
from floodmark.testing.proof import bounded, prove


@pytest.mark.feature("J4", "Q4")
@given(st.integers(0, 500), st.sampled_from(sorted(KINDS)))
def test_a_row_that_is_taken_back_takes_back_what_it_was_joined_with(seed: int, kind: str) -> None:
    written, entries, left = taken_back(seed, kind)
    question = f"SELECT f.flight, f.tail, w.temp, w.delay FROM flights AS f {KINDS[kind]} weather AS w ON f.origin = w.origin AND f.scheduled >= w.observed"
    answer = bounded(written, entries)
    net = plain([values for (_, values), times in answer.items() for _ in range(times)])
    assert net == plain(oracle(question, {"flights": left, "weather": weather(seed)}))
    proof = prove(written, entries, cuts=2, seed=seed)
    assert proof.seed is None, proof.differences


def test_only_a_statement_that_says_so_holds_rows_that_may_be_taken_back() -> None:
    revised = sql_operator("stated", f"{JOIN.format('JOIN')} EMIT CHANGES", inputs=SOURCES)
    assert revised.outputs[0].revisable
    assert "TemporalJoinOfChanges" in str(explain(revised))
    assert "stays in the state for ever, with the version that it was joined with" in "".join(revised.warnings)
    final = sql_operator("stated", JOIN.format("JOIN"), inputs=TABLES)
    assert not final.outputs[0].revisable
    assert final.warnings == ()
    with pytest.raises(CapabilityError, match="CAPABILITY-003 .*TemporalJoin"):
        sql_operator("stated", JOIN.format("JOIN"), inputs=SOURCES)
    both = {name: changing(name, contract) for name, contract in {"flights": Flight, "weather": Weather}.items()}
    with pytest.raises(CapabilityError, match="CAPABILITY-003 .*final rows for process function TemporalJoinOfChanges"):
        sql_operator("stated", f"{JOIN.format('JOIN')} EMIT CHANGES", inputs=both)
