"""The executors of a standalone cluster while an application starts: which ones the master has launched, and whether one has connected to the driver.

The driver's Java logs what the master says of each launch. ``spark_session`` reads these lines: nothing else tells an address that executors
cannot reach from a cluster that is busy.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext

from floodmark.core.errors import SetupError

CONNECT_SECONDS = 60
"""Longest wait for the first executor."""
_POLL_SECONDS = 0.1
_CLIENT = b"StandaloneAppClient"
_ADDED = re.compile(rb"Executor added: (\S+) on \S+ \(([^)]*)\) with")
_ENDED = re.compile(rb"Executor updated: (\S+) is now (?:FAILED|EXITED|LOST)(?: \((.*)\))?")


@dataclass(slots=True)
class Launches:
    """Launches of executors.

    Args:
        hosts: id of an executor -> address of its worker.
        ended: id of an executor that has ended -> why.
    """

    hosts: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)

    def takes(self, line: bytes) -> bool:
        """True if a line of Java's is about launches: it is not for the terminal."""
        if _CLIENT not in line:
            return False
        if match := _ADDED.search(line):
            self.hosts[match[1].decode()] = match[2].decode()
        elif match := _ENDED.search(line):
            self.ended[match[1].decode()] = (match[2] or b"no reason").decode(errors="replace")
        return b" INFO " in line


def count(context: SparkContext) -> int:
    """Executors that are connected to the driver."""
    java: Any = context._jsc  # noqa: SLF001 - there is no public way to ask
    return int(java.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one of them


def await_first(context: SparkContext, launches: Launches, seconds: float = CONNECT_SECONDS) -> None:
    """Wait until an executor has connected to the driver.

    Args:
        context: of a standalone cluster.
        launches: of this application.
        seconds: longest wait.

    Raises:
        SetupError: SETUP-083, no worker has room for an executor; SETUP-084, executors were launched, and none can connect to the driver.
    """
    deadline = time.monotonic() + seconds
    while not count(context):
        if launches.ended or time.monotonic() > deadline:
            raise _refusal(context, launches, seconds)
        time.sleep(_POLL_SECONDS)


def _refusal(context: SparkContext, launches: Launches, seconds: float) -> SetupError:
    conf: Any = context.getConf()
    where = f"Spark master {context.master}"
    if not launches.hosts:
        size = conf.get("spark.executor.memory", "1g")
        fix = 'Start workers, end other applications, or ask for less: Settings(spark=(("spark.executor.memory", "600m"), ("spark.cores.max", "2"))).'
        expected = f"a worker with a free core and {size} for an executor within {seconds:.0f} s"
        return SetupError(where, expected, "none", fix, code="SETUP-083")
    address = f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"
    hosts = ", ".join(dict.fromkeys(launches.hosts.values()))
    why = next(iter(launches.ended.values()), f"none connected within {seconds:.0f} s")
    fix = (
        'Name an address of this machine that workers reach: Settings(spark=(("spark.driver.host", "ADDRESS"),)) in resources/settings.py; behind NAT also '
        "spark.driver.bindAddress, and fixed ports that are passed on: spark.driver.port, spark.blockManager.port. "
        "What the executor itself says is in the file stderr of its folder on that worker."
    )
    got = f"executors launched on {hosts} that did not connect: {why}"
    return SetupError(where, f"executors that connect to the driver at {address}", got, fix, code="SETUP-084")
