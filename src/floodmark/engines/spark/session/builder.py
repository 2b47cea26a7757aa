"""The builder of the Spark session: settings, Java options, silenced noise. Spark is started nowhere else.

The comments on settings below were measured.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, inheritable_thread_target
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from floodmark.core.errors import SetupError
from floodmark.core.import_path import import_folders
from floodmark.core.scratch import Scratch
from floodmark.engines.spark.session import limits, local_files, store
from floodmark.engines.spark.session.executors import Launches, await_first
from floodmark.engines.spark.setup import archive, hadoop
from floodmark.engines.spark.setup.home import cache_folder, check_release, home, spark_home
from floodmark.engines.spark.setup.jars import class_path
from floodmark.engines.spark.setup.java import find_java
from floodmark.engines.spark.setup.master import check_master, is_cluster, is_standalone, is_yarn

_STATE = "spark.sql.streaming.stateStore"
_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variable.substitute": "false",  # else the text '${x}' in an expression is an empty one
        # transformWithState runs on RocksDB only; without a changelog each batch writes a whole snapshot
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STATE}.checkpointFormatVersion": "2",
        "spark.sql.streaming.minBatchesToRetain": "100",
        # the default of 50 makes a small commit four times slower; with one part a stream's first files are put in order without a sample and a count
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM of ten files: 2 s instead of 26 s
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",  # the default lets one batch grow to 2 GB
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default, INT96, has no statistics
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.scheduler.mode": "FAIR",  # streams of one process share its cores
        # true for all but stateful functions, which then have a second process to be forked from, and imports of their own
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.python.daemon.module": "floodmark.engines.spark.session.daemon",
        f"spark.hadoop.{hadoop.DEFAULT}": hadoop.DISK,  # HADOOP_CONF_DIR may name a cluster's, and a lake's path is one of the disk
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
)
_SHOWN_BY_UI: Mapping[str, str] = MappingProxyType(
    {
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "20",
    }
)
"""What Java keeps of the past for the pages of its UI, each 1,000 and more by default with whole plans as text, although the UI is off."""
_LOCAL: Mapping[str, str] = MappingProxyType(
    {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
)
_PYTHON = "spark.pyspark.python"
"""Setting that names the Python of a cluster's workers."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
"""Variable with further arguments of ``spark-submit``, by which PySpark starts Java."""
_ASCII = 128
_LAST_LINES = 20
"""Lines of Java's stderr that are kept for an error."""
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_NOISE = (
    b"WARNING: Using incubator modules",
    b"Streaming TransformWithState",
    b"Starting Streaming TransformWithState",
    b"Current mem limits: ",  # of Python workers with a limit, in each task
    b"Setting mem limits to ",
)


def spark_session(
    *,
    app: str = "floodmark",
    cores: str = "local[2]",
    shuffle_partitions: int = 2,
    memory: str = "1g",
    extra: Mapping[str, str] = MappingProxyType({}),
    secrets: Mapping[str, str] = MappingProxyType({}),
    archive_to: Path | None = None,
    meet: Callable[[SparkContext], None] = lambda _: None,
) -> SparkSession:
    """The running session, or a new one with all of floodmark's settings.

    Args:
        app: name of the session.
        cores: a Spark master; ``local[N]`` is N cores of this machine.
        shuffle_partitions: state partitions per stateful step; fixed for the life of a checkpoint.
        memory: the Java heap of the driver.
        extra: Spark settings that win over floodmark's; ``spark.driver.extraJavaOptions`` is appended instead.
        secrets: Spark settings that no other user of this machine may see: they reach Java in a file that is removed once Java has started.
        archive_to: file to which the class archive is written when the session ends; set by the process that builds the archive.
        meet: what the first session of an application does on the workers of a cluster, while the rest of the session is made. What it raises is raised.

    Time: the session, this process and Java all run in UTC.

    Raises:
        SetupError: SETUP-001 no Java, SETUP-002 no Delta jars, SETUP-054 no such master, SETUP-055 Java ended at once, SETUP-083 no worker has room,
            SETUP-084 executors cannot connect to this process, SETUP-111 a limit in which workers have no room, SETUP-124 another Spark.
    """
    check_master(cores)
    check_release()
    _prepare_process(cores, extra.get(_PYTHON))
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no public way to ask
        conf, launches = _conf(app, cores, memory, extra, archive_to), Launches()
        # the Java of an earlier session of this process is used again
        context = SparkContext(conf=conf, gateway=SparkContext._gateway or _launch(conf, launches, secrets))  # noqa: SLF001
        local_files.install(context)
        if is_cluster(cores):
            _beside_workers(context, launches if is_standalone(cores) else None, meet)
    spark = SparkSession.builder.getOrCreate()
    if not is_cluster(cores):
        spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(import_folders(sys.path))
    for key, value in {"spark.sql.shuffle.partitions": str(shuffle_partitions), **extra}.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    _ = spark.streams  # once, or reading state in a session without a stream fails (SPARK-58973)
    return spark


def _beside_workers(context: SparkContext, launches: Launches | None, meet: Callable[[SparkContext], None]) -> None:
    """Make the session while another thread waits for executors and meets them: both take as long."""

    def met() -> None:
        if launches is not None:
            await_first(context, launches)
        meet(context)

    try:
        with ThreadPoolExecutor(1, "workers") as pool:
            meeting = pool.submit(inheritable_thread_target(met))
            SparkSession.builder.getOrCreate()
        meeting.result()
    except BaseException:  # the next session would find a context whose workers nobody has met
        context.stop()
        raise


def has_ended() -> bool:
    """True if the Java that this process has started has ended by itself."""
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - there is no public way to ask
    return process is not None and process.poll() is not None


def stop_session(spark: SparkSession, *, seconds: int = 60) -> None:
    """Stop Spark and its Java, and wait until the Java process has ended.

    Args:
        spark: the session of this process.
        seconds: most seconds to wait for Java; a Java that writes a class archive takes longer.

    Raises:
        subprocess.TimeoutExpired: Java has not ended.
    """
    spark.stop()
    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public way to ask
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - so that a later session starts a new Java
    if process is not None:
        process.stdin.close()  # Java ends when its stdin is closed
        process.wait(timeout=seconds)


def _prepare_process(cores: str, python: str | None) -> None:
    of_workers = sys.executable if python is None or not is_cluster(cores) else python
    os.environ.update(TZ="UTC", PYSPARK_PYTHON=of_workers, PYSPARK_DRIVER_PYTHON=sys.executable)
    if hasattr(time, "tzset"):
        time.tzset()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # the logger prints the text of the exception
    os.environ["JAVA_HOME"] = str(find_java().home)
    linked = str(
        home(cache_folder())
    )  # what an earlier session, of this process or of one that has started it, has named
    if not is_cluster(cores) or os.environ.get("SPARK_HOME", linked) == linked:
        # one of another version must not be mixed with this pyspark; to containers of YARN Spark sends its zipped Python
        os.environ["SPARK_HOME"] = str(spark_home()) if is_yarn(cores) else linked


def _conf(app: str, cores: str, memory: str, extra: Mapping[str, str], archive_to: Path | None) -> SparkConf:
    jars = class_path()
    settings = {"spark.app.name": app, "spark.master": cores, "spark.driver.memory": memory, **_SETTINGS}
    options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}", "-Duser.timezone=UTC"]
    options.append(f"-Djava.io.tmpdir={scratch()}")
    settings["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
    settings["spark.sql.warehouse.dir"] = str(scratch() / "warehouse")
    options += _java_options(jars, archive_to)
    settings |= {f"spark.hadoop.{name}": value for name, value in store.settings(os.environ).items()}
    if is_cluster(cores):
        settings["spark.jars"] = ",".join(map(str, jars))
        settings |= {f"spark.executorEnv.{name}": value for name, value in store.of_executors(os.environ).items()}
    else:
        settings |= {**_LOCAL, "spark.local.dir": str(scratch() / "local")}
    if extra.get("spark.ui.enabled", "false") == "false":
        settings |= _SHOWN_BY_UI
    settings |= {**limits.following(extra), **extra}
    if is_yarn(cores):
        settings |= hadoop.naming_files(settings)
    if extra_options := extra.get(_JAVA_OPTIONS):
        options.append(extra_options)
    quoted = [option if option == extra_options or " " not in option else f'"{option}"' for option in options]
    settings[_JAVA_OPTIONS] = " ".join(quoted)
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _java_options(jars: Sequence[Path], archive_to: Path | None) -> tuple[str, ...]:
    """Java options that use or write the class archive; starts a process that builds the archive if there is none."""
    if archive_to is not None:
        return archive.options_to_write(archive_to)
    archive_file = archive.path(cache_folder(), jars)
    archive.start_build(archive_file)
    return archive.options(archive_file)


@cache
def scratch() -> Path:
    """The folder for Spark's spills and other temporary files, removed when this process ends."""
    folder = Scratch()
    atexit.register(_clean_up, folder)
    return folder.path


def _clean_up(folder: Scratch) -> None:
    spark = SparkSession.getActiveSession()
    if spark is not None:
        with suppress(Py4JError, OSError, subprocess.TimeoutExpired):  # Java may be gone already
            stop_session(spark)
    folder.remove()


def _launch(conf: SparkConf, launches: Launches, secrets: Mapping[str, str]) -> JavaGateway:
    """Start Java, with a thread that forwards Java's stderr without the noise that no setting silences, and without what is said of launches.

    Raises:
        SetupError: SETUP-055, Java ended before Spark had started.
    """
    reader, writer = os.pipe()
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    thread = threading.Thread(target=_forward, args=(reader, last_lines, launches), name="java-stderr", daemon=True)
    try:
        with _in_a_file(secrets):
            gateway: JavaGateway = launch_gateway(conf, popen_kwargs={"stderr": writer})  # type: ignore[no-untyped-call] # pyspark's
    except (PySparkRuntimeError, OSError) as error:
        os.close(writer)
        thread.start()
        thread.join(timeout=1)
        raise _not_started(last_lines, error) from error
    os.close(writer)
    thread.start()
    return gateway


@contextmanager
def _in_a_file(secrets: Mapping[str, str]) -> Iterator[None]:
    """Launch Java with settings from a file that only this user can read: arguments are seen by all users of a machine."""
    if not secrets:
        yield
        return
    file = scratch() / f"secrets-{uuid.uuid4().hex}.properties"
    before = os.environ.get(_ARGUMENTS)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as properties:
        properties.writelines(f"{name}={_property(text)}\n" for name, text in secrets.items())
    os.environ[_ARGUMENTS] = (
        f"--load-spark-defaults --properties-file {shlex.quote(str(file))} {before or 'pyspark-shell'}"
    )
    try:
        yield
    finally:
        file.unlink()
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before


def _property(text: str) -> str:
    """A text as the value of a property in a file of Java's: every character but letters and digits of ASCII by its number."""
    units = text.encode("utf-16-be")
    numbers = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(
        chr(number) if number < _ASCII and chr(number).isalnum() else f"\\u{number:04x}" for number in numbers
    )


def _not_started(last_lines: Sequence[str], error: Exception) -> SetupError:
    """The error SETUP-055, with the line of stderr in which Java, or the script that starts Java, names the cause."""
    why = next(
        (
            line
            for line in last_lines
            if re.search(r"error|exception|no such|not found|invalid|unrecognized", line, re.IGNORECASE)
        ),
        "",
    )
    fix = (
        "Look at the settings Java gets: Settings(spark=...) and SPARK_* in the environment; bash must be on PATH, and "
        f"`{find_java().binary} -version` must answer."
    )
    got = why or next(reversed(last_lines), "") or str(error)
    return SetupError("Spark", "a Java that starts", got, fix, code="SETUP-055")


def _forward(reader: int, last_lines: deque[str], launches: Launches) -> None:
    """Copy lines from a pipe to stderr, without noise, and into ``last_lines``, until the pipe is closed."""
    after_noise = False
    with os.fdopen(reader, "rb") as lines, suppress(OSError):
        for line in lines:
            noise = launches.takes(line) or line.startswith(_NOISE) or (after_noise and not line.strip())
            if not noise:
                os.write(2, line)
                if line.strip():
                    last_lines.append(line.decode(errors="replace").strip())
            after_noise = noise
