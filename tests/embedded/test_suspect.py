"""Of the part of an expression that alone can fail first, one query says for which rows it does: the same rows and words as halves give."""

from __future__ import annotations

import pyarrow as pa
import pytest
from parity.values import VALUES

from floodmark.engines.embedded.parity.check import sail_sql
from floodmark.engines.embedded.retries import attempts as tried
from floodmark.engines.embedded.retries.suspect import suspect
from floodmark.engines.embedded.sail.session import shared
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import expression
from floodmark.spec.values.schema import Column, Schema

SCHEMA = Schema((Column(name="s", type="string"), Column(name="n", type="int"), Column(name="f", type="double")))
TEXTS = [*VALUES["string"], "1.5d", " 7 ", "1e400", "-128", "32768", "99999999999999999999", "'", "a\\'b", "x\x1b"]


def attempt(text: str) -> Attempt:
    return Attempt(step="a step", text=text, type=expression(text, SCHEMA, "a step").type, schema=SCHEMA)


def failures(text: str, rows: pa.Table) -> dict[int, str]:
    trial = tried._Trial([attempt(text)], [], "an operator", lambda sql, of: sail_sql(sql, of, "a step"), shared(300))
    return {place: why["reason"] for place, why in trial._failures(rows).items()}


@pytest.mark.parametrize(
    "text",
    [
        "CAST(s AS int)",
        "CAST(s AS tinyint) * 2 > 3",
        "CAST(s AS double)",
        "CAST(upper(s) AS bigint) + 1",
        "100 / (n - 1)",
        "n % f",
        "CAST(s AS smallint) / 0",
    ],
)
@pytest.mark.few(3)
def test_one_query_gives_the_rows_and_words_of_halves(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(TEXTS)
    numbers = [VALUES["int"][place % len(VALUES["int"])] for place in range(count)]
    floats = [VALUES["double"][place % len(VALUES["double"])] for place in range(count)]
    rows = pa.table(
        {"s": TEXTS, "n": pa.array(numbers, pa.int32()), "f": floats, "_kind": pa.array([0] * count, pa.int32())}
    )
    computed: list[int] = []
    plainly = tried._Trial._tried

    def counted(self: tried._Trial, number: int | None, some: pa.Table, connection: object) -> None:
        computed.append(some.num_rows)
        plainly(self, number, some, connection)

    monkeypatch.setattr(tried._Trial, "_tried", counted)
    monkeypatch.setattr(tried, "_FEW", 0)
    found, asked = failures(text, rows), len(computed)
    monkeypatch.setattr(tried, "suspect", lambda _: None)
    assert found == failures(text, rows)
    assert found
    if suspect(attempt(text)) is not None:
        assert asked < len(computed) - asked or len(found) == 1


@pytest.mark.parametrize(
    "text", ["coalesce(n, CAST(s AS int))", "n + CAST(s AS int)", "CAST(s AS int) / n", "CAST(s AS date)", "n * 2"]
)
def test_a_part_that_may_not_be_computed_or_is_one_of_several_is_no_suspect(text: str) -> None:
    assert suspect(attempt(text)) is None
