"""Rows for which an expression fails: the embedded engine sets aside the rows that Spark sets aside, with the same reasons."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field
from pyspark.sql import SparkSession
from seeds import seed_of

import floodmark as fm
from floodmark.core.errors import CapabilityError
from floodmark.core.time import from_ms
from floodmark.testing.embedded import EmbeddedCase
from floodmark.testing.log import Log
from floodmark.testing.runs import final
from floodmark.testing.spark import SparkCase


class Odd(fm.Contract):
    """Values of some types."""

    at: fm.EventTime
    key: str
    text: str | None
    small: int | None = None
    number: int | None = None
    real: float | None = None
    money: Annotated[Decimal | None, Field(max_digits=12, decimal_places=2)] = None


TEXTS = ["1", " 2 ", "x", "", "n/a", "it's", "a\\b", "-3", "1.5", "1e3", "9223372036854775808", "2147483648", "٣", "true", "no", "01/02/2020",
         "2020-01-31", "2020-02-30", "2020-13-01", "31.12.2020", "12:61", "2020-01-31 10:11:12", "2020-01-31 25:00:00", "NaN", "Infinity", None]  # fmt: skip
EXPRESSIONS = [
    "CAST(text AS int)",
    "CAST(text AS bigint) + 1",
    "CAST(text AS double) / number",
    "CAST(text AS boolean)",
    "CASE WHEN text LIKE '2020-__-__' OR text LIKE '%/%' OR text IN ('x', '', 'n/a') THEN CAST(text AS date) END",
    "small + 1",
    "small * small - 1",
    "number * 3",
    "number - small",
    "100 / number",
    "100 % small",
    "number DIV small",
    "money / number",
    "real / small",
    "CAST(number AS int)",
    "CAST(real AS int)",
    "CAST(small AS tinyint)",
    "if(small > 0, 10 / (small - 3), 1 / number)",
    "number > 5 AND 10 / small > 1",
    "coalesce(small, CAST(text AS int))",
    "element_at(array(1, 2, 3), small)",
]
NUMBERS = [0, 1, 3, -1, 5, 7, None, 100]


def rows(chance: random.Random, count: int) -> list[dict[str, object]]:
    """Rows of odd values."""
    found = []
    for place in range(count):
        number = chance.choice([*NUMBERS, (1 << 63) - 1, -(1 << 63), 1 << 31, 4_000_000_000])
        small = chance.choice([*NUMBERS, (1 << 31) - 1, -(1 << 31), 46341])
        real = chance.choice([0.0, -0.0, 2.5, float("nan"), 1e300, float("-inf"), 3e9, None])
        money = chance.choice([None, Decimal("1.50"), Decimal("0.00"), Decimal("-9.25")])
        text = chance.choice(TEXTS)
        found.append(
            {
                "at": from_ms(place),
                "key": "ab"[place % 2],
                "text": text,
                "small": small,
                "number": number,
                "real": real,
                "money": money,
            }
        )
    return found


def program(texts: list[str]) -> fm.Operator:
    """Some expressions as a filter, columns, values of a window and columns behind it."""
    condition, first, second, value, behind = texts

    @fm.operator(name="odd")
    def odd(events: fm.Stream[Odd]) -> fm.Stream:
        good = events.with_columns(small="CAST(small AS int)").filter(
            f"({condition}) IS NULL OR key IS NOT NULL", on_error="quarantine"
        )
        good = good.with_columns(one=first, two=second, on_error="quarantine")
        window = good.key_by("key").window(fm.Tumbling("50 ms"), on_error="quarantine")
        sums = window.aggregate(
            n=fm.count(), value=fm.max(value), text=fm.max("text"), small=fm.min("small"), number=fm.max("number"),
            real=fm.max("real"), money=fm.min("money"), one=fm.count("one"), two=fm.count("two"),
        )  # fmt: skip
        return sums.with_columns(behind=behind, on_error="quarantine")

    return odd


def compared(spark: SparkSession, folder: Path, chance: random.Random, count: int, share: float = 0.0) -> int:
    """Rows that Spark sets aside; the embedded engine sets aside the same ones."""
    operator = program(chance.sample(EXPRESSIONS, 5))
    log, given = Log(operator.inputs[0].schema), rows(chance, count)
    log.rows(given, "at", 1000)
    log.end()
    answers = {}
    for name, case in (
        ("spark", SparkCase(spark, operator, str(folder / "spark"))),
        ("bounded", EmbeddedCase(operator, str(folder / "bounded"))),
        ("unbounded", EmbeddedCase(operator, str(folder / "unbounded"))),
    ):
        case.land(log)
        try:
            (case.run_unbounded if name == "unbounded" else case.run_bounded)()
        except CapabilityError as error:  # a row Sail cannot judge, which stops the run
            if name == "spark" or error.code != "CAPABILITY-031":
                raise
            return 0
        answers[name] = {output: final([table]) for output, table in case.outputs().items()}
    for name in ("bounded", "unbounded"):
        for output, expected in answers["spark"].items():
            assert plain(answers[name][output]) == plain(expected), (name, output, operator.results)
        spark_says, sail_says = (reasons(answers[engine]["quarantine"]) for engine in ("spark", name))
        both = {row for row, said in spark_says.items() if said and sail_says[row].startswith("[")}
        other = {row: (sail_says[row], spark_says[row]) for row in both if sail_says[row] != spark_says[row]}
        assert len(other) <= share * len(both), (other, operator.results)  # of two parts that fail, each names one
    return len(answers["spark"]["quarantine"])


def plain(found: list[dict[str, object]]) -> list[str]:
    """Rows to be compared; a reason that Spark has not looked up, or Sail says in other words, stands for the expression alone."""
    return sorted(
        repr({**row, **({"reason": str(row["reason"]).split(": ")[0]} if "reason" in row else {})}) for row in found
    )


def reasons(quarantine: list[dict[str, object]]) -> dict[str, str]:
    """Step and row -> the reason behind the expression; empty where Spark has not looked it up."""
    said = {f"{row['step']} {row['given']}": str(row["reason"]).split(": ", 1)[1] for row in quarantine}
    return {row: "" if text == "no value for this row" else text for row, text in said.items()}


@pytest.mark.soak
def test_the_same_rows_are_set_aside_as_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    assert compared(spark, tmp_path, chance, 60) > 5


@pytest.mark.soak
@pytest.mark.parametrize("number", range(12))
def test_the_same_rows_are_set_aside_whatever_they_are(spark: SparkSession, tmp_path: Path, number: int) -> None:
    seed = seed_of(f"failing {number}")
    compared(spark, tmp_path, random.Random(seed), 300, share=0.5)
