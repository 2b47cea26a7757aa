"""Files of this machine, as Spark's Java creates them: the permissions are set by Java itself.

Hadoop without its native library starts ``chmod`` twice for each file that it creates, 5 ms of processor time each; a micro-batch creates some ten files.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

CLASS = "FloodmarkLocalFiles"
_SCHEME = "file:///"
_SETTING = "fs.file.impl"
_SOURCE = f"""
public final class {CLASS} extends org.apache.hadoop.fs.LocalFileSystem {{
  public {CLASS}() {{ super(new Raw()); }}
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
