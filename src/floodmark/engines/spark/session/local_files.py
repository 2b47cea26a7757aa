"""Files of this machine, as Spark's Java creates them: the permissions are set by Java itself.

Hadoop without its native library starts ``chmod`` twice for each file that it creates, 5 ms of processor time each; a micro-batch creates some ten files.
Spark's own choice of how the files of a checkpoint are written passes Hadoop's file systems by, and starts ``readlink`` four times for each. So checkpoints
are written through the file system here, which keeps no checksums of their files and reads none: Spark's own choice writes them and reads none either, so
those of an older checkpoint may be wrong where floodmark has changed a file. Spark's checksums of state files, ``NAME.crc``, are files as others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from floodmark.engines.spark.setup.master import is_cluster
from floodmark.lake.folder.paths import INTERNAL
from floodmark.lake.stream.timeline import CHECKPOINT, FOLLOWERS

CLASS = "FloodmarkLocalFiles"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_OF_FILE_SYSTEMS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_STARTING = threading.Lock()
_SCHEME = "file:///"
_SETTING = "fs.file.impl"
_SOURCE = f"""
public final class {CLASS} extends org.apache.hadoop.fs.LocalFileSystem {{
  public {CLASS}() {{ super(new Raw()); }}
  private static boolean ofCheckpoint(org.apache.hadoop.fs.Path path) {{
    String text = path.toUri().getPath();
    return text.contains("/{INTERNAL}/") && (text.contains("/{CHECKPOINT}/") || text.contains("/{FOLLOWERS}/"));
  }}
  public org.apache.hadoop.fs.FSDataInputStream open(org.apache.hadoop.fs.Path path, int buffer) throws java.io.IOException {{
    return ofCheckpoint(path) ? getRawFileSystem().open(path, buffer) : super.open(path, buffer);
  }}
  public org.apache.hadoop.fs.FSDataOutputStream create(
      org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission, boolean overwrite, int buffer,
      short replication, long block, org.apache.hadoop.util.Progressable progress) throws java.io.IOException {{
    if (!ofCheckpoint(path)) return super.create(path, permission, overwrite, buffer, replication, block, progress);
    getRawFileSystem().delete(getChecksumFile(path), false);
    return getRawFileSystem().create(path, permission, overwrite, buffer, replication, block, progress);
  }}
  public static final class Raw extends org.apache.hadoop.fs.RawLocalFileSystem {{
    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission)
        throws java.io.IOException {{
      if (permission.getStickyBit()) {{
        super.setPermission(path, permission);
        return;
      }}
      java.nio.file.Files.setPosixFilePermissions(
          pathToFile(path).toPath(), java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString()));
    }}
  }}
}}
"""


def install(context: SparkContext) -> None:
    """Have Hadoop use this file system for all paths of this machine, by putting it into Hadoop's own cache.

    Nothing changes where the native library is there, where the setting ``spark.hadoop.fs.file.impl`` names another file system, and in a Java that has it
    already. The class is compiled by the compiler that Spark has for its own plans.
    """
    jvm: Any = context._jvm  # noqa: SLF001 - there is no public way to Hadoop
    settings = context._jsc.hadoopConfiguration()  # noqa: SLF001
    files, scheme = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI(_SCHEME)
    if settings.get(_SETTING) is not None or jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable():
        return
    cached = files.get(scheme, settings)
    if cached.getClass().getName() == CLASS:
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE)
    chosen = jvm.org.apache.hadoop.conf.Configuration(settings)
    chosen.setClassLoader(compiler.getClassLoader())
    chosen.set(_SETTING, CLASS)
    cached.close()  # which takes it out of the cache
    files.get(scheme, chosen)


@contextmanager
def checkpointing(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """A query that starts within writes its checkpoint through this file system, if it is in use and the checkpoint is a folder of this machine.

    Nothing changes where executors are other processes, whose Hadoop has another file system, and where the session names a manager of checkpoints itself.
    Other stores stay with Spark's own choice: a rename over an existing file, which it can do there, is an error by Hadoop's file systems.

    Args:
        spark: the session that starts the query. A query has settings as they are when it starts.
        checkpoint: path or URI.
    """
    with _STARTING:
        fits = "://" not in checkpoint and not is_cluster(spark.sparkContext.master or "") and _is_installed(spark)
        if not fits or spark.conf.get(_MANAGER, None) is not None:
            yield
            return
        spark.conf.set(_MANAGER, _OF_FILE_SYSTEMS)
        try:
            yield
        finally:
            spark.conf.unset(_MANAGER)


def _is_installed(spark: SparkSession) -> bool:
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no public way to Hadoop
    settings = spark._jsc.hadoopConfiguration()  # noqa: SLF001
    name: str = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(_SCHEME), settings).getClass().getName()
    return name == CLASS
