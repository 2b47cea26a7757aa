"""The warm-up program, whose loaded classes become the class archive: it does once, on a few rows, what runs do.

These are a session, a Delta write, a stateful stream (transformWithStateInPandas) into Delta through foreachBatch, and a MERGE. Where the jars for buckets were
fetched, it does all of that in a bucket too.
``python -m floodmark.engines.spark.session.warmup`` builds the archive; the first session without an archive starts that process. With ``--executors`` it also
prints the settings with which executors of a cluster on this machine use the archive.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from floodmark.engines.spark.session import warm_store
from floodmark.engines.spark.session.builder import spark_session, stop_session
from floodmark.engines.spark.setup import archive, hadoop
from floodmark.engines.spark.setup.home import cache_folder
from floodmark.engines.spark.setup.jars import class_path, of_buckets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WRITE_SECONDS = 3600
"""Most seconds in which Java writes the archive: half a minute on a quiet machine, any time on a busy one."""

_TRIES = 3
"""Most warm-ups in a folder: Spark gives a Python worker ten seconds to start, which the lowest priority may exceed on a busy machine."""


class _Count(StatefulProcessor):
    """A processor with a value, a list and a map, as operators use them.

    No processing-time timer: with one, an availableNow stream never ends (Spark runs empty batches for ever).
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n BIGINT")
        self._rows = handle.getListState("rows", "n BIGINT")
        self._panes = handle.getMapState("panes", "s BIGINT", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - Spark's names
        before = self._count.get()
        n = sum(len(frame) for frame in rows) + (before[0] if before else 0)
        self._count.update((n,))
        self._rows.appendValue((n,))
        self._panes.updateValue((n,), (n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def close(self) -> None:
        """Nothing is held."""


def warm_up(spark: SparkSession, folder: str) -> None:
    """Do once what runs do, so that Java loads their classes.

    Args:
        spark: session.
        folder: path or URI of the folder for tables and checkpoint.
    """
    source, target = f"{folder}/source", f"{folder}/target"
    rows = spark.range(20).selectExpr("id", "id % 3 AS k", "CAST(id AS TIMESTAMP) AS t")
    for _ in range(2):
        rows.repartition(1).write.format("delta").mode("append").save(source)
    empty = spark.createDataFrame([], "k BIGINT, n BIGINT")
    empty.write.format("delta").save(target)
    _stream(spark, source, target, f"{folder}/checkpoint")
    spark.read.format("delta").load(target).createOrReplaceTempView("seen")
    spark.sql(
        f"MERGE INTO delta.`{target}` t USING (SELECT k, max(n) AS n FROM seen GROUP BY k) s ON t.k = s.k AND t.n < s.n "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"DESCRIBE HISTORY delta.`{target}`").collect()
    spark.read.format("delta").load(target).groupBy("k").count().orderBy("k").toPandas()


def _stream(spark: SparkSession, source: str, target: str, checkpoint: str) -> None:
    def append(batch: DataFrame, batch_id: int) -> None:
        options = {"txnAppId": "warm-up", "txnVersion": str(batch_id)}
        batch.write.format("delta").options(**options).mode("append").save(target)

    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source)
    counted = stream.groupBy("k").transformWithStateInPandas(
        statefulProcessor=_Count(), outputStructType="k BIGINT, n BIGINT", outputMode="Append", timeMode="None"
    )
    query = (
        counted.writeStream.foreachBatch(append)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    """Build the class archive of this machine with the lowest priority: other processes come first. With ``--executors``, print how executors here use it."""
    if hasattr(os, "nice"):
        os.nice(19)
    for name in filter(_is_foreign, list(os.environ)):
        del os.environ[name]
    build()
    if "--executors" in sys.argv[1:]:
        settings = archive.of_executors(archive.path(cache_folder(), class_path()), class_path())
        pairs = ", ".join(f'("{name}", {json.dumps(value)})' for name, value in settings.items())
        sys.stdout.write(f"use it: Settings(spark=({pairs})) in resources/settings.py\n")


def _is_foreign(name: str) -> bool:
    """Whether a variable of the environment tells Hadoop of stores, proxies and credentials of the user: the warm-up has a store of its own."""
    return name in hadoop.VARIABLES or name.startswith("AWS_") or name.lower().endswith("_proxy")


def build() -> None:
    """Build the class archive of this machine, unless the archive is there or another process builds it."""
    archive.build(archive.path(cache_folder(), class_path()), _session)


def _session(target: Path, folder: Path) -> None:
    """Run the warm-up in a session that writes the archive when it ends."""
    with ExitStack() as stack:
        store = stack.enter_context(warm_store.running()) if of_buckets() else {}
        spark = spark_session(app="floodmark warm-up", archive_to=target, extra=store)
        _try(spark, str(folder))
        if store:
            try:
                _try(spark, f"s3://{warm_store.BUCKET}/lake")
            except Exception:  # noqa: BLE001 - into the log: an archive without the classes of buckets is better than none
                traceback.print_exc()
        stop_session(spark, seconds=_WRITE_SECONDS)


def _try(spark: SparkSession, folder: str) -> None:
    """Warm up in a folder, and where that fails in another one below it."""
    for number in range(1, _TRIES):
        try:
            warm_up(spark, f"{folder}/{number}")
        except Exception:  # noqa: BLE001 - into the log; the last one is raised
            traceback.print_exc()
        else:
            return
    warm_up(spark, f"{folder}/{_TRIES}")


if __name__ == "__main__":
    main()
