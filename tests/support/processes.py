"""What a process of a test's own needs to find the modules beside the tests, why one has failed, one that is killed, and the end of drivers."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import forked

from floodmark.control.state import presence
from floodmark.control.state.records import Driver
from floodmark.core import crash

_TESTS = Path(__file__).parent.parent
_EXCEPTION = re.compile(r"^(?:Caused by: .*|[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*)", re.MULTILINE)
_MOST = 1_500
"""Characters of an exception: Spark puts whole query plans behind what went wrong."""


def paths() -> str:
    """``PYTHONPATH`` of such a process: what pytest has on its own by ``pythonpath`` of pyproject.toml."""
    ours = (_TESTS.parent, _TESTS / "support", _TESTS / "crash")
    return os.pathsep.join([*map(str, ours), *filter(None, [os.environ.get("PYTHONPATH")])])


def killed_at(point: str, *command: str) -> bool:
    """Run a program of Python that is killed at a point (``name:hit`` of ``floodmark.core.crash``); whether it came there, else it has succeeded."""
    environment = {**os.environ, crash.VARIABLE: point}
    done = forked.run([sys.executable, *command], env=environment)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode != 0


def end_drivers(drivers: Iterable[Driver]) -> None:
    """Kill the drivers that live, each with all that it has started; a later process that has got the id of one that is gone is left."""
    for driver in drivers:
        if driver.pid is not None and driver.ended_at is None and presence.lives(driver):
            with suppress(ProcessLookupError):  # it ends at this moment
                os.killpg(driver.pid, signal.SIGKILL)


def failure(stderr: str) -> str:
    """The exceptions a process has printed, the last one first, each cut; the end of what it has printed where it has printed none."""
    lines = [found[0][:_MOST] for found in _EXCEPTION.finditer(stderr)]
    return "\n".join(reversed(lines)) or stderr[-_MOST:]
