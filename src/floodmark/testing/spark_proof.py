"""Proof by killing: an operator as a stream on Spark, in a process that dies by SIGKILL and is started again, against a bounded run."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark import cloudpickle

from floodmark.core import crash
from floodmark.core.time import END, NEVER
from floodmark.lake import ticks
from floodmark.lake.paths import Lake
from floodmark.spec.operator import Operator
from floodmark.spec.workspace import Settings
from floodmark.testing.lakes import append
from floodmark.testing.proof import Answer, Entry, differences, progress_of, tables_of, tally

MICRO_BATCHES = 8
_POINTS = ("micro_batch.before_evaluate", "micro_batch.before_main", "micro_batch.after_main")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkProof:
    """What came of it.

    Args:
        killed_at: the step and micro-batch at which the first process died; None where it was done before.
        results: rows of the bounded answer.
        differences: what the stream had too much or too little, for people.
    """

    killed_at: str | None
    results: int
    differences: tuple[str, ...] = ()


def prove_on_spark(
    operator: Operator, entries: Sequence[Entry], folder: str, settings: Settings, *, seed: int = 0
) -> SparkProof:
    """Run an operator unbounded on Spark, kill it with SIGKILL, start it again, and run it bounded.

    Args:
        operator: any.
        entries: rows of all its inputs; they are written to the lakes this makes.
        folder: empty; two lakes are made there.
        settings: of the workspace: where Spark runs and how it is set.
        seed: decides at which step of which micro-batch it is killed.
    """
    rng = random.Random(seed)  # noqa: S311 - to be repeated
    point = f"{rng.choice(_POINTS)}:{rng.randint(1, MICRO_BATCHES - 2)}"
    stream, batch = Lake(f"{folder}/unbounded"), Lake(f"{folder}/bounded")
    for lake in (stream, batch):
        _land(operator, entries, lake)
    killed = not _in_a_process(_unbounded, operator, stream, settings, {crash.VARIABLE: point})
    if killed:
        _in_a_process(_unbounded, operator, stream, settings, {})
    recorded = Path(ticks.folder(operator, stream))
    if recorded.exists():  # the clock is an input too
        shutil.copytree(recorded, ticks.folder(operator, batch))
    _in_a_process(_bounded, operator, batch, settings, {})
    wanted, found = _answer(operator, batch), _answer(operator, stream)
    return SparkProof(
        killed_at=point if killed else None, results=sum(wanted.values()), differences=differences(wanted, found)
    )


def _land(operator: Operator, entries: Sequence[Entry], lake: Lake) -> None:
    """The rows of each input in so many commits, each with a marker; the end of input is the last one."""
    for given in operator.inputs:
        rows = [row for name, row in entries if name == given.name]
        progress = progress_of(given, rows)
        bounds = [len(rows) * piece // MICRO_BATCHES for piece in range(MICRO_BATCHES + 1)]
        for start, stop in zip(bounds, [*bounds[1:], len(rows)], strict=True):
            reached = progress[stop] if start < len(rows) else END
            part = [(given.name, row) for row in rows[start:stop]]
            every = dict.fromkeys((other.name for other in operator.inputs), NEVER) | {given.name: reached}
            append(lake.input(given), tables_of(operator, part, every)[given.name])


def _in_a_process(
    run: Callable[..., None], operator: Operator, lake: Lake, settings: Settings, environment: Mapping[str, str]
) -> bool:
    """Run in a process of its own; False where it was killed."""
    pickled = cloudpickle.dumps((run, operator, lake, settings, dict(environment)))  # type: ignore[no-untyped-call]  # has no types
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            pool.submit(_called, pickled).result()
        except BrokenProcessPool:
            return False
    return True


def _called(pickled: bytes) -> None:
    from floodmark.engines.spark.session.builder import spark_session  # noqa: PLC0415 - Spark starts in this process alone

    run, operator, lake, settings, environment = cloudpickle.loads(pickled)
    os.environ.update(environment)
    spark = spark_session(
        app="floodmark prove",
        cores=settings.master,
        shuffle_partitions=settings.shuffle_partitions,
        extra=dict(settings.spark),
    )
    run(spark, operator, lake)
    spark.stop()


def _unbounded(spark: Any, operator: Operator, lake: Lake) -> None:
    from floodmark.engines.spark.unbounded.run import run_unbounded  # noqa: PLC0415 - as above

    run_unbounded(spark, operator, lake, until_caught_up=True, files_per_batch=1)


def _bounded(spark: Any, operator: Operator, lake: Lake) -> None:
    from floodmark.engines.spark.bounded.run import run_bounded  # noqa: PLC0415 - as above

    run_bounded(spark, operator, lake)


def _answer(operator: Operator, lake: Lake) -> Answer:
    found = Answer()
    for output in operator.outputs:
        path = lake.output(output.table)
        if DeltaTable.is_deltatable(path):
            table = DeltaTable(path).to_pyarrow_table()
            found.update(tally(output.name, table.select([*output.schema.names, "_kind"])))
    return Answer({key: count for key, count in found.items() if count})
