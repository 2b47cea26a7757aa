"""Proof by killing: an unbounded run on an engine is killed by SIGKILL and started again; its answer is compared with a bounded run's."""

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

from deltalake import DeltaTable
from pyspark import cloudpickle

from floodmark.control.processes.engine import Computing, computing
from floodmark.core import crash
from floodmark.core.time import END, NEVER, Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import ticks
from floodmark.spec.graph.operator import Operator
from floodmark.spec.workspace import Engine, Settings
from floodmark.testing.lakes import append
from floodmark.testing.proof import Answer, Entry, differences, progress_of, tables_of, tally

MICRO_BATCHES = 8
_POINTS = {
    "spark": ("micro_batch.before_evaluate", "micro_batch.before_main", "micro_batch.after_main"),
    "embedded": ("embedded.before_files", "embedded.after_state", "embedded.after_commit"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledProof:
    """The result of a proof.

    Args:
        killed_at: the step and micro-batch at which the first process died; None where it was done before.
        results: rows of the bounded answer.
        differences: what the stream had too much or too little, for people.
    """

    killed_at: str | None
    results: int
    differences: tuple[str, ...] = ()


def prove_by_killing(
    engine: Engine, operator: Operator, entries: Sequence[Entry], folder: str, settings: Settings, *, seed: int = 0
) -> KilledProof:
    """Run an operator unbounded on an engine, kill it with SIGKILL, start it again, and run it bounded.

    Args:
        engine: that runs it.
        operator: any that the engine runs.
        entries: rows of all its inputs; they are written to the lakes this makes.
        folder: empty; two lakes are made there.
        settings: of the workspace: where the engine runs and how it is set.
        seed: decides at which step of which micro-batch it is killed.

    Raises:
        CapabilityError: CAPABILITY-031 or CAPABILITY-035, the engine does not run it.
    """
    rng = random.Random(seed)  # noqa: S311 - to be repeated
    point = f"{rng.choice(_POINTS[engine])}:{rng.randint(1, MICRO_BATCHES - 2)}"
    stream, batch = Lake(f"{folder}/unbounded"), Lake(f"{folder}/bounded")
    for lake in (stream, batch):
        land_in_commits(operator, entries, lake)
    killed = not _in_a_process(engine, _unbounded, operator, stream, settings, {crash.VARIABLE: point})
    if killed:
        _in_a_process(engine, _unbounded, operator, stream, settings, {})
    recorded = Path(ticks.folder(operator, stream))
    if recorded.exists():  # the clock is an input too
        shutil.copytree(recorded, ticks.folder(operator, batch))
    _in_a_process(engine, _bounded, operator, batch, settings, {})
    bounded_answer, unbounded_answer = answer_in(operator, batch), answer_in(operator, stream)
    return KilledProof(
        killed_at=point if killed else None,
        results=sum(bounded_answer.values()),
        differences=differences(bounded_answer, unbounded_answer),
    )


def land_in_commits(operator: Operator, entries: Sequence[Entry], lake: Lake) -> None:
    """Append the rows of each input in ``MICRO_BATCHES`` commits, each with a marker; then a marker of the end of input."""
    for input_ in operator.inputs:
        rows = [row for name, row in entries if name == input_.name]
        progress = progress_of(input_, rows)
        bounds = [len(rows) * piece // MICRO_BATCHES for piece in range(MICRO_BATCHES + 1)]
        for start, stop in zip(bounds, [*bounds[1:], len(rows)], strict=True):
            reached = progress[stop] if start < len(rows) else END
            part = [(input_.name, row) for row in rows[start:stop]]
            every = dict.fromkeys((other.name for other in operator.inputs), NEVER) | {input_.name: reached}
            append(lake.input(input_), tables_of(operator, part, every)[input_.name])


def _in_a_process(
    engine: Engine,
    run: Callable[[Computing, Operator, Lake], object],
    operator: Operator,
    lake: Lake,
    settings: Settings,
    environment: Mapping[str, str],
) -> bool:
    """Run in a process of its own; False if the process was killed."""
    pickled = cloudpickle.dumps((engine, run, operator, lake, settings, dict(environment)))  # type: ignore[no-untyped-call]  # has no types
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            pool.submit(_called, pickled).result()
        except BrokenProcessPool:
            return False
    return True


def _called(pickled: bytes) -> None:
    engine, run, operator, lake, settings, environment = cloudpickle.loads(pickled)
    os.environ.update(environment)
    run(computing(settings, engine=engine, app="floodmark prove"), operator, lake)


def _unbounded(engine: Computing, operator: Operator, lake: Lake) -> object:
    return engine.run_unbounded(operator, lake, until_caught_up=True, files_per_batch=1)


def _bounded(engine: Computing, operator: Operator, lake: Lake) -> object:
    return engine.run_bounded(operator, lake, Interval())


def answer_in(operator: Operator, lake: Lake) -> Answer:
    """The rows of all outputs in a lake, retractions subtracted."""
    answer = Answer()
    for output in operator.outputs:
        path = lake.output(output.table)
        if DeltaTable.is_deltatable(path):
            table = DeltaTable(path).to_pyarrow_table()
            answer.update(tally(output.name, table.select([*output.schema.names, "_kind"])))
    return Answer({key: count for key, count in answer.items() if count})
