"""Calls of another system on Spark: its rows are those of the embedded engine, and one engine reads the answers of the other."""

from __future__ import annotations

from datetime import timedelta

import pytest
from answering import Service
from calls_process import doubles
from deltalake import DeltaTable
from engines import embedded
from events import START

from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import MARKER
from floodmark.testing import lakes
from floodmark.testing.log import Log


@pytest.mark.feature("A1")
@pytest.mark.engines("spark")
def test_a_stream_on_spark_asks_once_and_the_embedded_engine_reads_its_answers(engine, lake):
    with Service(failing=5) as service:
        asking, log = doubles(service.port), Log(doubles(service.port).inputs[0].schema)
        rows = [{"at": START + timedelta(minutes=n), "key": "ab"[n % 2], "value": n} for n in range(300)]
        log.rows(rows, "at", 60_000)
        log.end()
        lakes.land(lake, asking, log)
        engine.run_unbounded(asking, lake, until_caught_up=True)
        asked = service.calls.total()
        assert len(service.calls) == 300
        engine.run_unbounded(asking, lake, until_caught_up=True, from_scratch=True)
        whole = Lake(f"{lake.root}/whole", logs=lake.root, upstream=lake.root)
        embedded().run_bounded(asking, whole, Interval())
        assert service.calls.total() == asked
    for each in (lake, whole):
        found = DeltaTable(each.output("doubles")).to_pyarrow_table().sort_by("_sequence").to_pylist()
        values = [(row["value"], row["doubled"]) for row in found if row["_kind"] != MARKER]
        assert values == [(n, 2 * n) for n in range(300) if n % 10 != 3]
