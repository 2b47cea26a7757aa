"""A stream in a process of its own that a test may kill, on the Java of the test if that was lent: caught_up_process.py LAKE OPERATOR [ENGINE]. Prints its Spark's version."""

from __future__ import annotations

import os
import sys

import pyspark
from borrowed import borrow
from streams import STREAMS

from floodmark.lake.folder.paths import Lake


def main(root: str, name: str, engine: str = "spark") -> None:
    """Run until caught up."""
    sys.stdout.write(f"{pyspark.__version__}\n")
    if engine == "embedded":
        import engines

        engines.embedded().run_unbounded(STREAMS[name], Lake(root), until_caught_up=True)
        return
    from floodmark.engines.spark.session.builder import spark_session
    from floodmark.engines.spark.unbounded.run import run_unbounded

    borrow()
    spark = spark_session(shuffle_partitions=1)
    spark.sparkContext.environment |= {name: text for name, text in os.environ.items() if name.startswith("AWS_")}
    run_unbounded(spark, STREAMS[name], Lake(root), until_caught_up=True, files_per_batch=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
