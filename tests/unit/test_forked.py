"""A program that is forked does what it does as a process that Python starts: arguments, paths, what it prints, how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest

SHOWN = "import os, sys; print(__name__, sys.argv, sys.path, os.getcwd(), os.environ['GIVEN'], sys.stdin.read())"
COMMANDS = {
    "text": ["-c", f"import threading; {SHOWN}; print(threading.active_count())", "a", "b c"],
    "file": ["shown.py", "a"],
    "module": ["-m", "shown", "a"],
    "status": ["-c", "import sys; print('before'); sys.exit(3)"],
    "words": ["-c", "import sys; sys.exit('no such thing')"],
    "exception": ["-c", "1 / 0"],
    "at its end": ["-c", "import atexit; atexit.register(print, 'the end'); print('first')"],
    "killed": ["-c", "import os, sys; print('seen', flush=True); print('lost'); os.kill(os.getpid(), 9)"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_prints_and_ends_as_a_process_of_its_own(tmp_path: Path, name: str) -> None:
    (tmp_path / "shown.py").write_text(SHOWN)
    command = [sys.executable, *COMMANDS[name]]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'more'}", "GIVEN": "x"}
    plain = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    found = forked.run(command, cwd=tmp_path, env=environment)
    assert (found.returncode, found.stdout) == (plain.returncode, plain.stdout)
    assert found.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


def test_what_does_not_end_in_time_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run([sys.executable, "-c", "import signal; signal.pause()"], timeout=0.1)
    assert forked.run([sys.executable, "-c", "print(1)"]).stdout == "1\n"
