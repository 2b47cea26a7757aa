"""The memory that a worker may use for rows and state."""

from __future__ import annotations

import resource
import sys
from functools import cache

import psutil

from floodmark.core import cores


@cache
def worker_memory() -> int:
    """Bytes that this worker may use: what the limit of its process leaves, at most its share of the machine.

    The limit (of Spark, ``spark.executor.pyspark.memory``) is one of address space, of which imported modules take some 400 MB.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    share = int(psutil.virtual_memory().total) // cores.available()
    if limit == resource.RLIM_INFINITY:
        return share
    taken = psutil.Process().memory_info().vms if sys.platform == "linux" else 0  # elsewhere the limit does not hold
    return max(1, min(limit - taken, share))
