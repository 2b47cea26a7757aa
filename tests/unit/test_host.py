"""Between the kernel and Spark: whole numbers stay exact beside nulls."""

from __future__ import annotations

import pyarrow as pa

from floodmark.engines.frames.packing import NUMBERS
from floodmark.engines.spark.state.host import frame_of

EXACT = (1 << 56) + 12345


def test_a_position_beside_a_null_stays_exact() -> None:
    frame = frame_of([{"position": EXACT, "rows": 1, "results": b"x"}, {"position": None, "rows": 2, "others": "{}"}])
    as_spark_takes_them = pa.Array.from_pandas(frame["numbers"], type=pa.list_(pa.int64())).to_pylist()
    assert [dict(zip(NUMBERS, numbers, strict=True))["position"] for numbers in as_spark_takes_them] == [EXACT, None]
    assert [dict(zip(NUMBERS, numbers, strict=True))["rows"] for numbers in as_spark_takes_them] == [1, 2]
    assert frame[["others", "results", "side"]].to_numpy().tolist() == [[None, b"x", None], ["{}", None, None]]
