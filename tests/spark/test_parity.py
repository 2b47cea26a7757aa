"""Expressions the embedded engine lets through, drawn at random: Sail's answers are Spark's."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from parity import comparison, nested, probes, spark_run, values
from parity.sail_side import Sail
from pyspark.sql import SparkSession
from seeds import seed_of

COUNT = 400

LOUD = 0.03
"""The most expressions of which Sail has an error where Spark leaves out an argument that fails, beside a constant or a null that decides."""


@pytest.mark.soak
@pytest.mark.parametrize("number", range(2))
def test_random_expressions_out_of_expressions_come_out_alike(spark: SparkSession, tmp_path: Path, number: int) -> None:
    seed = seed_of(f"nested {number}")
    chance = random.Random(seed)
    values.write(tmp_path)
    texts = [*probes.readable(probes.usual()), *probes.readable(probes.special())]
    made = list(nested.nested(chance.sample(texts, 4000), 600, chance))
    answers = spark_run.ask(spark, tmp_path, list(dict.fromkeys(made)))
    packed = {text: zlib.compress(answer.encode()) for text, answer in answers.items()}
    sail = Sail(tmp_path)
    try:
        found = comparison.outcomes(sail, comparison.Kept(packed))
    finally:
        sail.close()
    assert len(found) > 400
    _alike(found, seed)


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
    _alike(found, seed)


def _alike(found: Mapping[str, comparison.Outcome], seed: int) -> None:
    """No value is another one; an error in place of a value stops a run, so that it is known, and is rare."""
    differ = {text: (one.spark, one.sail, one.sql) for text, one in found.items() if one.verdict == "differs"}
    wrong = {text: one for text, one in differ.items() if not one[1].startswith("!")}
    assert wrong == {}, f"FLOODMARK_SEEDS with seed {seed}"
    assert len(differ) <= LOUD * len(found), (differ, f"FLOODMARK_SEEDS with seed {seed}")
