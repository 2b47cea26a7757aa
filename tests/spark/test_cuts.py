"""Every windowed operator of the workspace over real flights in 25 random cuts, with restarts, against one micro-batch."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from demo.comparison import compare
from floodmark.core.time import END, NEVER
from floodmark.engines.frames.compile import compiled, stage_rows
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.lake.folder.paths import Lake
from floodmark.semantics.kernels.columnar import Stage, pack
from floodmark.semantics.kernels.kernel import ColumnarWindowKernel
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph.operator import Operator
from operators.flights import busiest_hour, daily_carriers, hourly_departures, rolling_departures

CUTS = 25


def admitted(spark: SparkSession, operator: Operator, lake: Lake) -> tuple[Stage, pa.Table]:
    """The operator's input as its host sees it, in order of arrival, with the progress each row brings."""
    step, given = operator.stateful, operator.inputs[0]
    assert step is not None
    stage = Stage.of(step, revisable=given.revisable)
    log = spark.read.format("delta").load(lake.input(given)).filter("_kind <> 1")
    rows = stage_rows(stage, compiled(step.parent, {given.name: log})).toArrow()
    order = (
        [("s", "ascending"), ("kind", "ascending")]
        if given.upstream is None
        else [("w", "ascending"), ("s", "ascending"), ("kind", "ascending")]
    )
    return stage, rows.sort_by(order)


def run(stage: Stage, rows: pa.Table, rng: random.Random | None) -> tuple[pa.Table, pa.Table | None, Counter[int]]:
    """One run over random micro-batches; between any two of them everything is pickled and loaded again."""
    stores: dict[int, MemoryStore] = {}
    known, position, dropped = NEVER, 0, Counter[int]()
    results, side = [stage.result_schema.empty_table()], []
    sequences = rows["s"].to_pylist()
    while position < rows.num_rows:
        size = rng.choice([1, 3, 40, 300, 900]) if rng else rows.num_rows
        while 0 < position + size < rows.num_rows and sequences[position + size] == sequences[position + size - 1]:
            size += 1  # a retraction pair is written, and so read, together
        chunk, position = rows.slice(position, size), position + size
        packed = pack(stage, chunk.combine_chunks().to_batches())
        for group in {*packed, *stores}:
            part = packed.get(group, {})
            side += [part["side"]] if "side" in part else []
            if "dropped" in part:
                counts = zip(part["dropped"]["end"].to_pylist(), part["dropped"]["n"].to_pylist(), strict=True)
                dropped.update(dict(counts))
            store = stores.setdefault(group, MemoryStore())
            results.append(ColumnarWindowKernel(stage, store).advance([part] if part else [], known).results)
        stores = pickle.loads(pickle.dumps(stores))  # a restart
        known = max(known, pc.max(chunk["w"]).as_py())
    results += [ColumnarWindowKernel(stage, store).advance([], END).results for store in stores.values()]
    return pa.concat_tables(results).drop_columns(["_order"]), pa.concat_tables(side) if side else None, +dropped


def last(rows: pa.Table, stage: Stage) -> dict[Any, Any]:
    keys = [n for n in stage.step.schema.names if n in (*stage.step.keys, "window_start", "window_end")]
    found: dict[Any, Any] = {}
    for row in rows.to_pylist():
        key = tuple(row[k] for k in keys)
        if row["_kind"] == 0:
            found[key] = row
        else:
            found.pop(key)
    return {key: {n: row[n] for n in stage.step.schema.names} for key, row in found.items()}


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(hourly_departures, marks=[pytest.mark.soak, pytest.mark.feature("W11", "B9", "R4")]),
        *(pytest.param(o, marks=pytest.mark.soak) for o in (rolling_departures, daily_carriers, busiest_hour)),
    ],
    ids=lambda o: o.name,
)
def test_25_random_cuts_give_the_same(
    spark: SparkSession, landed: Lake, tmp_path_factory: pytest.TempPathFactory, operator: Operator
) -> None:
    lake = landed
    if operator is busiest_hour:
        lake = Lake(str(tmp_path_factory.mktemp("upstream")), logs=landed.root)
        run_bounded(spark, hourly_departures, lake)
    stage, rows = admitted(spark, operator, lake)
    assert rows.num_rows >= (2000 if operator is not busiest_hour else 400)
    expected, expected_side, expected_dropped = run(stage, rows, None)
    assert pc.sum(pc.less_equal(pc.add(rows["t"], 0), rows["w"])).as_py(), "no late row: the case is empty"
    for cut in range(CUTS):
        got, side, dropped = run(stage, rows, random.Random(cut))
        assert dropped == expected_dropped
        if operator is busiest_hour:  # on an operator's output the last values are promised, not the panes
            assert last(got, stage) == last(expected, stage)
        else:
            found = compare(got, expected, names=(f"cut {cut}", "whole"))
            assert found.differences == 0, found.examples
        assert (side is None) == (expected_side is None)
        if side is not None and expected_side is not None:
            assert sorted(side["s"].to_pylist()) == sorted(expected_side["s"].to_pylist())
