"""Forgetting in a bucket: as on a disk, and no file of state that savepoints shared stays."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import forked
import pytest
from forget_process import STREAMS, forgotten, source, write

from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back

from .test_forgetting import KEY, PROCESS, check, holding, prepared, rows

if TYPE_CHECKING:
    from s3_server import Proxy, Server


@pytest.mark.soak
@pytest.mark.engines("embedded")
def test_a_person_is_gone_from_all_objects_and_streams_resume(
    engine: Computing, tmp_path: Path, s3: Server, s3_proxy: Proxy
) -> None:
    del s3_proxy
    lake, inbox = prepared(engine, tmp_path, 2, Lake(f"{s3.bucket()}/lake"))
    kinds = {name.split("/")[0 if name.startswith(("logs", "outputs")) else 1] for name in holding(lake)}
    assert kinds == {"logs", "outputs", "operators", "savepoints"}
    made = forgotten(lake, inbox, [KEY], engine)
    assert made.searched.holding == ()
    roll_back(lake, savepoints.find(lake, made.made[1]))
    write(inbox, 2)
    engine.land(source(inbox), lake)
    for code in STREAMS:
        engine.run_unbounded(code, lake, until_caught_up=True)
    left = rows(lake.log("visits"))
    forgotten(lake, inbox, [KEY], engine)
    check(engine, lake, left, tmp_path)


@pytest.mark.engines("embedded")
@pytest.mark.parametrize(
    "point",
    [
        point if point == "step.restore_table" else pytest.param(point, marks=pytest.mark.soak)
        for point in crash.POINTS["forget"]
    ],
)
def test_after_a_kill_the_same_command_finishes(
    engine: Computing, tmp_path: Path, s3: Server, s3_proxy: Proxy, point: str
) -> None:
    del s3_proxy
    lake, inbox = prepared(engine, tmp_path, 2, Lake(f"{s3.bucket()}/lake"))
    log = rows(lake.log("visits"))
    ended = forked.run([sys.executable, PROCESS, lake.root, str(inbox), KEY], env={**os.environ, crash.VARIABLE: point})
    assert ended.returncode == -signal.SIGKILL, (point, ended.stderr)
    assert forgotten(lake, inbox, [KEY], engine).rows["visits"] == 4
    check(engine, lake, log, tmp_path)
