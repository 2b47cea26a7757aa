"""Programs and rows drawn at random, with odd values, on Spark: a stream of random micro-batches, a bounded run and the rules agree.

Without Spark: ``tests/property/test_odd_programs.py``. ``FLOODMARK_SEEDS`` draws the programs of a run again.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from odd_programs import Program, differences, draw_program
from pyspark.sql import SparkSession
from seeds import seed_of

from floodmark.core.errors import ExecutionError
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.testing.runs import final
from floodmark.testing.spark import SparkCase

Outputs = dict[str, list[dict[str, Any]]]


def unbounded(spark: SparkSession, program: Program, folder: Path) -> Outputs:
    """One commit after the other, each a micro-batch, with one restart between two of them."""
    case, log = SparkCase(spark, program.operator(), str(folder)), program.log()
    for number, (start, stop) in enumerate(itertools.pairwise([0, *program.cuts, len(log.entries)])):
        if number == program.restart:
            run_unbounded(spark, case.operator, case.lake, until_caught_up=True, files_per_batch=1)
        case.land(log, start, stop)
    run_unbounded(spark, case.operator, case.lake, until_caught_up=True, files_per_batch=1)
    return {name: final([table]) for name, table in case.outputs().items()}


def bounded(spark: SparkSession, program: Program, folder: Path) -> Outputs:
    """All rows at once."""
    case = SparkCase(spark, program.operator(), str(folder))
    case.land(program.log())
    case.run_bounded()
    return {name: final([table]) for name, table in case.outputs().items()}


@pytest.fixture
def small(spark: SparkSession) -> Any:
    """Two state partitions."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.parametrize("schedule", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 24))])
def test_a_random_program_of_odd_values_gives_the_oracles_rows_in_both_modes(
    small: SparkSession, tmp_path: Path, schedule: int
) -> None:
    program = draw_program(seed_of(f"odd program {schedule}"))
    for run in (bounded, unbounded):
        if program.overflows:
            with pytest.raises(ExecutionError, match="EXECUTION-001"):
                run(small, program, tmp_path / run.__name__)
            continue
        wrong = differences(program, run(small, program, tmp_path / run.__name__))
        assert not wrong, f"{run.__name__} run of {program}: " + "\n".join(wrong[:5])
