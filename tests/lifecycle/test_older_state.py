"""A savepoint with state of an older format: a stream goes on from it, or says what to type."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from events import disorder
from older_state import as_lists, numbered, rewrite
from pyspark.sql import SparkSession
from streams import ONCE, VISITS, WATCHED, check

from floodmark import Operator
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import FloodmarkError
from floodmark.engines.embedded.state import canonical as of_embedded
from floodmark.engines.spark.state import canonical as of_spark
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.semantics.state.entries import CODEC
from floodmark.semantics.state.marks import CODEC as MARKS
from floodmark.semantics.state.store import MemoryStore
from floodmark.testing.lakes import land

ROWS = 120


def taken_back(
    engine: Computing,
    request: pytest.FixtureRequest,
    lake: Lake,
    code: Operator,
    out: Path,
    as_before: Callable[[MemoryStore], MemoryStore],
) -> None:
    """Half of its log is read; then its stream stands where a savepoint does whose state is in an older format."""
    log = disorder(code, 5, ROWS)
    land(lake, code, log, 0, len(log.entries) // 2)
    engine.run_unbounded(code, lake, until_caught_up=True)
    made = savepoints.create(code.name, lake)
    if engine.name == "embedded":
        place = of_embedded.export(made, str(out))
        assert rewrite(place, as_before)
        taken = of_embedded.import_savepoint(lake, place)
    else:
        spark: SparkSession = request.getfixturevalue("spark")
        place = of_spark.export(spark, made, str(out))
        assert rewrite(place, as_before)
        taken = of_spark.import_savepoint(spark, lake, place)
    roll_back(lake, taken)
    land(lake, code, log, len(log.entries) // 2)


@pytest.mark.feature("V5")
@pytest.mark.parametrize("code", [WATCHED, VISITS, ONCE], ids=lambda one: one.name)
@pytest.mark.few(1)
def test_a_stream_goes_on_from_state_of_the_format_before(
    engine: Computing, request: pytest.FixtureRequest, lake: Lake, tmp_path: Path, code: Operator
) -> None:
    taken_back(engine, request, lake, code, tmp_path / "out", as_lists)
    engine.run_unbounded(code, lake, until_caught_up=True)
    check(lake, code, disorder(code, 5, ROWS))


def test_state_of_a_format_that_is_not_read_is_refused_with_the_way_on(
    engine: Computing, request: pytest.FixtureRequest, lake: Lake, tmp_path: Path
) -> None:
    for version in (2, MARKS + 1):
        where = Lake(f"{lake.root}{version}")
        taken_back(engine, request, where, WATCHED, tmp_path / str(version), partial(numbered, version=version))
        with pytest.raises(FloodmarkError) as caught:
            engine.run_unbounded(WATCHED, where, until_caught_up=True)
        assert f"format version 3, {CODEC} or {MARKS}, got version {version}" in str(caught.value)
        assert "floodmark run OPERATOR --unbounded --from-scratch" in str(caught.value)
        engine.run_unbounded(WATCHED, where, until_caught_up=True, from_scratch=True)
        check(where, WATCHED, disorder(WATCHED, 5, ROWS))
