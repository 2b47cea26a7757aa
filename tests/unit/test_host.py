"""Between the kernel and Spark: whole numbers stay exact beside nulls."""

from __future__ import annotations

import pyarrow as pa

from floodmark.engines.spark.state.host import frame_of

EXACT = (1 << 56) + 12345


def test_a_position_beside_a_null_stays_exact() -> None:
    rows = pa.table({"position": pa.array([EXACT, None], pa.int64()), "rows": pa.array([1, 2], pa.int64())})
    frame = frame_of(rows)
    assert int(frame["position"][0]) == EXACT
    as_spark_takes_it = pa.Array.from_pandas(frame["position"], type=pa.int64())
    assert as_spark_takes_it.to_pylist() == [EXACT, None]
    assert int(frame["rows"].sum()) == 3
