"""The class archive as the warm-up builds it, and the settings with which executors of its machine use it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.engines.spark.setup.home import cache_folder, spark_home
from floodmark.engines.spark.setup.jars import DELTA, S3
from floodmark.engines.spark.setup.java import find_java

CLASSES = ("org.apache.spark.executor.Executor", "org.apache.hadoop.fs.s3a.S3AFileSystem")
"""Of Spark, and of the jars that executors otherwise get from the driver."""


@pytest.mark.soak
def test_a_java_with_the_class_path_of_an_executor_takes_classes_from_the_archive(tmp_path: Path) -> None:
    for jars in (DELTA, S3):
        (tmp_path / jars.folder).symlink_to(cache_folder() / jars.folder)
    environment = {**os.environ, "FLOODMARK_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "floodmark.engines.spark.session.warmup", "--executors"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    settings = dict(re.findall(r'\("([\w.]+)", "([^"]+)"\)', done.stdout))
    spark, java = spark_home(), str(find_java().binary)
    behind = (spark / "conf", *(spark / "jars").glob("slf4j-api-*.jar"), spark / "jars" / "*")
    class_path = ":".join([settings["spark.executor.extraClassPath"], *map(str, behind)])
    options = (*settings["spark.executor.extraJavaOptions"].split(), "-Xlog:class+load", "-cp", class_path)
    for name in CLASSES:
        loaded = subprocess.run([java, *options, name, "--help"], capture_output=True, text=True, check=False)
        sources = [line.partition("source: ")[2] for line in loaded.stdout.splitlines() if f" {name} source: " in line]
        assert sources == ["shared objects file (top)"]
