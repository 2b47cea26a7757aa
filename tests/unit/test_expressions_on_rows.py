"""Expressions of the user's see rows, and nothing else that is among them: no markers, no ticks."""

from __future__ import annotations

import pytest

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.engines.local.engine import LocalRun
from floodmark.spec.schema import ROW
from floodmark.testing.log import Log


class Month(fm.Contract):
    """Parts of a date."""

    at: fm.EventTime
    y: str
    m: str


DATE = "CAST(concat_ws('-', y, m, '01') AS date)"
"""Fails where both columns are null."""


@pytest.mark.parametrize(
    "build",
    [
        lambda months: months.filter(f"{DATE} > DATE '2020-06-01'"),
        lambda months: months.with_columns(day=DATE),
        lambda months: months.key_by("y").window(fm.Tumbling("1 s")).aggregate(last=fm.max(DATE)),
    ],
    ids=["filter", "project", "aggregate"],
)
def test_no_expression_is_computed_for_a_marker_or_a_tick(build):
    @fm.operator(name="dated")
    def dated(months: fm.Stream[Month]) -> fm.Stream:
        return build(months)

    log = Log(dated.inputs[0].schema)
    log.row({"at": from_ms(1), "y": "2021", "m": "02"}, 1)
    log.tick(5)
    log.end()
    table = LocalRun(dated).batch({"months": log.table()})[""]
    assert table["_kind"].to_pylist().count(ROW) == 1
