"""A bounded run on the embedded engine that is killed at any of its writes, and begun again, leaves what one that was not killed leaves."""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime, timedelta

import embedded_process
import forked
import pytest
from embedded_process import revised

from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.testing import lakes
from floodmark.testing.log import Log
from floodmark.testing.runs import Run, final

EVENTS = [
    {
        "at": datetime(2020, 1, 1) + timedelta(minutes=n - (60 if n % 11 == 5 else 20 if n % 5 == 3 else 0)),
        "key": "abc"[n % 3],
        "value": n,
    }
    for n in range(90)
]
POINTS = crash.POINTS["bounded"]


@pytest.mark.parametrize(
    "point", [p if p in {POINTS[3], POINTS[4]} else pytest.param(p, marks=pytest.mark.soak) for p in POINTS]
)
@pytest.mark.few(1)
def test_killed_and_begun_again_it_is_exact(tmp_path, point):
    lake, log = Lake(str(tmp_path)), Log(revised.inputs[0].schema)
    log.rows(EVENTS, "at", 300_000)
    log.end()
    lakes.land(lake, revised, log)
    command = [sys.executable, embedded_process.__file__, lake.root]
    killed = forked.run(command, env={**os.environ, crash.VARIABLE: point})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = forked.run(command)
    assert again.returncode == 0, again.stderr
    expected = Run("memory", "bounded")(revised, {"events": EVENTS}, delay="5 minutes")
    assert {name: final([table]) for name, table in lakes.outputs(lake, revised).items()} == expected
    assert all(expected.values())
