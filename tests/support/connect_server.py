"""Spark's own server of Spark Connect in a process of its own, which sees no file of the client's but those in a shared folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from spark_cluster import HIDE, LEAN, JavaProcess

from floodmark.engines.spark.setup.home import spark_home
from floodmark.engines.spark.setup.jars import class_path
from floodmark.engines.spark.setup.java import find_java

SETTINGS = {
    "spark.master": "local[2]",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def server(
    folder: Path, hidden: Path, variables: Mapping[str, str] = MappingProxyType({}), *, without: str = ""
) -> Iterator[tuple[str, JavaProcess]]:
    """(its address, its process), until the context ends.

    Args:
        folder: of its own files.
        hidden: that it does not see.
        variables: of its environment.
        without: beginning of the names of settings that it lacks.
    """
    folder.mkdir(parents=True)
    hidden.mkdir(parents=True, exist_ok=True)
    jars = [spark_home() / "jars" / "*", *class_path()]
    settings = {name: text for name, text in SETTINGS.items() if not (without and name.startswith(without))}
    command = [
        str(find_java().binary),
        *LEAN[:-1],
        *("-Xmx700m", "-XX:+IgnoreUnrecognizedVMOptions"),
        *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
        *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "net", "lang.invoke")),
        *("-cp", ":".join(map(str, jars))),
        *(f"-D{name}={text}" for name, text in settings.items()),
        _CLASS,
    ]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "HIDDEN": str(hidden),
        **variables,
    }
    running = JavaProcess(["unshare", "-m", "bash", "-c", f"cd {folder} && {HIDE}", "server", *command], environment)
    try:
        port = running.says(r"Spark Connect server started at:.*?:(\d+)$")[1]
        yield f"sc://127.0.0.1:{port}", running
    finally:
        running.stop()


def without_java(folder: Path) -> dict[str, str]:
    """Variables of a process that finds no Java, and no jars of this user."""
    folder.mkdir(parents=True, exist_ok=True)
    path = [part for part in os.environ["PATH"].split(":") if not (Path(part) / "java").exists()]
    assert not re.search(r"java|jdk", ":".join(path), re.IGNORECASE)
    return {"PATH": ":".join(path), "JAVA_HOME": str(folder / "none"), "FLOODMARK_CACHE": str(folder / "cache")}
