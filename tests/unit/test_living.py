"""Which process lives, known by its id and the time of its birth, which moves with the clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from floodmark.core.host import living


@pytest.mark.parametrize(("moved", "same"), [(0, True), (1, True), (-1, True), (3, False), (-3, False)])
def test_a_clock_that_is_set_a_little_makes_no_other_process(
    monkeypatch: pytest.MonkeyPatch, moved: float, same: bool
) -> None:
    born, create_time = psutil.Process().create_time(), psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) + moved)
    assert (living(os.getpid(), born) is not None) == same
    assert living(os.getpid(), None) is not None


def test_a_process_that_has_ended_lives_no_more_though_nobody_has_reaped_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        born = psutil.Process(process.pid).create_time()
        assert living(process.pid, born) is not None
        process.stdin.close()
        end = time.monotonic() + 300
        while living(process.pid, born) is not None:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    assert living(process.pid, born) is None
