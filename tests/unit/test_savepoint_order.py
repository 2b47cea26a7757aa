"""Savepoints are ordered by when they were made, whatever the clock says."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import pytest
from small_lake import make

from floodmark.lake.restore import savepoints


def test_savepoints_are_in_the_order_they_were_made_while_the_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, clock = make(tmp_path / "lake"), time.time_ns()
    jumps = iter([0, 0, 0, -1, -3_600, 0, -31_536_000, 0])
    monkeypatch.setattr(time, "time_ns", lambda: clock + next(jumps) * 1_000_000_000)
    made = [savepoints.create("totals", lake).id for _ in range(8)]
    assert [one.id for one in savepoints.savepoints(lake, "totals")] == made


def test_an_equal_random_end_of_a_name_does_not_replace_a_savepoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, ends, clock = make(tmp_path / "lake"), iter(["aaaa", "aaaa", "bbbb"]), 1_700_000_000_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: clock)
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(ends))
    made = [savepoints.create("totals", lake).id for _ in range(2)]
    assert [one.id for one in savepoints.savepoints(lake, "totals")] == made
