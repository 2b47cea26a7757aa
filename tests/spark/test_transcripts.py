"""Transcripts on real Spark: each case as a stream in two parts with a restart between them, and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.testing.grammar import load
from floodmark.testing.transcripts import check_spark

FOLDER = Path(__file__).resolve().parents[1] / "cases"
CASES = {case.name: case for path in sorted(FOLDER.glob("*.yaml")) for case in load(path)}
ALWAYS = [
    pytest.param("session/merge-across-restart", marks=pytest.mark.feature("W7", "W8", "B1")),
    pytest.param("tumbling/early-alert-and-exact-result", marks=pytest.mark.feature("L3")),
]
"""The others run on Spark in ``make soak``. In memory all run always, in every variant; on the embedded engine in tests/embedded."""

OTHERS = sorted(CASES.keys() - {one.values[0] for one in ALWAYS})


@pytest.mark.parametrize("name", ALWAYS)
def test_a_case_passes_in_both_modes(spark, tmp_path, name):
    assert check_spark(CASES[name], "both", spark, str(tmp_path)) is None


@pytest.mark.soak
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", OTHERS)
def test_another_case_passes_in_both_modes(spark, tmp_path, name):
    assert check_spark(CASES[name], "both", spark, str(tmp_path)) is None
