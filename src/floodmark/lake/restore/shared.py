"""Files of state that the savepoints of an operator share in a bucket: each once, under the digest of its content.

A savepoint there is its manifest, written last. It names the shared files by their digests; a file that another savepoint has put is not copied again.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from floodmark.lake.folder import bucket
from floodmark.lake.folder.paths import Lake
from floodmark.lifecycle.savepoint import File

_POOL = ".objects"
_GRACE_MS = 7 * 86_400_000
"""Age below which upkeep removes no shared file."""


def location(home: str, digest: str) -> str:
    """URI of a shared file.

    Args:
        home: folder of the operator's savepoints.
        digest: SHA-256 of its content.
    """
    return f"{home}/{_POOL}/{digest}"


def put(home: str, source: str, file: File) -> None:
    """Copy a file of a checkpoint to the shared ones, unless it is there; the store copies it.

    Args:
        home: folder of the operator's savepoints.
        source: URI of the file.
        file: size and digest of its content.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    target = location(home, file.sha256)
    there = bucket.stat(target)
    if there is None or there.size != file.size or there.modified < _now() - _GRACE_MS // 2:
        bucket.copy(source, target)


def collect(lake: Lake, operator: str, needed: Collection[str], *, grace_ms: int = _GRACE_MS) -> int:
    """Remove the shared files of an operator that no savepoint names; returns their number.

    Args:
        lake: lake of the savepoints.
        operator: name of the operator.
        needed: digests that manifests name.
        grace_ms: age below which a file stays: the manifest of a savepoint that is being made may name it.
    """
    home = lake.internal("savepoints", operator)
    before = _now() - grace_ms
    stale = [
        name
        for stat in bucket.below(f"{home}/{_POOL}")
        if (name := stat.path.rsplit("/", 1)[-1]) not in needed and stat.modified < before
    ]
    bucket.remove(location(home, name) for name in stale)
    return len(stale)


def _now() -> int:
    return time.time_ns() // 1_000_000
