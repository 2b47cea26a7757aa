"""How many bundles key groups lie in, and what is told of the key groups in them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import Row
from streams import WATCHED, WINDOWED

from floodmark.core.time import Interval
from floodmark.engines.frames.packing import emitted_rows, hottest_of, packing
from floodmark.engines.spark.unbounded import sink
from floodmark.semantics.encoding.columns import decode
from floodmark.semantics.kernels.columnar import KEY_GROUP
from floodmark.semantics.kernels.kernel import Emission
from floodmark.semantics.kernels.stage import stage_of
from floodmark.spec.graph.bundles import bundles
from floodmark.spec.graph.steps import MOST_KEY_GROUPS
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW


@pytest.mark.parametrize(
    ("groups", "tasks", "number"),
    [
        (1, 1, 1),
        (64, 1, 64),
        (128, 1, 128),
        (128, 200, 128),
        (256, 2, 64),
        (MOST_KEY_GROUPS, 1, 64),
        (MOST_KEY_GROUPS, 4, 64),
        (MOST_KEY_GROUPS, 5, 128),
        (MOST_KEY_GROUPS, 200, 4_096),
        (MOST_KEY_GROUPS, 10_000, MOST_KEY_GROUPS),
        (1_000, 1, 100),
        (200, 1, 100),
        (257, 1, 257),
    ],
)
def test_bundles_are_enough_for_the_tasks_and_divide_the_key_groups(groups: int, tasks: int, number: int) -> None:
    assert bundles(groups, tasks) == number


def test_every_number_of_key_groups_is_a_multiple_of_its_bundles() -> None:
    for groups in range(1, 2_000):
        number = bundles(groups, 3)
        assert groups % number == 0
        assert number >= min(groups, 64)


def test_a_bundle_tells_of_its_hottest_key_group() -> None:
    """Rows of two tasks; neither markers, nor retractions, nor rows for all keys are counted."""
    stage = stage_of(replace(WATCHED).grouped(64, MOST_KEY_GROUPS))
    assert stage is not None
    rows = Counter({3: 2, 67: 5, 131: 1, 5: 4})
    first = [(group, kind) for group, kind in ((3, ROW), (67, ROW), (-1, ROW), (3, RETRACTION), (0, MARKER))]
    first += [(group, ROW) for group in (rows - Counter({3: 1, 67: 1})).elements()]
    parts = [dict[str, pa.Table]()]
    for some in (first[:6], first[6:]):
        read = [
            {"group": group % 64, KEY_GROUP: group, "k0": "k", "t": 5, "w": 1, "s": n, "kind": kind, "row": {}}
            for n, (group, kind) in enumerate(some)
        ]
        packed = pa.Table.from_batches(list(packing(stage, Interval())([pa.RecordBatch.from_pylist(read)])))
        parts += [decode(row["payload"]) for row in packed.to_pylist() if row["group"] == 3 and row["payload"]]
    assert hottest_of(parts) == (67, 5, 8)
    assert all(KEY_GROUP not in part for part in parts), "what is left is the kernel's"
    assert hottest_of(parts) is None


def test_what_is_told_of_the_hottest_key_group_is_beside_the_others() -> None:
    stage = stage_of(WINDOWED)
    assert stage is not None
    emission, counts = (
        Emission(stage.result_schema.empty_table(), 0, None),
        dict.fromkeys(("late", "dropped", "sides", "failures", "taken"), 0),
    )
    first, *_ = emitted_rows(stage, emission, counts, hottest=(67, 5, 8))
    assert json.loads(first["others"]) == {"hottest": [67, 5, 8]}
    first, *_ = emitted_rows(stage, emission, counts)
    assert first["others"] is None


def test_bundles_that_have_got_rows_for_all_keys_only_are_no_hot_key_groups() -> None:
    everyone = [Row(group=bundle, taken=3, others=None) for bundle in range(64)]
    assert sink.hottest_of(everyone, bundled=True) is None
    assert sink.hottest_of(everyone, bundled=False) == (0, 3, 192)
    own = [
        Row(group=3, taken=5, others='{"hottest": [67, 5, 8]}'),
        Row(group=5, taken=4, others='{"hottest": [69, 4, 4]}'),
    ]
    assert sink.hottest_of([*everyone, *own], bundled=True) == (67, 5, 12)
