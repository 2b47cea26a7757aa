"""Lookups of fewer columns: those alone that a later step, or the lookup itself, reads."""

from __future__ import annotations

from pathlib import Path

import floodmark as fm
from floodmark import LookupTable, sql_operator
from floodmark.engines.frames.narrowing import narrowed, without_unread_aggregates
from floodmark.semantics.kernels.calls import answer_schema
from floodmark.spec.graph.steps import Call, Project, Step, walk


class Bid(fm.Contract):
    """A bid."""

    at: fm.EventTime
    lot: int
    price: int
    words: str


class Rate(fm.Contract, key=("key",)):
    """A row of the table."""

    key: int
    value: str


TABLE = LookupTable("rates", contract=Rate, path=Path("/rates.csv"))


def _call(step: Step) -> Call:
    return next(each for each in walk(step) if isinstance(each, Call))


def test_a_lookup_keeps_the_columns_that_are_read_and_those_that_it_compares() -> None:
    text = "SELECT b.lot, r.value FROM (SELECT *, price / lot AS share, PROCTIME() AS now FROM bids) AS b JOIN rates FOR SYSTEM_TIME AS OF b.now AS r ON mod(b.lot, 100) = r.key"
    result = sql_operator("shared", text, inputs={"bids": Bid, "rates": TABLE}).results[0][1]
    narrow = narrowed(result)
    assert narrow.schema == result.schema
    before, after = _call(result), _call(narrow)
    assert isinstance(after.parent, Project)
    assert {*before.parent.schema.names} - {*after.parent.schema.names} == {"at", "price", "words", "share"}
    assert (after.asked, after.answers, answer_schema(after)) == (before.asked, before.answers, answer_schema(before))
    assert narrowed(narrow) == narrow
    assert narrowed(result, [before]) is result


def test_other_steps_stay_as_they_are() -> None:
    @fm.operator
    def plain(bids: fm.Stream[Bid]) -> fm.Stream:
        return bids.select(lot="lot", twice="price * 2").select(lot="lot")

    result = plain.results[0][1]
    assert narrowed(result) is result
    assert narrowed(result.parent.parent) is result.parent.parent


def test_rows_that_are_quarantined_keep_all_columns() -> None:
    """A row in the quarantine shows the columns that its step received."""

    @fm.operator
    def after(bids: fm.Stream[Bid]) -> fm.Stream:
        shared = bids.select(lot="lot", price="price", words="words").lookup(TABLE, on={"key": "lot"})
        return shared.select(on_error="quarantine", share="price / lot")

    @fm.operator
    def rolled(bids: fm.Stream[Bid]) -> fm.Stream:
        rolling = bids.key_by("lot").rolling(n=fm.count(), most=fm.max("price"))
        return rolling.select(on_error="quarantine", share="100 / most").select(share="share")

    result = after.results[0][1]
    assert narrowed(result) is result
    assert without_unread_aggregates(rolled) is rolled
