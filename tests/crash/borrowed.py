"""Java that outlives its driver: a process of a test works on the Java of the test itself, and only its Python is killed.

Java then finds itself in the middle of a micro-batch whose driver is gone. That leaves the same files as a kill of both, and the next
process need not start and warm up a Java of its own, which is most of what such a test costs.

Java calls functions of Python by a name, and tells Python when it has no more use for a name. It tells whichever process it calls by then, so
each process has names of its own.
"""

from __future__ import annotations

import os
import time

from py4j.java_gateway import JavaObject
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

VARIABLE = "FLOODMARK_TEST_JAVA"
PYTHON = "FLOODMARK_TEST_PYTHON"
"""The program that this Java knows Python by: it has a daemon of Python's for each."""
_PATIENCE_SECONDS = 300


def lend(spark: SparkSession) -> dict[str, str]:
    """The environment of a process that is to work on the Java of this one."""
    java = spark.sparkContext._gateway.java_parameters
    return {VARIABLE: f"{java.port} {java.auth_token}", PYTHON: spark.sparkContext.pythonExec}


def borrow() -> None:
    """Work on the Java that was lent, if one was."""
    if VARIABLE not in os.environ:
        return
    port, secret = os.environ[VARIABLE].split()
    os.environ.update(PYSPARK_GATEWAY_PORT=port, PYSPARK_GATEWAY_SECRET=secret)
    gateway = launch_gateway()
    gateway.gateway_property.pool.next_id = (
        time.time_ns()
    )  # else the process that is called now loses what has the same name
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)
    SparkContext(gateway=gateway, jsc=java).pythonExec = os.environ[PYTHON]


def wait_for_streams(spark: SparkSession) -> None:
    """Return once the streams of a killed driver have ended."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while spark.streams.active:
        assert time.monotonic() < end, "a stream goes on without its driver"
        time.sleep(0.05)


def take_back(spark: SparkSession) -> None:
    """After the process has died: its streams have noticed, and Java calls this process again."""
    wait_for_streams(spark)
    gateway = spark.sparkContext._gateway
    if getattr(gateway, "_callback_server", None) is not None:
        server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
        server.resetCallbackClient(server.getCallbackClient().getAddress(), gateway._python_proxy_port)
