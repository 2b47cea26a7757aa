"""A run waits for another run of its operator, whose process it names; a stream it does not wait for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.locks import CATCHING_UP, exclusive
from floodmark.lake.folder.paths import Lake


def test_a_stream_is_not_waited_for(tmp_path: Path):
    lake, lines = Lake(str(tmp_path)), list[str]()
    with (
        exclusive(lake, "operators", "sales", "run", role="stream"),
        pytest.raises(LifecycleError, match=f"LIFECYCLE-003.*process {os.getpid()}.*floodmark stop sales, or"),
        exclusive(lake, "operators", "sales", "run", 900, on_wait=lines.append),
    ):
        pass
    assert lines == []


@pytest.mark.parametrize("role", ["bounded run", CATCHING_UP])
def test_a_run_that_ends_by_itself_is_waited_for(tmp_path: Path, role: str):
    lake, lines = Lake(str(tmp_path)), list[str]()
    with (
        exclusive(lake, "operators", "sales", "run", role=role),
        pytest.raises(LifecycleError, match="Wait until it is done, or stop it"),
        exclusive(lake, "operators", "sales", "run", 0.1, on_wait=lines.append),
    ):
        pass
    assert lines == [lines[0]]
    assert f"held by its {role}, process {os.getpid()}: waiting" in lines[0]


def test_a_run_that_need_not_wait_says_nothing(tmp_path: Path):
    lines = list[str]()
    with exclusive(Lake(str(tmp_path)), "operators", "sales", "run", 0.1, on_wait=lines.append):
        pass
    assert lines == []
