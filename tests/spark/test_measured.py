"""What is measured of streams as they run: sums are those of the tables, however drivers die between a commit and its count."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from events import Event, disorder

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.control.processes.job import OperatorStream
from floodmark.control.processes.measuring import Measuring
from floodmark.control.state import measures
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import Store
from floodmark.control.streams.vitals import vitals
from floodmark.core.errors import SetupError
from floodmark.lake.folder.paths import Lake
from floodmark.observe.measure import Measure
from floodmark.spec.values.run import BatchInfo
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import land


@fm.operator
def tallied(events: fm.Stream[Event]) -> fm.Stream:
    """Rows that are late, and rows that come too late."""
    windowed = events.key_by("key").window(fm.Tumbling("10 minutes"), allowed_lateness="5 minutes", late="side_output")
    return windowed.aggregate(n=fm.count(), total=fm.sum("value"))


CODE: fm.Operator = tallied


def _rows(path: str) -> int:
    return Counter(DeltaTable(path).to_pyarrow_table(columns=["_kind"])["_kind"].to_pylist())[ROW]


def _measure(job: OperatorStream, then: Callable[[Measure], None], batch: BatchInfo) -> None:
    then(job._measured(batch))


PARTS = {"embedded": 6, "spark": 3}
"""Of the log, for each of which a driver starts."""


def test_sums_are_those_of_the_tables_though_counts_are_lost_and_repeated(
    engine: Computing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, draw, log = Lake(str(tmp_path / "lake")), random.Random(11), disorder(CODE, 5, 120)
    store = Store(f"sqlite:///{tmp_path}/control.db")
    desired = {"root": str(tmp_path), "environment": "dev", "package": "p", "version": CODE.version}
    store.deploy(Deployment(operator=CODE.name, lake=lake.root, desired="running", **desired))
    (deployment,) = store.deployments()
    job, told, calls = OperatorStream(CODE, fm.Settings(lake=lake.root), _engine=engine), set[int](), list[int]()
    record: Callable[..., int] = measures.record

    def away(*arguments: object) -> int:
        """The store is away now and then."""
        calls.append(1)
        if len(calls) % 4 == 0:
            raise SetupError("control store", "an answer", "none", "Start it.", code="SETUP-040")
        return record(*arguments)

    def count(measuring: Measuring, measure: Measure) -> None:
        """Not at all: the driver dies before; twice: a micro-batch that was tried again."""
        told.add(measure.number)
        for _ in range(draw.choice((0, 1, 1, 2))):
            measuring.record(measure)

    monkeypatch.setattr(measures, "record", away)
    parts = PARTS[engine.name]
    for first, last in pairwise(len(log.entries) * n // parts for n in range(parts + 1)):
        land(lake, CODE, log, first, last)
        measuring = Measuring(store, store.begin(deployment, "/logs"), job, lambda _: None)
        measuring.begin()
        tell = partial(_measure, job, partial(count, measuring))
        engine.run_unbounded(CODE, lake, stop=threading.Event(), on_batch=tell, until_caught_up=True)
    monkeypatch.undo()
    Measuring(store, store.begin(deployment, "/logs"), job, pytest.fail).begin()
    measured = measures.measured(store, deployment.stream)
    assert measured.number == max(told)
    assert measured.totals.commits == len(told) >= parts
    assert measured.totals.starts == parts + 1
    assert {name: rows for name, rows in measured.totals.rows.items() if rows} == {
        one.table: rows for one in CODE.outputs if (rows := _rows(lake.output(one.table)))
    }
    assert (
        measured.totals.rows_in == DeltaTable(lake.input(CODE.inputs[0])).to_pyarrow_table(columns=["_kind"]).num_rows
    )
    assert measured.totals.late > 0
    assert measured.totals.dropped > 0
    (seen,) = vitals(store, [deployment])
    assert seen.backlog is not None
    assert (seen.backlog.commits, seen.behind_input) in {(0, None), (0, 0.0)}


def test_a_micro_batch_tells_its_phases_its_checkpoint_and_how_far_its_inputs_are_read(
    engine: Computing, tmp_path: Path
) -> None:
    lake, log = Lake(str(tmp_path / "lake")), disorder(CODE, 5, 60)
    job, seen = OperatorStream(CODE, fm.Settings(lake=lake.root), _engine=engine), list[Measure]()
    land(lake, CODE, log, 0, 20)
    tell = partial(_measure, job, seen.append)
    engine.run_unbounded(CODE, lake, stop=threading.Event(), on_batch=tell, until_caught_up=True)
    for first, last in ((20, 30), (30, 40), (40, len(log.entries))):
        land(lake, CODE, log, first, last)
    engine.run_unbounded(CODE, lake, stop=threading.Event(), on_batch=tell, until_caught_up=True, files_per_batch=1)
    path = lake.input(CODE.inputs[0])
    for one in seen:
        assert {"compute", "write"} <= set(one.phases)
        assert sum(one.phases.values()) == pytest.approx(one.seconds, abs=0.5)
        assert list(one.read) == [path]
    newest = DeltaTable(path).version()
    read = dict.fromkeys((one.read[path][0], one.waiting) for one in seen if one.read[path][0])
    assert list(read) == [(newest - n, n) for n in (2, 1, 0)]
    assert len({one.history for one in seen}) == 1
    checkpoints = [one.checkpoint for one in seen if one.checkpoint is not None]
    assert len(checkpoints) > 1
    assert all(one.held > 0 and one.seconds > 0 for one in checkpoints)
