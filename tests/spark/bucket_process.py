"""A stream on Spark over a lake in a bucket, in a process of its own that a test may kill, on the Java of the test: bucket_process.py LAKE OPERATOR."""

from __future__ import annotations

import os
import sys

from borrowed import borrow
from streams import STREAMS

from floodmark.engines.spark.session.builder import spark_session
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake


def main(root: str, name: str) -> None:
    """Run until caught up."""
    borrow()
    spark = spark_session(shuffle_partitions=1)
    spark.sparkContext.environment |= {name: text for name, text in os.environ.items() if name.startswith("AWS_")}
    run_unbounded(spark, STREAMS[name], Lake(root), until_caught_up=True, files_per_batch=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
