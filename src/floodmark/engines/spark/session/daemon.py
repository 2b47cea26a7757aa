"""The process from which Spark forks its Python workers, with all that a worker of floodmark's imports already imported.

So a worker starts without imports, and workers share the memory of modules. After each task PySpark searches all objects of a worker for
cyclic garbage; what is there before the fork is left out of that search (``gc.freeze``).

Spark starts ``python -m floodmark.engines.spark.session.daemon pyspark.worker``: see ``spark.python.daemon.module``.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module

from pyspark.daemon import manager

FIRST = ("pandas", "pyarrow.compute", "pyarrow.parquet", "floodmark.engines.spark.state.host")
"""Modules that workers import, with all that these import."""


_LIMIT = "PYSPARK_EXECUTOR_MEMORY_MB"
"""Variable by which Spark tells workers the limit of their address space."""


def main() -> None:
    """Import what workers need, then fork a worker for each request of Spark's."""
    if _LIMIT in os.environ:  # Arrow's other pools keep the address space of what they have freed
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    for name in FIRST:
        import_module(name)
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
