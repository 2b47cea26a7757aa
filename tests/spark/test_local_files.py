"""Spark's Java creates files of this machine with the permissions that Hadoop asks for, and with checksums beside them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import hadoop_files
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from floodmark.engines.spark.session import local_files
from floodmark.lake.folder import checksums
from floodmark.lake.folder.paths import INTERNAL
from floodmark.lake.stream.timeline import CHECKPOINT, FOLLOWERS


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("permission", ["644", "600", "750", "1777"])
def test_files_and_folders_get_the_permission_that_is_asked_for(
    spark: SparkSession, tmp_path: Path, permission: str
) -> None:
    jvm, settings = spark._jvm, spark._jsc.hadoopConfiguration()
    folder = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "folder"))
    files = folder.getFileSystem(settings)
    assert files.getClass().getName() == local_files.CLASS, "which starts no process for it"
    wanted = jvm.org.apache.hadoop.fs.permission.FsPermission(permission)
    files.mkdirs(folder)
    files.setPermission(folder, wanted)
    assert mode(tmp_path / "folder") == int(permission, 8)
    file = jvm.org.apache.hadoop.fs.Path(folder, "file")
    files.create(file).close()
    mask = os.umask(0)
    os.umask(mask)
    assert mode(tmp_path / "folder" / "file") == 0o666 & ~mask
    files.setPermission(file, wanted)
    assert mode(tmp_path / "folder" / "file") == int(permission, 8)
    assert (tmp_path / "folder" / ".file.crc").exists(), "as Hadoop's own"


def test_a_session_that_finds_it_leaves_it(spark: SparkSession) -> None:
    before = local(spark)
    local_files.install(spark.sparkContext)
    assert local(spark).equals(before)


def test_a_file_system_of_a_users_own_is_left(spark: SparkSession) -> None:
    before, settings = local(spark), spark._jsc.hadoopConfiguration()
    settings.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    try:
        local_files.install(spark.sparkContext)
        assert local(spark).equals(before)
    finally:
        settings.unset("fs.file.impl")


MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def managers(spark: SparkSession, folder: Path) -> tuple[object, object]:
    """Spark's own choice for a checkpoint in a folder, and the one while a query of floodmark starts."""
    jvm = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(str(folder))
    create = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create
    own = create(path, spark._jsparkSession.sessionState().newHadoopConf())
    with local_files.checkpointing(spark, str(folder)):
        ours = create(path, spark._jsparkSession.sessionState().newHadoopConf())
    return own, ours


def put(spark: SparkSession, manager: object, file: Path, text: str) -> None:
    out = manager.createAtomic(spark._jvm.org.apache.hadoop.fs.Path(str(file)), True)
    out.write(text.encode())
    out.close()


def read(spark: SparkSession, manager: object, file: Path) -> str:
    stream = manager.open(spark._jvm.org.apache.hadoop.fs.Path(str(file)))
    try:
        return str(spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "utf-8"))
    finally:
        stream.close()


@pytest.mark.parametrize("below", [CHECKPOINT, f"{FOLLOWERS}/hourly"])
def test_a_checkpoint_is_written_through_it_and_read_by_sparks_own_choice_and_the_other_way_round(
    spark: SparkSession, tmp_path: Path, below: str
) -> None:
    folder = tmp_path / INTERNAL / below
    (folder / "offsets").mkdir(parents=True)
    file, checksum = folder / "offsets" / "5", folder / "offsets" / ".5.crc"
    own, ours = managers(spark, folder)
    assert own.getClass().getSimpleName() == "FileContextBasedCheckpointFileManager"
    assert ours.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager", "starts no process for each file"
    assert spark.conf.get(MANAGER, None) is None
    put(spark, own, file, "as Spark writes it")
    assert checksum.exists()
    hadoop_files.check(folder)
    assert read(spark, ours, file) == "as Spark writes it"
    file.write_text("changed by an older floodmark, with the checksum left")
    assert read(spark, ours, file) == read(spark, own, file) == file.read_text()
    put(spark, ours, file, "ours")
    assert not checksum.exists()
    assert read(spark, own, file) == read(spark, ours, file) == "ours"
    put(spark, own, file, "Spark's again")
    hadoop_files.check(folder)
    checksums.write(str(file), b"changed")
    assert not checksum.exists()
    assert read(spark, own, file) == read(spark, ours, file) == "changed"


def test_spark_with_hadoops_own_file_system_reads_what_floodmark_has_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It judges by checksums, as where a user names this manager on a cluster."""
    file = tmp_path / "offsets" / "5"
    file.parent.mkdir()
    jvm = spark._jvm
    files = jvm.org.apache.hadoop.fs.LocalFileSystem()
    files.initialize(jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())
    path = jvm.org.apache.hadoop.fs.Path(str(file))
    files.create(path).close()
    hadoop_files.write_checksum(file)
    file.write_text("changed")
    with pytest.raises(Py4JJavaError, match="ChecksumException|not a checksum file|Checksum error"):
        jvm.org.apache.commons.io.IOUtils.toString(files.open(path), "utf-8")
    checksums.write(str(file), b"changed")
    assert jvm.org.apache.commons.io.IOUtils.toString(files.open(path), "utf-8") == "changed"


@pytest.mark.parametrize("checkpoint", ["s3a://bucket/lake/checkpoint", "hdfs://host/checkpoint"])
def test_checkpoints_of_other_stores_and_managers_of_a_users_own_are_left(
    spark: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    with local_files.checkpointing(spark, checkpoint):
        assert spark.conf.get(MANAGER, None) is None
    spark.conf.set(MANAGER, "of.a.User")
    try:
        with local_files.checkpointing(spark, str(tmp_path)):
            assert spark.conf.get(MANAGER) == "of.a.User"
        assert spark.conf.get(MANAGER) == "of.a.User"
    finally:
        spark.conf.unset(MANAGER)


def local(spark: SparkSession) -> object:
    """Hadoop's file system of this machine."""
    jvm = spark._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())
