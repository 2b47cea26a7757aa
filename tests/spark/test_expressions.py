"""Expressions of the user's over the rows of a stream, as Spark plans them: compiled and interpreted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import floodmark as fm
from floodmark.core.errors import ExecutionError
from floodmark.core.time import from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.upgrading import check, upgrade
from floodmark.spec.values.schema import ROW, STAMPS
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
    good = months.filter(f"{_DATE} > DATE '2020-06-01'").filter("1000 / coalesce(v, 0) > 1").filter("y <> '${x}'")
    whole = good.with_columns(
        text="'${x} ${env:HOME}'", day=_DATE, per="100 / coalesce(v, 0)", twice="100 / coalesce(v, 0) + 1"
    )
    return fm.Outputs(high=whole.filter("per > 20"), low=whole.filter("twice > 1"))


@fm.operator
def stateful(months: fm.Stream[Month]) -> fm.Stream:
    """Everything around a window that can be an expression."""
    dated = months.filter(f"{_DATE} > DATE '2020-06-01'").with_columns(per="100 / coalesce(v, 0)")
    gap = fm.Session("CAST(100 / coalesce(v, 0) AS bigint)", per_row=True)
    made = dated.key_by("y").window(gap, late="side_output")
    counted = made.aggregate(most=fm.max("100 / coalesce(v, 0)"), first=fm.min_by("m", "100 / coalesce(v, 0)"))
    return counted.filter("1000 / coalesce(most, 0) > 1").with_columns(again="10 / coalesce(most, 0)")


@pytest.fixture
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


@pytest.mark.parametrize(
    ("planned", "operator"),
    [
        pytest.param("compiled", stateless, marks=pytest.mark.soak),
        ("compiled", stateful),
        *(pytest.param("interpreted", operator, marks=pytest.mark.soak) for operator in (stateless, stateful)),
    ],
    indirect=["planned"],
    ids=lambda value: getattr(value, "name", value),
)
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
    assert rows(case.outputs()) == rows(MemoryRun(operator).batch({"months": log.table()}))


@fm.operator
def everywhere(months: fm.Stream[Month]) -> fm.Stream:
    """Before a window, in it and after it; and twice what Spark would compute once, before either."""
    dated = months.filter("100 / v > 0", on_error="quarantine")
    dated = dated.with_columns(n="CAST(m AS int)", more="CAST(m AS int) + 1", on_error="quarantine")
    made = dated.key_by("y").window(fm.Tumbling("10 ms"), on_error="quarantine")
    made = made.aggregate(n=fm.count(), per=fm.max("100 / (n - 7)"), least=fm.min("100 / (n - 7) + 1"))
    return made.with_columns(one="1 / (n - 2)", two="1 / (n - 2) + 1", on_error="quarantine")


def months(*given: tuple[str, str, int]) -> Log:
    """Rows of (y, m, v), 3 ms apart, with markers between them, and their end."""
    log = Log(everywhere.inputs[0].schema)
    for place, (y, m, v) in enumerate(given):
        log.row({"at": from_ms(3 * place), "y": y, "m": m, "v": v}, 3 * place)
        log.move(3 * place - 20)
    log.end()
    return log


@pytest.mark.soak
@pytest.mark.parametrize("planned", ["compiled"], indirect=True)
def test_rows_an_expression_fails_for_are_set_aside_in_both_modes(planned, tmp_path):
    log = months(
        *[("a", "1", 5), ("a", "x", 5), ("b", "2", 0), ("b", "7", 1), ("a", "3", 3), ("b", "4", 1), ("a", "5", 2)]
    )
    found = []
    for mode in ("run_bounded", "run_unbounded"):
        case = SparkCase(planned, everywhere, str(tmp_path / mode))
        case.land(log)
        getattr(case, mode)()
        found.append(rows(case.outputs()))
    assert found[0] == found[1]
    told = {(one["step"], one["key"], one["reason"].split(". ")[0]) for one in found[0]["quarantine"]}
    assert told == {
        ("filter", None, "100 / v > 0: [DIVIDE_BY_ZERO] Division by zero"),
        ("column 'n'", None, f"CAST(m AS int): {_NO_NUMBER}"),
        ("step 'everywhere'", '{"y": "b"}', "100 / (n - 7): [DIVIDE_BY_ZERO] Division by zero"),
        ("column 'one'", None, "1 / (n - 2): [DIVIDE_BY_ZERO] Division by zero"),
    }
    given = next(one["given"] for one in found[0]["quarantine"] if one["step"] == "filter")
    assert given == '{"at": "1970-01-01 00:00:00.006000+00:00", "y": "b", "m": "2", "v": 0}'
    assert [(one["y"], one["n"]) for one in found[0][""]] == [("a", 1), ("b", 1)]


_NO_NUMBER = '[CAST_INVALID_INPUT] The value \'x\' of the type "STRING" cannot be cast to "INT" because it is malformed'


@pytest.mark.soak
@pytest.mark.parametrize("planned", ["compiled"], indirect=True)
def test_a_stream_that_stopped_at_a_row_goes_on_when_such_rows_are_set_aside(planned, tmp_path):
    def version(on_error):
        @fm.operator(name="per_key")
        def per_key(months: fm.Stream[Month]) -> fm.Stream:
            good = months.with_columns(n="CAST(m AS int)", on_error=on_error)
            return good.key_by("y").window(fm.Tumbling("20 ms")).aggregate(total=fm.sum("n"))

        return per_key

    log = months(("a", "1", 1), ("b", "2", 1), ("a", "x", 1), ("a", "3", 1))
    stops = SparkCase(planned, version("stop"), str(tmp_path / "stream"))
    stops.land(log, 0, 3)
    stops.run_unbounded()
    stops.land(log, 3)
    wanted = r'EXECUTION-050 unbounded .*key {"y": "a"}, event time 1970-01-01T00:00:00.006000\+00:00, _sequence 4'
    with pytest.raises(ExecutionError, match=wanted) as raised:
        stops.run_unbounded()
    assert _NO_NUMBER in raised.value.got
    bounded = SparkCase(planned, version("stop"), str(tmp_path / "bounded"))
    bounded.land(log)
    with pytest.raises(ExecutionError, match=wanted.replace("unbounded", "bounded")):
        bounded.run_bounded()
    sets_aside = SparkCase(planned, version("quarantine"), str(tmp_path / "stream"))
    assert check(sets_aside.operator, sets_aside.lake).verdict == "stateless change"
    upgrade(sets_aside.operator, sets_aside.lake)
    sets_aside.run_unbounded()
    found = rows(sets_aside.outputs())
    assert [(one["y"], one["total"]) for one in found[""]] == [("a", 4), ("b", 2)]
    assert len(found["quarantine"]) == 1
