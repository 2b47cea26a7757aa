"""The text that names a Spark master: checked before Java starts, and whether the master answers."""

from __future__ import annotations

import re
import socket

from floodmark.core.errors import SetupError, closest

_MASTERS = ("local", "local-cluster", "spark", "yarn", "k8s", "sc")
_MASTER = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|spark://.+:\d+.*|yarn|k8s://.+|sc://.+"
)
_STANDALONE = "spark://"
_CONNECT = "sc://"
ANSWER_SECONDS = 3
"""Longest wait for a master to accept a connection. Spark itself would wait for a minute."""


def is_cluster(master: str) -> bool:
    """True if a master's executors are other processes, which may be on other hosts."""
    return re.match(r"local(\[|$)", master) is None


def is_standalone(master: str) -> bool:
    """True for the master of a cluster of Spark's own."""
    return master.startswith(_STANDALONE)


def is_connect(master: str) -> bool:
    """True for a server of Spark Connect: the driver of its sessions is the server, not this process."""
    return master.startswith(_CONNECT)


def reach_master(master: str) -> None:
    """Make sure that one of the masters of a standalone cluster accepts connections.

    Raises:
        SetupError: SETUP-082, none does.
    """
    if not is_standalone(master):
        return
    failures = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
        except (OSError, ValueError) as error:
            failures.append(f"{address}: {error}")
        else:
            return
    fix = "Start it, or correct the master in resources/settings.py or FLOODMARK_MASTER; on this machine alone: FLOODMARK_MASTER='local[2]'."
    expected = f"a master that answers within {ANSWER_SECONDS} s"
    raise SetupError(f"Spark master {master}", expected, "; ".join(failures), fix, code="SETUP-082")


def check_master(master: str) -> None:
    """Raise SetupError SETUP-054 if a text is no Spark master."""
    if _MASTER.fullmatch(master):
        return
    kind = re.split(r"[\[:]", master, maxsplit=1)[0]
    fix = f"{closest(kind, _MASTERS)}Correct it in resources/settings.py, or set FLOODMARK_MASTER='local[2]'."
    expected = "local, local[N], local[*], spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT"
    raise SetupError("Spark master", expected, repr(master), fix, code="SETUP-054")
