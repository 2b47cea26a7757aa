"""Streams on either engine, in a process of its own that a test may kill: python transfer_process.py LAKE. Reads actions as lines of JSON, answers each.

``{"run": "windowed", "engine": "spark", "die": "step.make_current:1"}`` kills it on the way.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from borrowed import borrow
from pyspark.sql import SparkSession
from streams import STREAMS

from floodmark.core import crash
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded as run_embedded
from floodmark.engines.spark.session.builder import spark_session
from floodmark.engines.spark.unbounded.run import run_unbounded as run_spark
from floodmark.engines.transfer import transfer
from floodmark.lake.folder.paths import Lake


def act(spark: SparkSession, sail: Sail, lake: Lake, action: dict[str, Any]) -> int:
    """What ``floodmark run --unbounded --until-caught-up --engine`` does; how many micro-batches it has taken."""
    code, engine = STREAMS[action["run"]], action["engine"]
    transfer(code, lake, engine, lambda: spark)
    if engine == "spark":
        return run_spark(spark, code, lake, until_caught_up=True, files_per_batch=2).micro_batches
    return run_embedded(sail, code, lake, until_caught_up=True, files_per_batch=2).micro_batches


def main(root: str) -> None:
    """Until there is no more."""
    borrow()
    spark, sail, lake = spark_session(app="moving"), Sail(memory=300), Lake(root)
    for line in sys.stdin:
        action = json.loads(line)
        os.environ[crash.VARIABLE] = action.get("die", "")
        crash._hits.clear()
        sys.stdout.write(json.dumps(act(spark, sail, lake, action)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
