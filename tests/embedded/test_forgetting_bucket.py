"""Forgetting in a bucket: as on a disk, and no file of state that savepoints shared stays."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import forked
import pytest
from forget_process import STREAMS, forgotten, source, write

from floodmark.control.processes.engine import Computing, computing
from floodmark.core import crash
from floodmark.lake.folder import storage
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lifecycle.savepoint_id import new_id
from floodmark.spec.workspace import Settings

from .test_forgetting import KEY, PROCESS, check, holding, prepared, rows

if TYPE_CHECKING:
    from s3_server import Proxy, Server


@pytest.fixture
def on_bucket(s3_proxy: Proxy) -> Computing:
    del s3_proxy
    return computing(Settings(engine="embedded", memory=300))


@pytest.mark.soak
def test_a_person_is_gone_from_all_objects_and_streams_resume(on_bucket: Computing, tmp_path: Path, s3: Server) -> None:
    lake, inbox = prepared(on_bucket, tmp_path, 2, Lake(f"{s3.bucket()}/lake"))
    kinds = {name.split("/")[0 if name.startswith(("logs", "outputs")) else 1] for name in holding(lake)}
    assert kinds == {"logs", "outputs", "operators", "savepoints"}
    made = forgotten(lake, inbox, [KEY], on_bucket)
    assert made.searched.holding == ()
    roll_back(lake, savepoints.find(lake, made.made[1]))
    write(inbox, 2)
    on_bucket.land(source(inbox), lake)
    for code in STREAMS:
        on_bucket.run_unbounded(code, lake, until_caught_up=True)
    left = rows(lake.log("visits"))
    forgotten(lake, inbox, [KEY], on_bucket)
    check(on_bucket, lake, left, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("point", crash.POINTS["forget"])
def test_after_a_kill_the_same_command_finishes(on_bucket: Computing, tmp_path: Path, s3: Server, point: str) -> None:
    lake, inbox = prepared(on_bucket, tmp_path, 2, Lake(f"{s3.bucket()}/lake"))
    log = rows(lake.log("visits"))
    ended = forked.run([sys.executable, PROCESS, lake.root, str(inbox), KEY], env={**os.environ, crash.VARIABLE: point})
    assert ended.returncode == -signal.SIGKILL, (point, ended.stderr)
    assert forgotten(lake, inbox, [KEY], on_bucket).rows["visits"] == 4
    check(on_bucket, lake, log, tmp_path)


def test_what_a_killed_deletion_of_a_savepoint_has_left_is_removed(s3: Server, s3_proxy: Proxy) -> None:
    del s3_proxy
    lake = Lake(f"{s3.bucket()}/lake")
    name = new_id("spent", time.time_ns() // 1_000_000)
    left = lake.internal("savepoints", "spent", name, "versions", "late", "0.json")
    storage.write(left, b"{}")
    savepoints.collect(lake)
    assert storage.exists(left), "it is young, so that a savepoint may be on its way"
    savepoints.collect_of(lake, "spent")
    assert not storage.exists(left)
