"""Compiled expectations give Great Expectations' results, over odd rows, one row and none, on each engine."""

from __future__ import annotations

from typing import Any

import pytest
from odd_expectations import DDL, EXPECTED, FRAMES, ZEROS, Answer, answer, by_great_expectations, recorded
from pyspark.sql import SparkSession

from floodmark.control.processes.engine import Computing
from floodmark.observe import expectations as observed
from floodmark.spec.rows.criteria import KINDS


def judged(session: Any, frame: str) -> dict[str, Answer]:
    """Expectation -> the answer of its criterion; nothing is left to Great Expectations."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(observed, "_by_great_expectations", None)
        results = observed.evaluate(session.createDataFrame(FRAMES[frame], DDL), EXPECTED)
    return {one[0].name: answer(one) for one in results}


def differing(one: dict[str, Answer], other: dict[str, Answer]) -> dict[str, tuple[Answer, Answer]]:
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}


@pytest.mark.parametrize("frame", FRAMES)
def test_each_criterion_gives_the_answer_of_great_expectations(embedded: Computing, frame: str) -> None:
    """But for zeros with a sign, which are one value here, as on Spark."""
    mine = embedded.with_session(lambda session: judged(session, frame))
    assert {(frame, name) for name in differing(mine, recorded()[frame])} == {one for one in ZEROS if one[0] == frame}


def test_every_kind_that_compiles_is_compared() -> None:
    assert {one.kind for one in EXPECTED} == set(KINDS)
    assert all(answers.keys() == {one.name for one in EXPECTED} for answers in recorded().values())


@pytest.mark.soak
@pytest.mark.parametrize("frame", FRAMES)
def test_each_criterion_gives_the_answer_of_great_expectations_on_spark(spark: SparkSession, frame: str) -> None:
    mine = judged(spark, frame)
    assert not differing(mine, by_great_expectations(frame, spark, EXPECTED))
    assert mine.keys() == {one.name for one in EXPECTED}
