"""The plan by which an engine would compute a bounded run over all of time, as the engine itself says it. Nothing is computed."""

# ruff: noqa: PLC0415 - the engine that is not asked is not imported

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.core.time import Interval
from floodmark.engines.frames.client import is_sail
from floodmark.engines.frames.floats import unranged
from floodmark.engines.frames.inputs import require_columns
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import entries
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.values.schema import MARKER, STAMP_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LENGTH, _LONGEST = "spark.sql.maxMetadataStringLength", "10000"
"""Spark cuts columns and conditions of a scan after a hundred characters; here only very long ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Physical:
    """The plan of some rows.

    Args:
        name: of the output's table, or of the rows.
        engine: that has made the plan: Spark, Sail, or a kernel.
        text: the plan.
    """

    name: str
    engine: str
    text: str


def plans(spark: SparkSession, operator: Operator, lake: Lake) -> list[Physical]:
    """The plans of an operator's outputs. An input without a table counts as one without rows.

    Args:
        spark: session of the engine.
        operator: any that the engine can run.
        lake: with the inputs.

    Raises:
        CapabilityError: as of a bounded run.
        ExecutionError: EXECUTION-005, a table of an input lacks a column.
    """
    inputs = {input_.name: _rows(spark, operator, input_, lake) for input_ in operator.inputs}
    if is_sail(spark):
        return _by_sail(operator, lake, inputs)
    from floodmark.engines.spark.bounded.run import compute

    outputs = compute(operator, inputs, Interval(), "as_landed", [], plan_only=True).outputs
    usual = spark.conf.get(_LENGTH)
    spark.conf.set(_LENGTH, _LONGEST)
    try:
        return [Physical(name=output.table, engine="Spark", text=_text(rows)) for output, rows in outputs]
    finally:
        spark.conf.set(_LENGTH, str(usual))


def _by_sail(operator: Operator, lake: Lake, inputs: dict[str, DataFrame]) -> list[Physical]:
    from floodmark.engines.embedded.bounded.run import planned

    frames, then = planned(operator, lake, inputs)
    parts = [Physical(name=name, engine="Sail", text=_text(rows)) for name, rows in frames]
    return [*parts, *([Physical(name=frames[-1][0], engine="kernel", text=then)] if then else [])]


def _rows(spark: SparkSession, operator: Operator, input_: Input, lake: Lake) -> DataFrame:
    path = lake.input(input_)
    if not entries.is_table(path):
        return spark.createDataFrame([], f"{input_.schema.ddl()}, {STAMP_DDL}")
    rows = require_columns(spark.read.format("delta").load(path), operator, input_)
    return unranged(rows).filter(f"`_kind` <> {MARKER}")


def _text(rows: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        rows.explain(mode="simple")
    return printed.getvalue().strip()
