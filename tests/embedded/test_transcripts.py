"""Transcripts on the embedded engine: each case as a stream in two parts with a restart between them, and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.testing.grammar import load
from floodmark.testing.transcripts import check_embedded

FOLDER = Path(__file__).resolve().parents[1] / "cases"
ALWAYS = {
    "combined/any-of-begins-anew",
    "count/global-purging-4",
    "delay/count-or-timeout",
    "early-late/sessions",
    "evictor/count-before",
    "session/late-merge-within-lateness-fires-again",
    "sliding/sum-3s-1s",
    "tumbling/late-row-to-side-output",
}
"""The others run in ``make soak``."""

CASES = [
    pytest.param(case, marks=() if case.name in ALWAYS else pytest.mark.soak, id=case.name)
    for path in sorted(FOLDER.glob("*.yaml"))
    for case in load(path)
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.few(3)
def test_a_case_passes_in_both_modes(tmp_path, case):
    assert check_embedded(case, "both", str(tmp_path)) is None
