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


def local(spark: SparkSession) -> object:
    """Hadoop's file system of this machine."""
    jvm = spark._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())
