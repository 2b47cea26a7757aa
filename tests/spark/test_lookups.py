"""Lookup tables on Spark: rows find what those of the embedded engine do, which reads the answers that were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import embedded
from looked_up import check

from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake


@pytest.mark.feature("I4", "J4")
@pytest.mark.engines("spark")
def test_a_stream_on_spark_looks_once_and_the_embedded_engine_finds_the_same(
    engine: Computing, lake: Lake, tmp_path: Path
) -> None:
    check(lake, tmp_path / "airports", engine, embedded())
