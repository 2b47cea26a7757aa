"""Pool of worker processes that compute key groups, one process per core, beside this one, which computes meanwhile as much as it would alone. The bucket of a process that dies is retried."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from pyspark import cloudpickle

from floodmark.core import cores, errors
from floodmark.core.errors import ExecutionError
from floodmark.core.import_path import import_folders
from floodmark.engines.embedded.bounded.files import Bucket, fill
from floodmark.engines.embedded.bounded.groups import Work
from floodmark.engines.frames.portions import computes_at_once

IN_DRIVER, AT_ONCE_IN_DRIVER = 100_000, 1_000_000
"""Rows that this process computes, by the mean of its buckets, and up to which it is alone: on two busy cores, 60,000 rows took 2.1 s here and 4.6 s in two workers. A kernel that computes a key
group in columns takes some two seconds for a million rows, as long as two workers take to start."""
_ATTEMPTS = 3
_RUNNING: set[subprocess.Popen[bytes]] = set()
"""Workers of this process."""
_SECONDS_TO_END = 10


def computed(work: Work, buckets: Sequence[Bucket], rows: int, processes: int | None = None) -> tuple[int, int]:
    """Compute all buckets: few rows in this process, more rows in workers, which take the buckets that are left once they have started.

    Args:
        work: to do.
        buckets: to compute.
        rows: number of rows in all buckets.
        processes: most workers; by default one per core.

    Returns:
        Number of late rows and of dropped (row, window) pairs.

    Raises:
        FloodmarkError: as in the worker; ExecutionError EXECUTION-071 if workers die, or cannot compute.
    """
    few = AT_ONCE_IN_DRIVER if computes_at_once(work.stage) else IN_DRIVER
    most = processes or cores.available()
    alone = len(buckets) if rows <= few or most < 2 else few * len(buckets) // rows  # noqa: PLR2004 - one process is this one
    count = 0 if alone == len(buckets) else min(most, len(buckets), rows // max(few, 1))
    pending: queue.SimpleQueue[Bucket] = queue.SimpleQueue()
    for bucket in buckets:
        pending.put(bucket)
    pickled = cloudpickle.dumps(work) if count else b""  # type: ignore[no-untyped-call]  # pyspark's own copy has no types
    with ThreadPoolExecutor(max(count, 1)) as threads:
        futures = [threads.submit(_worked, pickled, pending) for _ in range(count)]
        pairs = [fill(work, mine) for _ in range(alone) if (mine := _next(pending))]
    pairs += [pair for future in futures for pair in future.result()]
    return sum(late for late, _ in pairs), sum(dropped for _, dropped in pairs)


def _worked(pickled: bytes, pending: queue.SimpleQueue[Bucket]) -> list[tuple[int, int]]:
    """Compute buckets in one worker at a time until no bucket is left; returns the counts of each bucket."""
    counts: list[tuple[int, int]] = []
    worker = _started(pickled)
    try:
        _answered(worker)
        while bucket := _next(pending):
            for attempt in range(1, _ATTEMPTS + 1):
                answer = _asked(worker, bucket)
                if answer is not None:
                    counts.append(_counts(answer))
                    break
                code = worker.wait(_SECONDS_TO_END)
                _ended(worker)
                if attempt == _ATTEMPTS:
                    raise _lost(f"{_ATTEMPTS} that ended, the last one with {code}")
                worker = _started(pickled)
                _answered(worker)
        return counts
    finally:
        _ended(worker)


def _next(pending: queue.SimpleQueue[Bucket]) -> Bucket | None:
    try:
        return pending.get_nowait()
    except queue.Empty:
        return None


def _started(pickled: bytes) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(import_folders(sys.path)), "TZ": "UTC"}
    command = [sys.executable, "-m", "floodmark.engines.embedded.bounded.worker"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    _RUNNING.add(worker)
    _written(worker, b"%d\n" % len(pickled) + pickled)
    return worker


def cancel() -> None:
    """Kill the workers of this process. A bucket fails once its worker was killed ``_ATTEMPTS`` times."""
    for worker in list(_RUNNING):
        worker.kill()


def _written(worker: subprocess.Popen[bytes], content: bytes) -> bool:
    assert worker.stdin is not None
    try:
        worker.stdin.write(content)
        worker.stdin.flush()
    except BrokenPipeError:
        return False
    return True


def _asked(worker: subprocess.Popen[bytes], bucket: Bucket) -> dict[str, Any] | None:
    """A worker's answer for a bucket; None if the worker has ended without an answer."""
    if not _written(worker, json.dumps(dataclasses.asdict(bucket)).encode() + b"\n"):
        return None
    return _answered(worker)


def _answered(worker: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """What a worker says next, its first line once it has started; None if it has ended."""
    assert worker.stdout is not None
    line = worker.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def _counts(answer: dict[str, Any]) -> tuple[int, int]:
    if "error" in answer:
        name, where, expected, got, fix, code = answer["error"]
        raise getattr(errors, name)(where, expected, got, fix, code=code)
    if "failed" in answer:
        raise _lost(answer["failed"])
    return answer["late"], answer["dropped"]


def _lost(got: str) -> ExecutionError:
    fix = "Nothing is lost or there twice; see the lines above, then run it again. Or run it on Spark: --engine spark."
    return ExecutionError("worker of the embedded engine", "an answer", got, fix, code="EXECUTION-071")


def _ended(worker: subprocess.Popen[bytes]) -> None:
    """End a worker and wait until its process has ended."""
    _RUNNING.discard(worker)
    assert worker.stdin is not None
    assert worker.stdout is not None
    with suppress(BrokenPipeError):
        worker.stdin.close()
    try:
        worker.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    worker.stdout.close()
