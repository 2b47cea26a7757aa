"""Streams and what is done to them, in a process of its own that a test may kill: python chaos_process.py LAKE. Reads actions as lines of JSON, answers each.

``{"do": "run", "die": "micro_batch.after_main:1"}`` kills it on the way.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Any

from lifecycle_process import LARGEST, TOTALS, WIDER, largest
from operator_process import START, source
from pyspark.sql import SparkSession

from floodmark import operator
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval, to_ms
from floodmark.engines.spark import cuts, savepoints
from floodmark.engines.spark.bounded import run_bounded
from floodmark.engines.spark.fork import fork
from floodmark.engines.spark.lake import Lake
from floodmark.engines.spark.landing import land
from floodmark.engines.spark.rescale import rescale
from floodmark.engines.spark.rollback import roll_back
from floodmark.engines.spark.session import spark_session
from floodmark.engines.spark.timeline import Timeline
from floodmark.engines.spark.unbounded import run_unbounded
from floodmark.engines.spark.upgrade import upgrade

WIDE_LARGEST = operator(largest, inputs={"totals": WIDER})


def versions(lake: Lake) -> tuple[Any, Any]:
    """The definitions the streams go on with: those they were started with."""
    found = [Timeline.current(lake, name).checkpoint.deployed() for name in ("totals", "largest")]
    pairs = zip(found, (WIDER, WIDE_LARGEST), (TOTALS, LARGEST), strict=True)
    first, second = (wide if one is not None and one.version == wide.version else plain for one, wide, plain in pairs)
    return first, second


def act(spark: SparkSession, lake: Lake, action: dict[str, Any]) -> Any:
    """Do it."""
    first, second = versions(lake)
    match action["do"]:
        case "land":
            land(spark, source(action["commits"]), lake, end=action["end"])
        case "run":
            for one in (first, second)[: action.get("streams", 2)]:
                run_unbounded(spark, one, lake, until_caught_up=True, files_per_batch=1)
        case "savepoint":
            return [one.manifest.id for one in cuts.together("totals", lake)]
        case "upgrade":
            for one in (WIDER, WIDE_LARGEST):  # only a rollback leads back
                upgrade(one, lake)
        case "rollback":
            roll_back(lake, savepoints.find(lake, action["to"]), backfills=True)
        case "rescale":
            rescale(spark, lake, "totals", action["partitions"])
        case "backfill":
            start = to_ms(START + timedelta(minutes=action["from"]))
            run_bounded(spark, first, lake, Interval(start=start, end=start + 1_800_000), force=True)
        case "fork":
            forked = fork(lake, savepoints.find(lake, action["to"]), action["into"])
            run_unbounded(spark, versions(forked)[0], forked, until_caught_up=True)
    return None


def main(root: str) -> None:
    """Until there is no more."""
    spark, lake = spark_session(app="chaos"), Lake(root)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        action = json.loads(line)
        os.environ[crash.VARIABLE] = action.get("die", "")
        crash._hits.clear()
        try:
            answer = {"ok": act(spark, lake, action)}
        except FloodmarkError as error:
            answer = {"error": error.code, "text": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
