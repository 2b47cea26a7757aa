"""Round trips of a stream whose lake is in a bucket: PYTHONPATH=.:tests/support python bench/buckets.py [ROWS PER MICRO-BATCH].

The store is the S3 server of the tests, on this machine, behind a proxy that counts requests. Seconds say little there; requests times the round trip
of a real store say what a micro-batch waits for.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from itertools import pairwise
from statistics import median
from tempfile import TemporaryDirectory

import s3_server
from events import disorder
from streams import ONCE, PLAIN, WINDOWED

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo
from floodmark.testing.lakes import land

_BATCHES = 12
_KINDS = {
    "/logs/": "read",
    "/frozen/": "frozen",
    "/checkpoint/": "state",
    "__current/": "last values",
    "_delta_log/": "record",
    "/outputs/": "rows",
}


def _kind(path: str) -> str:
    return next((kind for part, kind in _KINDS.items() if part in path), "other")


def _measured(sail: Sail, operator: Operator, root: str, rows: int, proxy: s3_server.Proxy | None) -> None:
    lake, log = Lake(root), disorder(operator, 1, rows * _BATCHES)
    for first, last in pairwise(len(log.entries) * n // _BATCHES for n in range(_BATCHES + 1)):
        land(lake, operator, log, first, last)
    requests, seconds = list[Counter[str]](), list[float]()

    def count(info: BatchInfo) -> None:
        seconds.append(info.seconds)
        if proxy is not None:
            requests.append(Counter(_kind(path) for _, path, _ in proxy.requests()))
            proxy.plan()

    if proxy is not None:
        proxy.plan()
    run_unbounded(sail, operator, lake, until_caught_up=True, files_per_batch=1, on_batch=count)
    place = "disk" if proxy is None else "bucket"
    line = f"{operator.name:9} {place:7} micro-batch p50 {1000 * median(seconds[1:]):6.0f} ms"
    if proxy is not None:
        own = [sum(one.values()) - one["last values"] - one["read"] for one in requests[1:]]
        kinds = {kind: median(one[kind] for one in requests[1:]) for kind in (*_KINDS.values(), "other")}
        line += f", requests of a commit p50 {median(own):.0f}: " + ", ".join(
            f"{k} {n:.0f}" for k, n in kinds.items() if n
        )
        line += f"; the first with its start {sum(requests[0].values())}"
    print(line)
    savepoints.create(operator.name, lake)
    if proxy is not None:
        proxy.plan()
        made = savepoints.create(operator.name, lake)
        asked = Counter(method for method, path, _ in proxy.requests() if "/.objects/" in path)
        state = sum(made.manifest.files[path].size for path in made.manifest.shared)
        print(
            f"{operator.name:9} {place:7} savepoint of unchanged state: {state:,} bytes of it shared, {asked['PUT']} files copied"
        )


def main(rows: int = 1_000) -> None:
    """Print seconds on a disk and in a bucket, and requests in the bucket."""
    sail = Sail(memory=300)
    with s3_server.running() as server, s3_server.proxied(server) as proxy, TemporaryDirectory() as folder:
        os.environ.update(s3_server.environment(proxy.url))
        for operator in (PLAIN, ONCE, WINDOWED):
            _measured(sail, operator, f"{folder}/{operator.name}", rows, None)
            _measured(sail, operator, f"{server.bucket()}/lake", rows, proxy)
    sail.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
