"""A table that a query has made is whole only when all its rows are in it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.lake.writing import derived


@pytest.mark.parametrize("where", ["true", "false"])
def test_a_table_without_its_rows_is_not_whole(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    write_deltalake(source, pa.table({"n": [1, 2]}))
    like = DeltaTable(source)
    rows, query = {"given": like.to_pyarrow_dataset()}, f"SELECT n FROM given WHERE {where}"
    assert not derived.whole(target)
    with monkeypatch.context() as patched:
        patched.setattr(derived, "write_deltalake", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            derived.write(target, like, rows, query)
    assert DeltaTable.is_deltatable(target)
    assert not derived.whole(target)
    derived.write(target, like, rows, query)
    assert derived.whole(target)
    assert DeltaTable(target).to_pyarrow_table().num_rows == (2 if where == "true" else 0)
