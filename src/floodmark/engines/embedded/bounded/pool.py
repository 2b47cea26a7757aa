"""Processes that compute key groups: Python runs in as many of them as there are cores, and one that dies costs its bucket a retry."""

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

from floodmark.core import errors
from floodmark.core.errors import ExecutionError
from floodmark.core.import_path import import_folders
from floodmark.engines.embedded.bounded.files import Bucket, fill
from floodmark.engines.embedded.bounded.groups import Work

IN_DRIVER = 100_000
"""Rows up to which no worker is worth its start: on two busy cores, 60,000 rows took 2.1 s here and 4.6 s in two workers."""
_ATTEMPTS = 3
_RUNNING: set[subprocess.Popen[bytes]] = set()
"""Workers of this process."""
_SECONDS_TO_END = 10


def computed(work: Work, buckets: Sequence[Bucket], rows: int, processes: int | None = None) -> tuple[int, int]:
    """Compute all buckets: in this process where there are few rows, else in workers.

    Args:
        work: to do.
        buckets: to compute.
        rows: of all.
        processes: at most; by default one per core.

    Returns:
        How many rows were late and how many dropped.

    Raises:
        FloodmarkError: as in the worker; ExecutionError EXECUTION-071 when workers die, or cannot compute.
    """
    count = min(processes or os.cpu_count() or 1, len(buckets))
    if rows <= IN_DRIVER or count < 2:  # noqa: PLR2004 - one process is this one
        pairs = [fill(work, bucket) for bucket in buckets]
    else:
        pending: queue.SimpleQueue[Bucket] = queue.SimpleQueue()
        for bucket in buckets:
            pending.put(bucket)
        pickled = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]  # pyspark's own copy has no types
        with ThreadPoolExecutor(count) as threads:
            futures = [threads.submit(_worked, pickled, pending) for _ in range(count)]
        pairs = [pair for future in futures for pair in future.result()]
    return sum(late for late, _ in pairs), sum(dropped for _, dropped in pairs)


def _worked(pickled: bytes, pending: queue.SimpleQueue[Bucket]) -> list[tuple[int, int]]:
    """What one worker at a time computes until no bucket is left."""
    counts: list[tuple[int, int]] = []
    worker = _started(pickled)
    try:
        while True:
            try:
                bucket = pending.get_nowait()
            except queue.Empty:
                return counts
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
    finally:
        _ended(worker)


def _started(pickled: bytes) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(import_folders(sys.path)), "TZ": "UTC"}
    command = [sys.executable, "-m", "floodmark.engines.embedded.bounded.worker"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    _RUNNING.add(worker)
    _written(worker, b"%d\n" % len(pickled) + pickled)
    return worker


def cancel() -> None:
    """Kill the workers of this process; what they compute fails once they were killed as often as they are tried."""
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
    """The answer for a bucket; None when the worker has ended without one."""
    assert worker.stdout is not None
    if not _written(worker, json.dumps(dataclasses.asdict(bucket)).encode() + b"\n"):
        return None
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
    """End a worker and wait for it."""
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
