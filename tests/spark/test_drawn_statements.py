"""Drawn statements on Spark: a stream in commits and a bounded run have DuckDB's answer; a stream that SIGKILL ends goes on to it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from drawn_answers import asked, plain, rows_of
from drawn_statements import Statement, statement
from seeds import seed_of

from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.workspace import Settings
from floodmark.testing.killed_proof import answer_in, land_in_commits, prove_by_killing


def of_one_stage(name: str, *, changes: bool | None = None) -> tuple[int, Statement]:
    """(seed, statement) of a drawn statement with state, of one stage."""
    first = seed_of(name)
    drawn = ((seed, statement(seed, changes=changes)) for seed in count(first))
    return next((seed, one) for seed, one in drawn if len(one.operator().stages) == 1)


NUMBERS = [pytest.param(number, marks=pytest.mark.soak) for number in range(16)]


@pytest.mark.engines("spark")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_drawn_statement_has_duckdbs_answer_in_both_modes(engine: Computing, tmp_path: Path, number: int) -> None:
    seed, drawn = of_one_stage(f"statement on Spark {number}", changes=number % 2 == 0)
    operator, rows = drawn.operator(), rows_of(drawn, seed, 40)
    expected = asked(drawn.relation.duck, rows)
    for mode in ("unbounded", "bounded"):
        lake = Lake(str(tmp_path / mode))
        land_in_commits(operator, rows, lake)
        if mode == "bounded":
            engine.run_bounded(operator, lake, Interval())
        else:
            engine.run_unbounded(operator, lake, until_caught_up=True, files_per_batch=2)
        assert plain(answer_in(operator, lake)) == expected, f"{mode}, seed {seed}: {drawn.sql}"


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("number", range(4))
def test_a_killed_stream_of_a_drawn_statement_on_spark_goes_on_to_the_bounded_answer(
    tmp_path: Path, number: int
) -> None:
    seed, drawn = of_one_stage(f"killed statement on Spark {number}")
    rows = rows_of(drawn, seed, 60)
    proof = prove_by_killing("spark", drawn.operator(), rows, str(tmp_path), Settings(lake=str(tmp_path)), seed=seed)
    assert proof.differences == (), f"seed {seed}: {drawn.sql}"
    assert proof.results == sum(asked(drawn.relation.duck, rows).values())
