"""Transcripts on real Spark: each case as a stream in two parts with a restart between them, and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.testing.grammar import load
from floodmark.testing.transcripts import check_spark

pytestmark = pytest.mark.usefixtures("compiled")

FOLDER = Path(__file__).resolve().parents[1] / "cases"
ALWAYS = {"session/merge-across-restart", "tumbling/early-alert-and-exact-result"}
"""The others run on Spark in ``make soak``. In memory all run always, in every variant; on the embedded engine in tests/embedded."""

CASES = [
    pytest.param(case, marks=() if case.name in ALWAYS else pytest.mark.soak, id=case.name)
    for path in sorted(FOLDER.glob("*.yaml"))
    for case in load(path)
]


@pytest.mark.feature("W5", "W7", "W8", "L3", "L8", "T17", "B1")
@pytest.mark.parametrize("case", CASES)
def test_a_case_passes_in_both_modes(spark, tmp_path, case):
    assert check_spark(case, "both", spark, str(tmp_path)) is None
