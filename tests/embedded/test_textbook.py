"""The books' examples on the embedded engine, as a stream with restarts and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest
import textbook
from textbook import check_bounded, check_unbounded

from floodmark.testing.embedded import EmbeddedCase


@pytest.mark.parametrize("name", ["own_windows", "own_sessions", "late_readings", "joined", "rolling_reduce"])
@pytest.mark.few(2)
def test_a_stream_with_restarts_and_a_bounded_run_give_the_rows_of_the_book(name: str, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    program = textbook.late_readings(tmp_path / "held") if name == "late_readings" else getattr(textbook, name)()
    stream = EmbeddedCase(program.operator, str(tmp_path / "stream"))
    check_unbounded(program, stream)
    check_bounded(program, EmbeddedCase(program.operator, str(tmp_path / "bounded")), stream)
