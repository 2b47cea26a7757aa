"""``floodmark serve``: state that Spark keeps, copied by a Java beside the service."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from remembered import assert_equal, landed, remembered, rows_of, service, state_of

from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder import bucket
from floodmark.lake.folder.copies import files_of
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.serve import state_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from s3_server import Proxy, Server


def broken_java(home: Path) -> Path:
    """A Java that ends at once."""
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="21.0.1"')
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.mark.feature("U1")
def test_state_of_sparks_is_that_of_a_commit_or_of_a_savepoint(
    spark: SparkSession, s3: Server, s3_proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3_proxy.url
    monkeypatch.setattr(state_files, "_SHARE", 0)
    rows, lake = rows_of(300, 40), Lake(str(tmp_path / "lake"))
    landed(lake, rows[:200])
    run_unbounded(spark, remembered, lake, until_caught_up=True)
    with service(lake, tmp_path) as ask:
        with monkeypatch.context() as without:
            without.setenv("JAVA_HOME", str(broken_java(tmp_path / "java")))
            status, answer = state_of(ask, [])
            assert (status, answer["error"]["code"]) == (409, "SERVE-023")
            assert "Java" in answer["error"]["got"]
        assert_equal(ask, rows[:200])
        saved = savepoints.create("remembered", lake)
        landed(lake, rows, 200)
        run_unbounded(spark, remembered, lake, until_caught_up=True)
        first = ask.get("/v1/state/remembered")[1]["as_of"]["batch"]
        end = time.monotonic() + 300
        while ask.get("/v1/state/remembered")[1]["as_of"]["batch"] == first:  # until a newer copy is there
            assert time.monotonic() < end
            time.sleep(0.1)
        assert_equal(ask, rows)
        reader = ask.service._files._reader._process
        assert reader is not None
        assert reader.pid is not None
        os.kill(reader.pid, signal.SIGKILL)
        assert_equal(ask, rows[:200], saved.id)
        there = Lake(f"{s3.bucket()}/lake")
        for file in files_of(lake.root):
            bucket.write(f"{there.root}/{file}", Path(lake.root, file))
        with service(there, tmp_path / "there") as ask_there:
            ask_there.service._files._reader = ask.service._files._reader
            assert_equal(ask_there, rows)
            assert_equal(ask_there, rows[:200], saved.id)
