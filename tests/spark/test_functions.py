"""Spark is asked for its functions and for the types of expressions; the definitions' tables say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spark_answers import RECORD, TYPES, table, written

from floodmark.spec.expressions.functions import classified

SPARK: dict[str, dict[str, Any]] = json.loads(RECORD.read_text())
VALUES = {
    text: answer
    for text, answer in SPARK.items()
    if "values" in answer and not any(isinstance(value, dict) for value in answer["values"])
}
SETTLED = {text: answer for text, answer in VALUES.items() if text not in {"shuffle(ai)", "explode(ai)"}}
PARTS = 3


def test_every_function_spark_lists_is_classified(spark):
    names = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert len(names) > 500
    assert sorted(name for name in names if classified(name) is None) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_the_recorded_types_and_values_are_sparks(spark, part):
    texts = list(SETTLED)[part::PARTS]
    rows = spark.createDataFrame(table())
    frame = rows.selectExpr(*(f"({text}) AS `{number}`" for number, text in enumerate(texts)))
    kinds = [field.dataType.simpleString() for field in frame.schema.fields]
    assert dict(zip(texts, kinds, strict=True)) == {text: SETTLED[text]["type"] for text in texts}
    columns = frame.toArrow()
    wrong = {
        text: values
        for number, text in enumerate(texts)
        if (values := [written(v) for v in columns[str(number)].to_pylist()]) != SETTLED[text]["values"]
    }
    assert wrong == {}
    assert set(TYPES) == set(rows.columns)
