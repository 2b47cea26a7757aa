"""Servers of OpenSearch of tests, on loopback: Maven's jars, laid out as its distribution has them."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elastic_transport import NodeConfig, Transport, TransportError
from java_flags import LEAN
from ports import free_port

from floodmark.engines.spark.setup import jars
from floodmark.engines.spark.setup.java import find_java

VERSION = "2.19.1"
JARS = jars.Jars(
    name="an OpenSearch server",
    folder=f"jars-opensearch{VERSION}",
    coordinates=(
        f"org.opensearch:opensearch:{VERSION}",
        f"org.opensearch:opensearch-plugin-classloader:{VERSION}",
        f"org.opensearch.plugin:transport-netty4-client:{VERSION}",
        "org.apache.logging.log4j:log4j-core:2.21.0",
    ),
    excluded=(),
    files=(
        "HdrHistogram-2.2.2.jar",
        "RoaringBitmap-1.3.0.jar",
        "jackson-core-2.18.2.jar",
        "jackson-dataformat-cbor-2.18.2.jar",
        "jackson-dataformat-smile-2.18.2.jar",
        "jackson-dataformat-yaml-2.18.2.jar",
        "jakarta.annotation-api-1.3.5.jar",
        "jna-5.13.0.jar",
        "joda-time-2.12.7.jar",
        "jopt-simple-5.0.4.jar",
        "jzlib-1.1.3.jar",
        "log4j-api-2.21.0.jar",
        "log4j-core-2.21.0.jar",
        "log4j-jul-2.21.0.jar",
        "lucene-analysis-common-9.12.1.jar",
        "lucene-backward-codecs-9.12.1.jar",
        "lucene-core-9.12.1.jar",
        "lucene-grouping-9.12.1.jar",
        "lucene-highlighter-9.12.1.jar",
        "lucene-join-9.12.1.jar",
        "lucene-memory-9.12.1.jar",
        "lucene-misc-9.12.1.jar",
        "lucene-queries-9.12.1.jar",
        "lucene-queryparser-9.12.1.jar",
        "lucene-sandbox-9.12.1.jar",
        "lucene-spatial-extras-9.12.1.jar",
        "lucene-spatial3d-9.12.1.jar",
        "lucene-suggest-9.12.1.jar",
        "netty-buffer-4.1.118.Final.jar",
        "netty-codec-4.1.118.Final.jar",
        "netty-codec-http-4.1.118.Final.jar",
        "netty-common-4.1.118.Final.jar",
        "netty-handler-4.1.118.Final.jar",
        "netty-resolver-4.1.118.Final.jar",
        "netty-transport-4.1.118.Final.jar",
        "netty-transport-native-unix-common-4.1.118.Final.jar",
        "opensearch-2.19.1.jar",
        "opensearch-cli-2.19.1.jar",
        "opensearch-common-2.19.1.jar",
        "opensearch-compress-2.19.1.jar",
        "opensearch-core-2.19.1.jar",
        "opensearch-geo-2.19.1.jar",
        "opensearch-plugin-classloader-2.19.1.jar",
        "opensearch-secure-sm-2.19.1.jar",
        "opensearch-task-commons-2.19.1.jar",
        "opensearch-telemetry-2.19.1.jar",
        "opensearch-x-content-2.19.1.jar",
        "protobuf-java-3.25.5.jar",
        "reactive-streams-1.0.4.jar",
        "reactor-core-3.5.20.jar",
        "snakeyaml-2.1.jar",
        "t-digest-3.2.jar",
        "transport-netty4-client-2.19.1.jar",
        "zstd-jni-1.5.5-5.jar",
    ),
)
"""45 MB, which the set-up of the tests fetches."""
PATIENCE_SECONDS = 300
_LOOK_SECONDS = 0.1
_PLUGIN = """\
description=HTTP
version={version}
name=transport-netty4
classname=org.opensearch.transport.Netty4Plugin
java.version=11
opensearch.version={version}
extended.plugins=
has.native.controller=false
"""
_ALL = "grant { permission java.security.AllPermission; };\n"
_SETTINGS = """\
discovery.type: single-node
network.host: 127.0.0.1
http.port: {http}
transport.port: {transport}
cluster.routing.allocation.disk.threshold_enabled: false
"""
_LOGGING = """\
status = error
appender.c.type = Console
appender.c.name = c
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d %p %c %m%n
rootLogger.level = warn
rootLogger.appenderRef.c.ref = c
"""
_NO_NATIVE = ("-Djna.nosys=true", "-Djna.nounpack=true", "-Djna.boot.library.path=/none")
"""Without native code it cannot see that it runs as root, which it refuses and a container's only user is."""


class Server:
    """A server, whose documents survive a kill.

    Args:
        folder: for all that it writes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        module, config = folder / "modules" / "transport-netty4", folder / "config"
        for made in (module, config, folder / "lib", folder / "tmp"):
            made.mkdir(parents=True)
        assert not JARS.missing, f"{JARS.missing} are missing: python tests/support/search_server.py"
        for jar in JARS.paths:
            if jar.name.startswith(("netty-", "transport-netty4")):
                shutil.copy(jar, module)
        (module / "plugin-descriptor.properties").write_text(_PLUGIN.format(version=VERSION))
        (module / "plugin-security.policy").write_text(_ALL)
        (config / "opensearch.yml").write_text(_SETTINGS.format(http=self.port, transport=free_port()))
        (config / "log4j2.properties").write_text(_LOGGING)

    @property
    def url(self) -> str:
        """As a delivery names it."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request and its answer; the answer of an error too."""
        return ask(self.url, method, path, body)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        path = ":".join(str(jar) for jar in JARS.paths if not jar.name.startswith(("netty-", "transport-netty4")))
        memory = ("-Xms256m", "-Xmx256m", *LEAN)
        own = (f"-Dopensearch.path.home={self.folder}", f"-Dopensearch.path.conf={self.folder / 'config'}")
        rest = ("-Dopensearch.distribution.type=tar", f"-Djava.io.tmpdir={self.folder / 'tmp'}")
        allowed = "-Djava.security.manager=allow"
        command = [str(find_java().binary), *memory, *_NO_NATIVE, allowed, *own, *rest, "-cp", path]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "org.opensearch.bootstrap.OpenSearch"], stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            assert time.monotonic() < end, (self.folder / "log").read_text()[-2000:]
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            time.sleep(_LOOK_SECONDS)

    def _answers(self) -> bool:
        """Whether the documents of all indexes can be read: the server answers before it has found them."""
        try:
            health = self.ask("GET", "/_cluster/health?wait_for_status=yellow")
        except TransportError:
            return False
        return health.get("timed_out") is False

    def stop(self, *, kill: bool = False) -> None:
        """End it by its pid."""
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            self._process.wait(PATIENCE_SECONDS)


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """A new server, until the block ends."""
    started = Server(folder)
    started.start()
    try:
        yield started
    finally:
        started.stop(kill=True)


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """A request and its answer; the answer of an error too."""
    node = NodeConfig("http", "127.0.0.1", int(url.rpartition(":")[2]), request_timeout=PATIENCE_SECONDS)
    headers = {"accept": "application/json", "content-type": "application/json"}
    return Transport([node], max_retries=0).perform_request(method, path, body=body, headers=headers).body


def documents(url: str, index: str) -> list[dict[str, Any]]:
    """All documents of an index, of at most 10,000."""
    ask(url, "POST", f"/{index}/_refresh")
    answer = ask(url, "GET", f"/{index}/_search", {"query": {"match_all": {}}, "size": 10_000})
    return [hit["_source"] for hit in answer["hits"]["hits"]]


if __name__ == "__main__":  # the set-up of the tests
    jars.fetch(JARS)
