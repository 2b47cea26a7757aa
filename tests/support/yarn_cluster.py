"""A cluster of Hadoop's YARN on this machine: a resource manager and node managers, each node in a mount namespace of its own.

Containers see neither the folders that the cluster hides nor the cache of this user, as those of another host. What they may see, such as a lake, lies in
``shared``. The cluster has an address of the loopback device for itself, so that ports may be YARN's own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape

import spark_cluster
from spark_cluster import HIDE, JavaProcess

from floodmark.engines.spark.setup import jars
from floodmark.engines.spark.setup.home import cache_folder, spark_home
from floodmark.engines.spark.setup.java import find_java

_HADOOP, _BOUNCY = "3.5.0", "1.82"
JARS = jars.Jars(
    name="YARN",
    folder=f"jars-yarn{_HADOOP}",
    coordinates=(
        f"org.apache.hadoop:hadoop-client-minicluster:{_HADOOP}",
        f"org.bouncycastle:bcpkix-jdk18on:{_BOUNCY}",
    ),
    excluded=("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime"),
    files=(
        f"hadoop-client-minicluster-{_HADOOP}.jar",
        *(f"{name}-jdk18on-{_BOUNCY}.jar" for name in ("bcpkix", "bcprov", "bcutil")),
    ),
)
"""67 MB, which the set-up of the tests fetches; Spark has Hadoop's clients."""
_PASSED = "JAVA_HOME,AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY,AWS_REGION,AWS_ENDPOINT_URL,AWS_ALLOW_HTTP"
"""Variables of a node that its containers have."""
_LEAN = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xmx192m",
    *spark_cluster.UNCHECKED,
)


@dataclass(slots=True)
class YarnCluster:
    """A running cluster.

    Args:
        shared: a folder that driver and containers see.
        hidden: folders that containers do not see.
        work: folder of the cluster's own files.
        variables: of the environment of nodes.
    """

    shared: Path
    hidden: tuple[Path, ...]
    work: Path
    variables: Mapping[str, str]
    address: str = ""
    nodes: list[JavaProcess] = field(default_factory=list)
    _manager: JavaProcess | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Settings of applications: jars and Python are installed on the nodes, and what else they need is put where they see it."""
        return {
            **spark_cluster.SETTINGS,
            **spark_cluster.QUICK_SETTINGS,
            "spark.executor.instances": f"{len(self.nodes)}",
            "spark.executor.memoryOverhead": "300m",
            "spark.yarn.am.memory": "256m",
            "spark.yarn.am.memoryOverhead": "200m",
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": f"file://{self.shared}/staging",
        }

    @property
    def configuration(self) -> Path:
        """The folder of Hadoop's configuration, as ``HADOOP_CONF_DIR`` of drivers names it: of a cluster with a file system, in which no test has anything to look for."""
        return self.work / "client"

    @property
    def _own(self) -> Path:
        """The folder of the configuration of manager and nodes, whose default file system is the disk that all see."""
        return self.work / "conf"

    def start(self, nodes: int) -> None:
        """Start the manager, then the nodes beside each other."""
        number = os.getpid()  # of one process at a time: an address of its own, at which YARN's ports are free
        self.address = f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        self._configure()
        self._manager = JavaProcess(self._java("resourcemanager.ResourceManager", self._own), self._environment())
        self._manager.says("Transitioned to active state")
        for node in range(nodes):
            self.nodes.append(self._node(node))
        for node in self.nodes:
            node.says("Registered with ResourceManager")

    def stop(self) -> None:
        """Stop all of it; containers end with their node."""
        for java in (*self.nodes, *filter(None, [self._manager])):
            java.stop()

    def _node(self, number: int) -> JavaProcess:
        folder = self.work / f"node-{number}"
        (folder / "tmp").mkdir(parents=True)
        own = {"yarn.nodemanager.local-dirs": str(folder / "local"), "yarn.nodemanager.log-dirs": str(folder / "logs")}
        configuration = self.work / f"conf-{number}"
        shutil.copytree(self._own, configuration)
        _write(configuration / "yarn-site.xml", self._yarn() | own)
        java = self._java("nodemanager.NodeManager", configuration, f"-Djava.io.tmpdir={folder / 'tmp'}")
        hidden = " ".join(map(str, self.hidden))
        variables = self._environment() | self.variables | {"HIDDEN": hidden}
        return JavaProcess(["unshare", "-m", "bash", "-c", HIDE, "node", *java], variables)

    def _yarn(self) -> dict[str, str]:
        return {
            "yarn.resourcemanager.hostname": self.address,
            "yarn.nodemanager.hostname": self.address,
            "yarn.nodemanager.address": f"{self.address}:0",
            "yarn.nodemanager.localizer.address": f"{self.address}:0",
            "yarn.nodemanager.webapp.address": f"{self.address}:0",
            "yarn.nodemanager.env-whitelist": _PASSED,
            "yarn.nodemanager.resource.memory-mb": "1600",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.sleep-delay-before-sigkill.ms": "250",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
        }

    def _configure(self) -> None:
        """Hadoop's files of settings, of the cluster and of its clients."""
        shutil.copytree(JARS.paths[0].parent, self.work / "lib")  # nodes do not see where they were fetched to
        queues = "yarn.scheduler.capacity.root"
        scheduler = {f"{queues}.queues": "default", f"{queues}.default.capacity": "100"}
        most = {"yarn.scheduler.capacity.maximum-am-resource-percent": "1.0"}
        for folder, files in ((self._own, "file:///"), (self.configuration, "hdfs://nowhere.invalid:8020")):
            folder.mkdir(parents=True)
            _write(folder / "core-site.xml", {"fs.defaultFS": files})
            _write(folder / "yarn-site.xml", self._yarn())
            _write(folder / "capacity-scheduler.xml", scheduler | most)
            (folder / "log4j2.properties").write_text(_LOGGED)

    def _java(self, name: str, configuration: Path, *flags: str) -> list[str]:
        path = os.pathsep.join([str(configuration), str(self.work / "lib" / "*"), str(spark_home() / "jars" / "*")])
        return [str(find_java().binary), *_LEAN, *flags, "-cp", path, f"org.apache.hadoop.yarn.server.{name}"]

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.work),
            "USER": "root",
            "JAVA_HOME": str(find_java().home),
            "TZ": "UTC",
            "LANG": "C.UTF-8",
        }


_LOGGED = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


def _write(file: Path, settings: Mapping[str, str]) -> None:
    """A file of Hadoop's settings."""
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]
    file.write_text("\n".join(["<configuration>", *lines, "</configuration>"]))


@contextmanager
def cluster(
    folder: Path, hidden: Path, variables: Mapping[str, str] = MappingProxyType({}), *, nodes: int = 2
) -> Iterator[YarnCluster]:
    """A cluster, in a folder, whose nodes do not see the hidden one, and have some variables. Applications have an executor for each node."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    hidden.mkdir(parents=True, exist_ok=True)
    (folder / "shared").mkdir(parents=True)
    running = YarnCluster(folder / "shared", (hidden, cache_folder()), folder / "work", variables)
    try:
        running.start(nodes)
        yield running
    finally:
        running.stop()
        shutil.rmtree(running.work, ignore_errors=True)


if __name__ == "__main__":
    jars.fetch(JARS)
