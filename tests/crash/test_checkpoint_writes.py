"""Nothing of a checkpoint is written from any one of its file operations on, as when Java is killed there, until the next run; old and new ways of writing it take turns."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import hadoop_files
import pyarrow as pa
import pytest
from flights import changelog
from operator_process import revised, source
from pyspark.sql import SparkSession

from floodmark.control.processes.engine import Computing, OnSpark
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval
from floodmark.engines.spark.session import local_files
from floodmark.lake.folder.checksums import checksum_of
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline

from .test_operator_crash import counted, finish, seen

TABLES = ("revised", "revised__late")
LEFT = "floodmark.test.left"
"""Property of Java: file operations on checkpoints that are still done."""
WITHOUT_END, MOST, OLDER = 1_000_000, 45, 0.15
COMMITS = 6
COUNTED = """
    static void step(org.apache.hadoop.fs.Path path) throws java.io.IOException {
      if (!path.toUri().getPath().contains("/checkpoint/")) return;
      synchronized (java.lang.System.class) {
        int left = java.lang.Integer.getInteger("floodmark.test.left", 1000000).intValue();
        if (left <= 0) throw new java.io.IOException("this Java is dead");
        java.lang.System.setProperty("floodmark.test.left", java.lang.String.valueOf(left - 1));
      }
    }
    public boolean rename(org.apache.hadoop.fs.Path from, org.apache.hadoop.fs.Path to) throws java.io.IOException {
      step(to);
      boolean done = super.rename(from, to);
      step(to);
      return done;
    }
    public boolean delete(org.apache.hadoop.fs.Path path, boolean all) throws java.io.IOException {
      step(path);
      return super.delete(path, all);
    }
    public org.apache.hadoop.fs.FSDataOutputStream create(
        org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission, boolean overwrite, int buffer,
        short replication, long block, org.apache.hadoop.util.Progressable progress) throws java.io.IOException {
      step(path);
      return super.create(path, permission, overwrite, buffer, replication, block, progress);
    }
"""
_BEGIN = "extends org.apache.hadoop.fs.RawLocalFileSystem {"


@contextmanager
def counting(spark: SparkSession) -> Iterator[None]:
    """Hadoop's files of this machine are those of floodmark, with the operations of checkpoints counted."""
    was = local_files._SOURCE
    assert _BEGIN in was
    try:
        for text in (was.replace(_BEGIN, _BEGIN + COUNTED), was):
            local_files._SOURCE = text
            spark._jvm.org.apache.hadoop.fs.FileSystem.get(
                spark._jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration()
            ).close()
            local_files.install(spark.sparkContext)
            if text != was:
                yield
    finally:
        local_files._SOURCE = was


def leave(spark: SparkSession, operations: int) -> int:
    """Let Java do so many file operations more; the number it had left."""
    return int(spark._jvm.java.lang.System.setProperty(LEFT, str(operations)) or 0)


@pytest.fixture(scope="module")
def logs(embedded: Computing, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("logs")))
    for commits in range(1, COMMITS + 1):
        embedded.land(source(commits), lake, end=commits == COMMITS)
    return lake


@pytest.fixture(scope="module")
def expected(embedded: Computing, logs: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    lake = Lake(str(tmp_path_factory.mktemp("expected")), logs=logs.root)
    embedded.run_bounded(revised, lake, Interval())
    return {table: changelog(lake, table) for table in TABLES}


@pytest.mark.soak
@pytest.mark.engines("spark")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_not_written_of_a_checkpoint_any_more_the_tables_end_exactly_right(
    engine: Computing,
    logs: Lake,
    expected: dict[str, pa.Table],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    assert isinstance(engine, OnSpark)
    drawn, lake, deaths, ended = random.Random(seed), Lake(str(tmp_path), logs=logs.root), list[str](), False
    with counting(engine.spark):
        while not ended:
            older = drawn.random() < OLDER
            leave(engine.spark, WITHOUT_END if older else drawn.randrange(1, MOST))
            with monkeypatch.context() as patched:
                if older:  # as an older release, whose checksums nobody reads or mends
                    patched.setattr(local_files, "checkpointing", lambda *_: nullcontext())
                stop = threading.Event()
                try:
                    engine.run_unbounded(
                        revised,
                        lake,
                        until_caught_up=True,
                        files_per_batch=1,
                        stop=stop,
                        on_batch=lambda _, older=older, stop=stop: stop.set() if older else None,
                    )
                    ended = not older
                except FloodmarkError as error:
                    deaths.append(str(error))
                finally:
                    leave(engine.spark, WITHOUT_END)
            for table in TABLES:
                assert seen(lake, table) <= counted(expected[table]), "a reader has seen what was not to stay"
            spoil(Path(Timeline.current(lake, "revised").checkpoint.path), drawn)
    assert len(deaths) > 1
    assert all("this Java is dead" in text for text in deaths), deaths
    finish(engine, "unbounded", lake, expected)


def spoil(checkpoint: Path, drawn: random.Random) -> None:
    """Leave wrong checksums beside some files, as an older release did where it changed a file."""
    for file in sorted(checkpoint.rglob("*")):
        if file.is_file() and not file.name.startswith(".") and drawn.random() < 0.3:
            text = file.read_bytes()
            file.write_bytes(text + b"x")
            hadoop_files.write_checksum(file)
            file.write_bytes(text)
            assert Path(checksum_of(str(file))).exists()
