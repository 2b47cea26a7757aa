"""Files an engine has written: what is read of them before a commit names them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from floodmark.lake.table.files import Written


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(("kinds", "counts"), [([0, 0, 0], {0: 3}), ([0, 2, 0], {0: 2, 2: 1}), ([], {}), ([2], {2: 1})])
def test_rows_are_counted_per_kind(tmp_path: Path, kinds: list[int], counts: dict[int, int], statistics: bool) -> None:
    inner = pa.array([{"_kind": 7}] * len(kinds), pa.struct([("_kind", pa.int32())]))
    rows = pa.table({"of": inner, "_kind": pa.array(kinds, pa.int32())})
    pq.write_table(rows, tmp_path / "part.parquet", write_statistics=statistics, row_group_size=2)
    assert +Written(folder=tmp_path).kinds() == counts


def test_nulls_of_a_column_without_a_range_are_found(tmp_path: Path) -> None:
    path = str(tmp_path)
    rows = pa.table({"text": ["x" * 50, None, "y" * 50], "share": [0.5, None, None], "day": ["a", None, "b"]})
    DeltaTable.create(path, rows.schema)
    (tmp_path / "new").mkdir()
    pq.write_table(rows, tmp_path / "new" / "part.parquet")
    table = DeltaTable(path)
    table.create_write_transaction(Written(folder=tmp_path / "new").actions(), "append", table.schema(), [])
    found = DeltaTable(path).to_pyarrow_dataset()
    counts = {name: found.count_rows(filter=pc.field(name).is_null()) for name in rows.column_names}
    assert counts == {"text": 1, "share": 2, "day": 1}
