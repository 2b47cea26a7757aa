"""A table that holds each row as often as it counts: merges of rows and retractions, each micro-batch once."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.lake.writing import copies
from floodmark.spec.values.schema import RETRACTION, ROW

OWN = {
    "k": pa.int64(),
    "f": pa.float64(),
    "d": pa.decimal128(10, 2),
    "t": pa.timestamp("us", "UTC"),
    "tags": pa.list_(pa.string()),
    "s": pa.struct([("a", pa.int64())]),
}
SCHEMA = pa.schema([*OWN.items(), ("_sequence", pa.int64()), ("_kind", pa.int32())])


def drawn_row(drawn: random.Random) -> dict[str, Any]:
    """A row; few differ."""
    return {
        "k": drawn.choice([None, 1, (1 << 63) - 1]),
        "f": drawn.choice([None, math.nan, 1.5]),
        "d": drawn.choice([None, Decimal("1.50")]),
        "t": datetime(2020, 1, 1, tzinfo=UTC),
        "tags": drawn.choice([None, ["a"], ["a", None]]),
        "s": drawn.choice([None, {"a": 1}]),
    }


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("seed", range(2))
def test_rows_minus_retractions_are_in_the_table_however_often_a_micro_batch_is_merged(
    tmp_path: Path, seed: int
) -> None:
    drawn, path = random.Random(seed), str(tmp_path / "t")
    write_deltalake(path, SCHEMA.empty_table())
    alive: list[dict[str, Any]] = []
    for batch in range(8):
        changes = []
        for _ in range(drawn.randrange(12)):
            if alive and drawn.random() < 0.5:
                changes.append(alive.pop(drawn.randrange(len(alive))) | {"_kind": RETRACTION})
            else:
                alive.append(drawn_row(drawn))
                changes.append(alive[-1] | {"_kind": ROW})
        rows = [row | {"_sequence": batch * 100 + number} for number, row in enumerate(changes)]
        for _ in range(drawn.choice([1, 2])):
            copies.merge(path, pa.Table.from_pylist(rows, schema=SCHEMA), list(OWN), ("app", batch))
        table = DeltaTable(path).to_pyarrow_table().select(list(OWN))
        assert Counter(map(repr, table.to_pylist())) == Counter(
            map(repr, pa.Table.from_pylist(alive, schema=pa.schema(list(OWN.items()))).to_pylist())
        )
