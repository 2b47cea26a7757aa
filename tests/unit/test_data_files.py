"""Files an engine has written: what is read of them before a commit names them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.lake.files import Written


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(("kinds", "counts"), [([0, 0, 0], {0: 3}), ([0, 2, 0], {0: 2, 2: 1}), ([], {}), ([2], {2: 1})])
def test_rows_are_counted_per_kind(tmp_path: Path, kinds: list[int], counts: dict[int, int], statistics: bool) -> None:
    inner = pa.array([{"_kind": 7}] * len(kinds), pa.struct([("_kind", pa.int32())]))
    rows = pa.table({"of": inner, "_kind": pa.array(kinds, pa.int32())})
    pq.write_table(rows, tmp_path / "part.parquet", write_statistics=statistics, row_group_size=2)
    assert +Written(folder=tmp_path).kinds() == counts
