"""A cluster of Spark's own on this machine: a master and workers from the pyspark wheel, each worker in a mount namespace of its own.

A worker sees neither the folders that the cluster hides nor the cache of this user, as if it were another host: what reads a path of the driver
there fails. What both may see, such as a lake, lies in ``shared``.
"""

from __future__ import annotations

import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from types import MappingProxyType

from floodmark.engines.spark.setup import archive
from floodmark.engines.spark.setup.home import cache_folder, spark_home
from floodmark.engines.spark.setup.jars import class_path
from floodmark.engines.spark.setup.java import find_java

SECONDS = 300
"""Longest wait for a process to be ready, on a busy machine."""
UNCHECKED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Java options: the bytes of classes are not checked, which takes a tenth of the processor time in which Java starts."""
LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto", "-Xmx96m", *UNCHECKED)
HIDE = 'mount --make-rprivate / && for folder in $HIDDEN; do mount -t tmpfs none "$folder"; done && exec "$@"'
SETTINGS = {
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
"""Settings of applications: small executors, which start soon; who connects is authenticated, and what is sent or spilled is encrypted."""
_LEAN_JAVA = f"{SETTINGS['spark.executor.extraJavaOptions']} {' '.join(UNCHECKED)}"
QUICK_SETTINGS = {
    "spark.executor.extraJavaOptions": _LEAN_JAVA,
    "spark.yarn.am.extraJavaOptions": _LEAN_JAVA,
    "spark.driver.extraJavaOptions": " ".join(UNCHECKED),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of applications of tests: Java starts sooner, and Spark interprets what it runs, as in their group (``tests/run.py``)."""
SECRET = f"a 'secret' = {secrets.token_hex(16)} \\"
"""The secret that all processes of the cluster and of its applications share, with what files of properties read in their own way."""
SECURED = ("spark.authenticate", "spark.network.crypto.enabled")


class JavaProcess:
    """A process of Spark's deployment; its lines are read as long as it runs."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.lines: deque[str] = deque(maxlen=200)
        self._said: Queue[str | None] = Queue()
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, name="spark cluster", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            self._said.put(line)
        self._said.put(None)

    def says(self, pattern: str) -> re.Match[str]:
        """The first line from now on that has the pattern."""
        while True:
            try:
                line = self._said.get(timeout=SECONDS)
            except Empty:
                line = None
            if line is None:
                msg = f"no line like {pattern}: {''.join(self.lines)}"
                raise AssertionError(msg)
            if match := re.search(pattern, line):
                return match

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait()


@dataclass(slots=True)
class Cluster:
    """A running cluster.

    Args:
        shared: a folder that driver and workers see.
        hidden: folders that workers do not see.
        work: folder of the workers' own files.
        variables: of the environment of workers, beside those of all processes of the cluster.
    """

    shared: Path
    hidden: tuple[Path, ...]
    work: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    master: str = ""
    workers: list[JavaProcess] = field(default_factory=list)
    _master: JavaProcess | None = None

    def start(self, workers: int = 2) -> None:
        """Start the master, then the workers beside each other."""
        self._master = JavaProcess(
            self._java("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"), self._environment()
        )
        self.master = self._master.says(r"Starting Spark master at (spark://\S+)")[1]
        self._master.says("I have been elected leader")
        for _ in range(workers):
            self.workers.append(self._worker(len(self.workers)))
        for worker in self.workers:
            worker.says("Successfully registered with master")

    def stop(self) -> None:
        """Stop all of it."""
        for java in self._processes:
            java.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes of workers and master."""
        return tuple(java.process.pid for java in self._processes)

    @property
    def _processes(self) -> tuple[JavaProcess, ...]:
        return (*self.workers, *filter(None, [self._master]))

    def _worker(self, number: int) -> JavaProcess:
        folder = self.work / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", "700m", "--webui-port", "0"]
        java = self._java("worker.Worker", *arguments, "--work-dir", str(folder), self.master)
        hidden = " ".join(map(str, self.hidden))
        return JavaProcess(
            ["unshare", "-m", "bash", "-c", HIDE, "worker", *java],
            self._environment() | self.variables | {"HIDDEN": hidden},
        )

    def _java(self, name: str, *arguments: str) -> list[str]:
        jars = spark_home() / "jars" / "*"
        program = [str(find_java().binary), *LEAN, "-cp", str(jars), f"org.apache.spark.deploy.{name}"]
        return [*program, "--properties-file", str(self._properties()), *arguments]

    def _properties(self) -> Path:
        """The file of settings of master and workers."""
        file = self.work / "spark.properties"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={SETTINGS[name]}" for name in SECURED]
        quoted = "".join(f"\\u{ord(letter):04x}" for letter in SECRET)
        file.write_text("\n".join([*lines, f"spark.authenticate.secret={quoted}"]))
        return file

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.work),
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(spark_home()),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TZ": "UTC",
            "LANG": "C.UTF-8",
        }


def archived_settings() -> dict[str, str]:
    """``SETTINGS`` with which executors use the class archive of this user, who has to have one; for a cluster whose workers see it."""
    archive_file = archive.path(cache_folder(), class_path())
    assert archive_file.is_file(), "python -m floodmark.engines.spark.session.warmup"
    settings = archive.of_executors(archive_file, class_path())
    name = "spark.executor.extraJavaOptions"
    return SETTINGS | settings | {name: f"{SETTINGS[name]} {settings[name]}"}


@contextmanager
def cluster(
    folder: Path,
    hidden: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    archived: bool = False,
) -> Iterator[Cluster]:
    """A cluster of two workers, in a folder.

    Args:
        folder: of the cluster.
        hidden: folder that workers do not see.
        variables: of the environment of workers.
        archived: whether workers see the class archive of this user, with the jars that are fetched once per user.
    """
    cache_folder().mkdir(parents=True, exist_ok=True)
    hidden.mkdir(parents=True, exist_ok=True)
    (folder / "shared").mkdir(parents=True)
    unseen = (hidden,) if archived else (hidden, cache_folder())
    running = Cluster(folder / "shared", unseen, folder / "work", variables)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(running.work, ignore_errors=True)
