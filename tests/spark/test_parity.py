"""Expressions the embedded engine lets through, drawn at random: Sail's answers are Spark's."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest
from parity import comparison, nested, probes, spark_run, values
from parity.sail_side import Sail
from pyspark.sql import SparkSession
from seeds import seed_of

COUNT = 400


@pytest.mark.soak
def test_random_expressions_that_are_let_through_come_out_alike(spark: SparkSession, tmp_path: Path) -> None:
    seed = seed_of("parity")
    chance = random.Random(seed)
    values.write(tmp_path)
    known = chance.sample([*probes.readable(probes.usual()), *probes.readable(probes.special())], 8000)
    single = [text for text in known if nested.passes(text)][:COUNT]
    assert len(single) == COUNT
    answers = spark_run.ask(spark, tmp_path, list(dict.fromkeys(single)))
    packed = {text: zlib.compress(answer.encode()) for text, answer in answers.items()}
    sail = Sail(tmp_path)
    try:
        found = comparison.outcomes(sail, comparison.Kept(packed))
    finally:
        sail.close()
    wrong = {text: (one.spark, one.sail, one.sql) for text, one in found.items() if one.verdict == "differs"}
    assert wrong == {}, f"FLOODMARK_SEEDS with seed {seed}"
