"""The text that names a Spark master: checked before Java starts, and whether the master answers."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

from floodmark.core.errors import SetupError, closest
from floodmark.engines.spark.setup import hadoop

_MASTERS = ("local", "local-cluster", "spark", "yarn", "k8s", "sc")
_MASTER = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|spark://.+:\d+.*|yarn|k8s://.+|sc://.+"
)
_STANDALONE = "spark://"
_YARN, _HADOOP = "yarn", "spark.hadoop."
_MANAGER, _MANAGER_PORT = "yarn.resourcemanager", 8032
_CONNECT = "sc://"
ANSWER_SECONDS = 3
"""Longest wait for a master to accept a connection. Spark itself would wait for a minute."""


def is_cluster(master: str) -> bool:
    """True if a master's executors are other processes, which may be on other hosts."""
    return re.match(r"local(\[|$)", master) is None


def is_standalone(master: str) -> bool:
    """True for the master of a cluster of Spark's own."""
    return master.startswith(_STANDALONE)


def is_yarn(master: str) -> bool:
    """True for a cluster of Hadoop's YARN, whose addresses are in the folder that ``HADOOP_CONF_DIR`` or ``YARN_CONF_DIR`` names."""
    return master == _YARN


def is_connect(master: str) -> bool:
    """True for a server of Spark Connect: the driver of its sessions is the server, not this process."""
    return master.startswith(_CONNECT)


def reach_master(master: str, settings: Mapping[str, str] = MappingProxyType({})) -> None:
    """Make sure that one of the masters of a standalone cluster, or of YARN's resource managers, accepts connections.

    Args:
        master: as in the workspace's settings.
        settings: of Spark, which may name a resource manager.

    Raises:
        SetupError: SETUP-082, none does; SETUP-154, where YARN's are is not known.
    """
    if is_yarn(master):
        addresses = _resource_managers(settings)
        fix = "Start it, or correct yarn-site.xml in the folder of HADOOP_CONF_DIR; on this machine alone: FLOODMARK_MASTER='local[2]'."
    elif is_standalone(master):
        addresses = master.removeprefix(_STANDALONE).split(",")
        fix = "Start it, or correct the master in resources/settings.py or FLOODMARK_MASTER; on this machine alone: FLOODMARK_MASTER='local[2]'."
    else:
        return
    failures = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
        except (OSError, ValueError) as error:
            failures.append(f"{address}: {error}")
        else:
            return
    if failures:
        expected = f"a master that answers within {ANSWER_SECONDS} s"
        raise SetupError(f"Spark master {master}", expected, "; ".join(failures), fix, code="SETUP-082")


def _resource_managers(settings: Mapping[str, str]) -> list[str]:
    """Addresses of YARN's resource managers, as Hadoop's configuration has them; none where only Java can tell."""
    own = {name.removeprefix(_HADOOP): value for name, value in settings.items() if name.startswith(_HADOOP)}
    fix = "Name the folder of the cluster's yarn-site.xml: export HADOOP_CONF_DIR=/etc/hadoop/conf."
    where, expected = f"Spark master {_YARN}", "Hadoop's configuration, with the address of a resource manager"
    if not hadoop.folders():
        raise SetupError(where, expected, "neither HADOOP_CONF_DIR nor YARN_CONF_DIR", fix, code="SETUP-154")
    file = hadoop.file_of("yarn-site.xml") or "no yarn-site.xml in " + ", ".join(map(str, hadoop.folders()))
    try:
        known = hadoop.properties(own)
    except (OSError, ElementTree.ParseError) as error:
        raise SetupError(where, expected, f"{file}: {error}", fix, code="SETUP-154") from error
    are_several = known.get(f"{_MANAGER}.ha.enabled", "").lower() == "true"
    names = known.get(f"{_MANAGER}.ha.rm-ids", "").split(",") if are_several else []
    several = [f".{name.strip()}" for name in names if name.strip()]
    stated = [
        known.get(f"{_MANAGER}.address{which}") or known.get(f"{_MANAGER}.hostname{which}") for which in several or [""]
    ]
    addresses = [address if ":" in address else f"{address}:{_MANAGER_PORT}" for address in stated if address]
    if not addresses:
        got = f"{file} without {_MANAGER}.hostname" if isinstance(file, Path) else file
        raise SetupError(where, expected, got, fix, code="SETUP-154")
    return [] if any("${" in address for address in addresses) else addresses


def check_master(master: str) -> None:
    """Raise SetupError SETUP-054 if a text is no Spark master."""
    if _MASTER.fullmatch(master):
        return
    kind = re.split(r"[\[:]", master, maxsplit=1)[0]
    fix = f"{closest(kind, _MASTERS)}Correct it in resources/settings.py, or set FLOODMARK_MASTER='local[2]'."
    expected = "local, local[N], local[*], spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT"
    raise SetupError("Spark master", expected, repr(master), fix, code="SETUP-054")
