"""A reader far behind goes on with files on Spark, in a process of its own that a test may kill: python far_process.py UPSTREAM LAKE."""

from __future__ import annotations

import sys
from contextlib import nullcontext

from streams import STREAMS
from test_far_behind import reader_of

from floodmark.control.engine import OnSpark
from floodmark.engines.spark.session.builder import spark_session
from floodmark.engines.spark.unbounded import inputs
from floodmark.lake.paths import Lake
from floodmark.spec.workspace import Settings

if __name__ == "__main__":
    name, root = sys.argv[1:]
    inputs.FAR_BEHIND = 4
    engine = OnSpark(Settings(), "far behind", lambda _: nullcontext(), spark_session(app="far behind"))
    engine.run_unbounded(reader_of(STREAMS[name]), Lake(root), until_caught_up=True, files_per_batch=1)
