"""Which process lives, known by its id and the time of its birth, which no clock moves; earlier releases took one that moves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from floodmark.core.host import birth, is_born, living, since


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="only Linux tells a time of birth that the clock does not move"
)
@pytest.mark.parametrize("moved", [0, 3, -3, 3600, -3600, 1e9])
def test_a_clock_that_is_set_makes_no_other_process(monkeypatch: pytest.MonkeyPatch, moved: float) -> None:
    born, create_time = birth(psutil.Process()), psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) + moved)
    assert living(os.getpid(), born) is not None
    assert living(os.getpid(), born + 0.01) is None


def test_a_process_with_any_name_is_known_by_its_birth(tmp_path: Path) -> None:
    named = tmp_path / "a) S 1 (b"
    named.symlink_to(shutil.which("sleep") or "")
    with subprocess.Popen([named, "600"]) as process:
        later, before = psutil.Process(process.pid), psutil.Process()
        assert since(later, birth(before)) > 0 > since(before, birth(later))
        assert is_born(later, birth(later)) and not is_born(later, birth(before))
        process.kill()


@pytest.mark.parametrize(("moved", "same"), [(0, True), (1, True), (-1, True), (3, False), (-3, False)])
def test_a_clock_that_is_set_a_little_makes_no_other_process_of_one_that_an_earlier_release_has_recorded(
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
