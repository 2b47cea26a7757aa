"""The text that names a Spark master: checked before Java starts, and whether the master answers."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from xml.etree import ElementTree

from floodmark.core.errors import SetupError, closest

_MASTERS = ("local", "local-cluster", "spark", "yarn", "k8s", "sc")
_MASTER = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|spark://.+:\d+.*|yarn|k8s://.+|sc://.+"
)
_STANDALONE = "spark://"
_YARN = "yarn"
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


def reach_master(master: str) -> None:
    """Make sure that one of the masters of a standalone cluster, or of YARN's resource managers, accepts connections.

    Raises:
        SetupError: SETUP-082, none does; SETUP-154, where YARN's are is not known.
    """
    if is_yarn(master):
        addresses = _resource_managers()
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
    expected = f"a master that answers within {ANSWER_SECONDS} s"
    raise SetupError(f"Spark master {master}", expected, "; ".join(failures), fix, code="SETUP-082")


def _resource_managers() -> list[str]:
    """Addresses of YARN's resource managers, as Hadoop's configuration has them."""
    folder = os.environ.get("YARN_CONF_DIR") or os.environ.get("HADOOP_CONF_DIR")
    fix = "Name the folder of the cluster's yarn-site.xml: export HADOOP_CONF_DIR=/etc/hadoop/conf."
    where, expected = f"Spark master {_YARN}", "Hadoop's configuration, with the address of a resource manager"
    if folder is None:
        raise SetupError(where, expected, "neither HADOOP_CONF_DIR nor YARN_CONF_DIR", fix, code="SETUP-154")
    file = Path(folder, "yarn-site.xml")
    try:
        properties = ElementTree.parse(file).getroot().iter("property")  # noqa: S314 - the user's own file
        known = {one.findtext("name", "").strip(): one.findtext("value", "").strip() for one in properties}
    except (OSError, ElementTree.ParseError) as error:
        raise SetupError(where, expected, f"{file}: {error}", fix, code="SETUP-154") from error
    several = [f".{name.strip()}" for name in known.get(f"{_MANAGER}.ha.rm-ids", "").split(",") if name.strip()]
    stated = [
        known.get(f"{_MANAGER}.address{which}") or known.get(f"{_MANAGER}.hostname{which}") for which in several or [""]
    ]
    addresses = [address if ":" in address else f"{address}:{_MANAGER_PORT}" for address in stated if address]
    if not addresses:
        raise SetupError(where, expected, f"{file} without {_MANAGER}.hostname", fix, code="SETUP-154")
    return addresses


def check_master(master: str) -> None:
    """Raise SetupError SETUP-054 if a text is no Spark master."""
    if _MASTER.fullmatch(master):
        return
    kind = re.split(r"[\[:]", master, maxsplit=1)[0]
    fix = f"{closest(kind, _MASTERS)}Correct it in resources/settings.py, or set FLOODMARK_MASTER='local[2]'."
    expected = "local, local[N], local[*], spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT"
    raise SetupError("Spark master", expected, repr(master), fix, code="SETUP-054")
