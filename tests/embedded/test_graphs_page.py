"""The programs of docs/graphs.md run as they stand there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from page_programs import module_of, pieces

PAGE = Path(__file__).parents[2] / "docs" / "graphs.md"


def test_the_programs_of_the_page_iterate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    links = {"page": ["home", "home", "news", "a"], "leads_to": ["news", "news", "shop", "a"]}
    write_deltalake("lake/outputs/links", pa.table(links))
    program = module_of(tmp_path / "graphs_of_the_page.py", "\n".join(pieces(PAGE)), monkeypatch)
    assert program.joined.outputs[0].schema.names == ("vertex", "component")

    def rows(name: str) -> dict[object, tuple[object, ...]]:
        table = DeltaTable(f"lake/graphs/{name}/result").to_pyarrow_table()
        return {
            key: tuple(values) for key, *values in zip(*(table[n].to_pylist() for n in table.column_names), strict=True)
        }

    assert rows("clicks") == {"home": (0.0,), "news": (1.0,), "shop": (2.0,), "a": (None,)}
    assert rows("sites") == {"home": ("home",), "news": ("home",), "shop": ("home",), "a": ("a",)}
    assert rows("degrees") == {"home": (1, 0, 1), "news": (1, 1, 2), "shop": (0, 1, 1)}
    assert rows("roots")[9] == (pytest.approx(3),)
    assert rows("least")[1] == (0,)
