"""Results over rows on the embedded engine: a stream that SIGKILL ends between its writes goes on to the bounded answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_tables import TABLES, entries_of, flights

from floodmark import sql_operator
from floodmark.spec.workspace import Settings
from floodmark.testing.killed_proof import prove_by_killing

COLUMNS = """
    SELECT origin AS k, 'growing' AS what, COUNT(*) AS n FROM flights GROUP BY origin
    UNION ALL SELECT origin, 'first', flight FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC NULLS LAST) AS rn FROM flights) WHERE rn <= 3
    UNION ALL SELECT origin, 'tile', NTILE(4) OVER (PARTITION BY origin ORDER BY flight) FROM flights
    EMIT CHANGES"""
"""Kernels that have all rows of a call in columns, and NTILE."""
LIVES = "SELECT origin, window_end, COUNT(*) AS n, SUM(delay) AS s FROM flights GROUP BY origin EMIT CHANGES"
STATEMENTS = {
    "over": "SELECT flight, SUM(delay) OVER (PARTITION BY origin ORDER BY scheduled ROWS 5 PRECEDING) AS total FROM flights",
    "top": "SELECT flight, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC) AS rn FROM flights) WHERE rn <= 3 EMIT CHANGES",
    "changing": "SELECT flight, SUM(delay) OVER (PARTITION BY origin ORDER BY delay DESC ROWS 5 PRECEDING) AS total FROM flights EMIT CHANGES",
}


STATEMENTS |= {"columns": COLUMNS, "lives": LIVES}
TTL = {"lives": "20 minutes"}


@pytest.mark.soak
@pytest.mark.feature("Q3")
@pytest.mark.parametrize("case", STATEMENTS)
def test_a_killed_stream_goes_on_to_the_bounded_answer(tmp_path: Path, case: str) -> None:
    written = sql_operator(case, STATEMENTS[case], inputs=TABLES, ttl=TTL.get(case, ""))
    entries = entries_of(written, {"flights": flights(3, 80)})
    proof = prove_by_killing("embedded", written, entries, str(tmp_path), Settings(lake=str(tmp_path)), seed=2)
    assert proof.killed_at is not None
    assert proof.results
    assert proof.differences == ()
