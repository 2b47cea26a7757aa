"""Who waits for an operator's lock is told who holds it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from floodmark.core.errors import LifecycleError
from floodmark.lake.locks import exclusive
from floodmark.lake.paths import Lake


def test_a_run_that_waits_says_which_process_it_waits_for(tmp_path: Path):
    lake, lines = Lake(str(tmp_path)), list[str]()
    with (
        exclusive(lake, "operators", "sales", "run", role="stream"),
        pytest.raises(LifecycleError, match=f"LIFECYCLE-003.*process {os.getpid()}.*floodmark stop sales, or"),
        exclusive(lake, "operators", "sales", "run", 0.1, on_wait=lines.append),
    ):
        pass
    assert len(lines) == 1
    assert f"held by its stream, process {os.getpid()}: waiting" in lines[0]
    assert lines[0].endswith("until it is stopped")


def test_a_run_that_ends_by_itself_is_waited_for(tmp_path: Path):
    lake, lines = Lake(str(tmp_path)), list[str]()
    with (
        exclusive(lake, "operators", "sales", "run", role="bounded run"),
        pytest.raises(LifecycleError, match="Wait until it is done, or stop it"),
        exclusive(lake, "operators", "sales", "run", 0.1, on_wait=lines.append),
    ):
        pass
    assert "until it is stopped" not in lines[0]


def test_a_run_that_need_not_wait_says_nothing(tmp_path: Path):
    lines = list[str]()
    with exclusive(Lake(str(tmp_path)), "operators", "sales", "run", 0.1, on_wait=lines.append):
        pass
    assert lines == []
