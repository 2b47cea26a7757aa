"""Questions whose numbers get too large: an error as on Spark, where the plan of the engine alone goes on with another number."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import Field

import floodmark as fm
from floodmark.cli.asking.question import Question
from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.core.time import from_ms
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.ranges import largest
from floodmark.spec.rows.contract import schema
from floodmark.testing.lakes import as_written
from floodmark.testing.log import Log


class Amount(fm.Contract):
    """A number, and a small one."""

    at: fm.EventTime
    large: int | None
    small: int


@fm.operator
def amounts(lines: fm.Stream[Amount]) -> fm.Stream:
    """All rows."""
    return lines.select("large", "small")


def asking(sail: Sail, folder: Path, sql: str, *large: int | None) -> Question:
    """A statement over rows of these numbers."""
    lake, log = Lake(str(folder)), Log(amounts.inputs[0].schema)
    rows = [{"at": from_ms(number), "large": value, "small": number} for number, value in enumerate(large)]
    log.rows(rows, "at", 1000)
    log.end()
    write_deltalake(lake.input(amounts.inputs[0]), as_written(log.table()))
    lines = fm.Source("lines", contract=Amount, connector=fm.Files(str(folder)), watermark=fm.Ascending())
    sail.begin()
    return Question(sql, fm.Workspace(sources=[lines], operators=[amounts]), lake, sail, "0 s")


MOST = 2**63 - 1


@pytest.mark.feature("Q1", "B6")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(large) AS total FROM lines",
        "SELECT small + large AS both FROM lines ORDER BY both DESC LIMIT 3",
        "SELECT small, SUM(large * 2) AS total FROM lines GROUP BY small",
        "SELECT (length(CAST(small AS STRING)) + 2) * 2000000000 AS many FROM lines",
    ],
)
def test_a_number_that_is_too_large_is_an_error(sail: Sail, tmp_path: Path, sql: str) -> None:
    with pytest.raises(ExecutionError):
        asking(sail, tmp_path, sql, MOST, MOST, None).answer()


UNITED = " UNION ALL ".join(["SELECT large AS v FROM lines"] * 4)


@pytest.mark.feature("Q1", "B6")
@pytest.mark.parametrize(
    ("sql", "large"),
    [
        ("SELECT SUM(x.v) AS s FROM lines AS x(a, v, c)", [2**62] * 3),
        ("SELECT SUM(large) * SUM(large) AS s FROM lines ORDER BY s", [1_500_000_000] * 3),
        ("SELECT SUM(w) AS s FROM (SELECT SUM(large) OVER () AS w FROM lines) ORDER BY s", [2**60] * 3),
        ("SELECT w * w AS s FROM (SELECT SUM(large) AS w FROM lines) ORDER BY s", [1_500_000_000] * 3),
        ("SELECT v * v AS s FROM (SELECT large * large AS v FROM lines) ORDER BY s", [70_000]),
        ("SELECT SUM(a.large) AS s FROM lines a CROSS JOIN lines b ORDER BY s", [2**60] * 3),
        (
            "WITH c AS (SELECT large FROM lines) SELECT SUM(a.large) AS s FROM c a CROSS JOIN c b ORDER BY s",
            [2**60] * 3,
        ),
        (f"SELECT SUM(v) AS s FROM ({UNITED}) ORDER BY s", [2**61]),
        ("SELECT SUM(h) AS s FROM (SELECT shiftleft(large, 62) AS h FROM lines) ORDER BY s", [1] * 5),
    ],
)
def test_a_number_that_gets_too_large_on_the_way_is_an_error(
    sail: Sail, tmp_path: Path, sql: str, large: list[int]
) -> None:
    with pytest.raises(ExecutionError):
        asking(sail, tmp_path, sql, *large).answer()


@pytest.mark.feature("B6")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT small, SUM(large) AS large, SUM(small) AS small_ones, COUNT(*) AS n FROM lines GROUP BY small ORDER BY n",
        "SELECT SUM(large) AS total FROM (SELECT large, upper('a') AS u FROM lines) AS l WHERE u = 'A' ORDER BY total",
    ],
)
def test_sums_beside_each_other_are_those_of_the_engine_alone(sail: Sail, tmp_path: Path, sql: str) -> None:
    made = asking(sail, tmp_path, sql, *([10**15] * 100))
    with patch.object(Question, "_checked", side_effect=AssertionError):
        assert made.answer().num_rows


@fm.operator
def tinies(lines: fm.Stream[Amount]) -> fm.Stream:
    """Small numbers of a type of their own."""
    return lines.select(tiny="CAST(small AS smallint)")


@pytest.mark.feature("Q1", "B6")
@pytest.mark.parametrize("sql", ["SELECT tiny + tiny AS s FROM tinies", "SELECT tiny * tiny AS s FROM tinies"])
def test_a_smallint_that_gets_too_large_is_an_error(sail: Sail, tmp_path: Path, sql: str) -> None:
    asked = asking(sail, tmp_path, f"{sql} ORDER BY s", 1)
    stored = DeltaTable(asked.lake.input(amounts.inputs[0])).to_pyarrow_table()
    write_deltalake(asked.lake.output("tinies"), stored.append_column("tiny", pa.array([20_000] * 2, pa.int16())))
    workspace = fm.Workspace(sources=asked.workspace.sources, operators=[tinies])
    with pytest.raises(ExecutionError):
        replace(asked, workspace=workspace).answer()


@pytest.mark.feature("Q1", "B6")
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT SUM(large) AS total FROM lines", [(MOST,)]),
        ("SELECT small + 1 AS s, large FROM lines ORDER BY large DESC, small LIMIT 1", [(2, MOST - 1)]),
        ("SELECT small + 1 AS s FROM lines ORDER BY large DESC LIMIT 1", [(2,)]),
        ("SELECT small, SUM(large) AS total FROM lines WHERE small > 5 GROUP BY small", []),
    ],
)
def test_large_numbers_that_fit_are_the_answer(
    sail: Sail, tmp_path: Path, sql: str, expected: list[tuple[int, ...]]
) -> None:
    rows = asking(sail, tmp_path, sql, 1, MOST - 1, None).answer().to_pylist()
    assert [tuple(row.values()) for row in rows] == expected


@pytest.mark.feature("B6")
def test_small_numbers_are_summed_by_the_plan_of_the_engine_alone(sail: Sail, tmp_path: Path) -> None:
    made = asking(sail, tmp_path, "SELECT SUM(small * 100) AS total FROM lines", 1, -5, None)
    with patch.object(Question, "_checked", side_effect=AssertionError):
        assert made.answer().to_pylist() == [{"total": 300}]
    assert largest(made.lake.input(amounts.inputs[0]), ["large", "small"])[1] == 5


class Price(fm.Contract):
    """An amount of many digits, one of money, and one that came to the contract later."""

    at: fm.EventTime
    whole: Annotated[Decimal, Field(max_digits=38, decimal_places=0)] | None
    money: Annotated[Decimal, Field(max_digits=20, decimal_places=2)]


class Priced(Price):
    """With a column that no row has yet."""

    note: str | None = None


@fm.operator
def prices(lines: fm.Stream[Priced]) -> fm.Stream:
    """All rows."""
    return lines.select("whole", "money", "note")


def pricing(sail: Sail, folder: Path, sql: str, *whole: Decimal) -> Question:
    """A statement over rows of these amounts, whose log has no column ``note``; the output ``prices`` has none either."""
    lake, log = Lake(str(folder)), Log(schema(Price))
    rows = [{"at": from_ms(n), "whole": value, "money": Decimal(n) + Decimal("0.25")} for n, value in enumerate(whole)]
    log.rows(rows, "at", 1000)
    log.end()
    for path in (lake.input(prices.inputs[0]), lake.output("prices")):
        write_deltalake(path, as_written(log.table()))
    connector = fm.Files(str(folder))
    lines = fm.Source("lines", contract=Priced, connector=connector, watermark=fm.Ascending())
    sail.begin()
    return Question(sql, fm.Workspace(sources=[lines], operators=[prices]), lake, sail, "0 s")


GREATEST, LESS = Decimal(10**38 - 1), Decimal(10**38 - 2)


class Pair(fm.Contract):
    """Two amounts of many digits, whose names are nearly one."""

    at: fm.EventTime
    x: Annotated[Decimal, Field(max_digits=38, decimal_places=0)]
    x_: Annotated[Decimal, Field(max_digits=38, decimal_places=0)]


@pytest.mark.feature("B6")
def test_a_total_that_is_too_small_is_an_error(sail: Sail, tmp_path: Path) -> None:
    lake, log = Lake(str(tmp_path)), Log(schema(Pair))
    log.rows([{"at": from_ms(n), "x": Decimal(1 - 10**38), "x_": Decimal(1)} for n in range(2)], "at", 1000)
    log.end()
    pairs = fm.Source("pairs", contract=Pair, connector=fm.Files(str(tmp_path)), watermark=fm.Ascending())
    write_deltalake(lake.log("pairs"), as_written(log.table()))
    sail.begin()
    text = "SELECT SUM(x) AS s, MAX(x_) AS m FROM pairs ORDER BY s"
    with pytest.raises(ExecutionError, match="expected a total that fits"):
        Question(text, fm.Workspace(sources=[pairs], operators=[]), lake, sail, "0 s").answer()


@pytest.mark.feature("Q1", "B6")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(whole) AS total FROM lines",
        "SELECT money, SUM(whole) AS total FROM lines GROUP BY money > 0, money HAVING SUM(whole) > 1 UNION ALL SELECT SUM(whole), 1 FROM lines",
        "SELECT whole * 3 AS s FROM lines ORDER BY whole LIMIT 1",
    ],
)
def test_a_decimal_that_is_too_large_is_an_error(sail: Sail, tmp_path: Path, sql: str) -> None:
    with pytest.raises((ExecutionError, CapabilityError)):
        pricing(sail, tmp_path, sql, GREATEST, GREATEST).answer()


@pytest.mark.feature("Q1", "B6")
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT SUM(whole) AS total FROM lines", [(LESS,)]),
        ("SELECT SUM(money) AS total FROM lines", [(Decimal("3.75"),)]),
        ("SELECT money * money AS m FROM lines ORDER BY m LIMIT 1", [(Decimal("0.0625"),)]),
        ("SELECT COUNT(*) AS n FROM lines WHERE whole > 99999999999999999999 ORDER BY n", [(1,)]),
        ("SELECT note, COUNT(*) AS n FROM lines GROUP BY note ORDER BY n", [(None, 3)]),
    ],
)
def test_decimals_that_fit_are_the_answer_and_no_file_is_left_out(
    sail: Sail, tmp_path: Path, sql: str, expected: list[tuple[Any, ...]]
) -> None:
    rows = pricing(sail, tmp_path, sql, LESS, Decimal(-1), Decimal(1)).answer().to_pylist()
    assert [tuple(row.values()) for row in rows] == expected


@pytest.mark.feature("B6")
def test_money_is_summed_by_the_plan_of_the_engine_alone(sail: Sail, tmp_path: Path) -> None:
    made = pricing(sail, tmp_path, "SELECT SUM(money * 2) AS total FROM lines", GREATEST)
    with patch.object(Question, "_checked", side_effect=AssertionError):
        assert made.answer().to_pylist() == [{"total": Decimal("0.5")}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT money FROM prices",
        "SELECT COUNT(*) AS n FROM prices ORDER BY n",
        "SELECT whole * 3 AS s FROM prices ORDER BY s",
    ],
)
def test_a_table_of_another_version_is_refused_with_the_plan_of_its_operator(
    sail: Sail, tmp_path: Path, sql: str
) -> None:
    with pytest.raises(ExecutionError, match="got a table without note.*floodmark plan prices$"):
        pricing(sail, tmp_path, sql, GREATEST).answer()


class Renamed(Price):
    """With a column that no row may lack."""

    shop: str


def test_a_log_without_a_column_of_the_contract_is_refused_with_what_may_come_into_a_log(
    sail: Sail, tmp_path: Path
) -> None:
    asked = pricing(sail, tmp_path, "SELECT shop, whole * 3 AS s FROM lines ORDER BY s", GREATEST)
    lines = fm.Source("lines", contract=Renamed, connector=fm.Files(str(tmp_path)), watermark=fm.Ascending())
    with pytest.raises(ExecutionError, match="table 'lines'.*A new field may come into a log if it is optional: shop"):
        replace(asked, workspace=fm.Workspace(sources=[lines], operators=[])).answer()


@fm.operator
def hourly(lines: fm.Stream[Amount]) -> fm.Stream:
    """Totals of each hour, and the rows that were too late for them."""
    return lines.key_by("small").window(fm.Tumbling("1 hour"), late="side_output").aggregate(total=fm.sum("large"))


def test_late_rows_of_another_version_are_refused_with_the_plan_of_their_operator(sail: Sail, tmp_path: Path) -> None:
    asked = asking(sail, tmp_path, "SELECT large FROM hourly__late ORDER BY large", 1)
    write_deltalake(asked.lake.output("hourly__late"), pa.table({"_kind": [0], "other": [1]}))
    workspace = fm.Workspace(sources=asked.workspace.sources, operators=[hourly])
    with pytest.raises(
        ExecutionError, match=r"Another version of 'hourly' has written it. See: floodmark plan hourly$"
    ):
        replace(asked, workspace=workspace).answer()
