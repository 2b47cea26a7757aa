"""Expressions of the user's over the rows of a stream, as Spark plans them: compiled and interpreted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.engines.local.engine import LocalRun
from floodmark.spec.schema import ROW, STAMPS
from floodmark.testing.log import Log
from floodmark.testing.spark import SparkCase


class Month(fm.Contract):
    """Parts of a date, and numbers that are never null."""

    at: fm.EventTime
    y: str
    m: str
    v: int


_DATE = "CAST(concat_ws('-', y, m, '01') AS date)"
"""Fails where both columns are null."""


@fm.operator
def stateless(months: fm.Stream[Month]) -> fm.Outputs:
    """Conditions and columns, one upon the other."""
    good = months.filter(f"{_DATE} > DATE '2020-06-01'").filter("1000 / coalesce(v, 0) > 1")
    whole = good.with_columns(day=_DATE, per="100 / coalesce(v, 0)", twice="100 / coalesce(v, 0) + 1")
    return fm.Outputs(high=whole.filter("per > 20"), low=whole.filter("twice > 1"))


@fm.operator
def stateful(months: fm.Stream[Month]) -> fm.Stream:
    """Everything around a window that can be an expression."""
    dated = months.filter(f"{_DATE} > DATE '2020-06-01'").with_columns(per="100 / coalesce(v, 0)")
    gap = fm.Session("CAST(100 / coalesce(v, 0) AS bigint)", per_row=True)
    made = dated.key_by("y").window(gap, late="side_output")
    counted = made.aggregate(most=fm.max("100 / coalesce(v, 0)"), first=fm.min_by("m", "100 / coalesce(v, 0)"))
    return counted.filter("1000 / coalesce(most, 0) > 1").with_columns(again="10 / coalesce(most, 0)")


@pytest.fixture(params=["compiled", "interpreted"])
def planned(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which compiles queries or interprets them."""
    compiles = request.param == "compiled"
    wanted = {
        "spark.sql.codegen.wholeStage": str(compiles).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if compiles else "NO_CODEGEN",
    }
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def rows(tables):
    """Output name -> its rows without stamps, in order."""
    kept = {name: [one for one in table.to_pylist() if one["_kind"] == ROW] for name, table in tables.items()}
    plain = {name: [{k: v for k, v in one.items() if k not in STAMPS} for one in found] for name, found in kept.items()}
    return {name: sorted(found, key=repr) for name, found in plain.items() if found}


@pytest.mark.parametrize("operator", [stateless, stateful], ids=lambda operator: operator.name)
def test_no_expression_is_computed_for_a_marker(planned, operator, tmp_path):
    log = Log(operator.inputs[0].schema)
    log.row({"at": from_ms(1), "y": "2021", "m": "02", "v": 4}, 1)
    log.row({"at": from_ms(5), "y": "2021", "m": "03", "v": 50}, 5)
    log.move(900)
    log.row({"at": from_ms(2), "y": "2022", "m": "03", "v": 50}, 2)
    log.end()
    case = SparkCase(planned, operator, str(tmp_path))
    case.land(log)
    case.run_unbounded()
    assert rows(case.outputs()) == rows(LocalRun(operator).batch({"months": log.table()}))
