"""Tables of an operator: made with their columns, and refused with others, without an engine."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import BaseModel, Field

from floodmark import Contract, Daily, EventTime, Operator, Stream, operator
from floodmark.core.errors import ExecutionError, PlanError
from floodmark.engines.frames.inputs import check_columns
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import tables
from floodmark.lake.table import entries
from floodmark.spec.values.schema import PARTITION, STAMPS


class Event(Contract):
    """Something with tags."""

    at: EventTime
    n: int
    tags: list[str]


def _read(columns: str) -> Operator:
    def rows(events: Stream[Event]) -> Stream:
        return events.select(*columns.split())

    return operator(rows, name="rows")


def test_a_table_is_made_once_and_has_its_columns(lake: Lake) -> None:
    code = _read("at n tags")
    path = tables.ensure(lake, code, code.outputs[0])
    assert tables.ensure(lake, code, code.outputs[0]) == path
    assert [field.name for field in DeltaTable(path).schema().fields] == ["at", "n", "tags", *STAMPS]
    assert DeltaTable(path).version() == 0
    tables.forget(code, lake)
    assert not DeltaTable.is_deltatable(path)


def _fill(path: str) -> None:
    """One row of nothing."""
    there = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, pa.Table.from_pylist([dict.fromkeys(there.column_names)], schema=there.schema), mode="append")


def test_an_empty_table_without_a_stream_is_made_anew_with_other_columns(lake: Lake) -> None:
    before, now = _read("at n tags"), replace(_read("at n"), partitions=Daily("2024-01-01"))
    tables.ensure(lake, before, before.outputs[0])
    path = tables.ensure(lake, now, now.outputs[0])
    assert [field.name for field in DeltaTable(path).schema().fields] == ["at", "n", *STAMPS, PARTITION]


def test_other_columns_are_named_as_sql_names_them(lake: Lake) -> None:
    before, now = _read("at n tags"), _read("at n")
    path = tables.ensure(lake, before, before.outputs[0])
    _fill(path)
    with pytest.raises(PlanError, match=r"PLAN-002 .*got at timestamp, n bigint, tags array<string>\. .*--force"):
        tables.ensure(lake, now, now.outputs[0])
    tables.ensure(lake, now, now.outputs[0], replace=True)
    cut = replace(before, partitions=Daily("2024-01-01"))
    with pytest.raises(PlanError, match="PLAN-003"):
        tables.ensure(lake, cut, cut.outputs[0])


class Leg(BaseModel):
    """A part of an event."""

    Origin: str
    miles: dict[str, list[int]]


class Wide(Contract):
    """A column of each type that a contract may have."""

    at: EventTime
    s: str
    i: int
    f: float
    b: bool
    day: date
    raw: bytes
    money: Annotated[Decimal, Field(max_digits=38, decimal_places=2)]
    leg: Leg
    legs: list[Leg]
    by_name: dict[str, Leg]


@operator
def wide(events: Stream[Wide]) -> Stream:
    return events.filter("i > 0")


def test_a_table_has_the_types_of_the_contract_it_was_made_of(lake: Lake) -> None:
    path = tables.ensure(lake, wide, wide.outputs[0])
    types = {name: tables.sql_type(field["type"]) for name, field in entries.fields_of(path).items()}
    check_columns(types, wide, wide.inputs[0])
    for name, kind in wide.inputs[0].schema.types.items():
        other = "string" if kind != "string" else "bigint"
        with pytest.raises(ExecutionError, match=f"EXECUTION-005 .*got {name} {other} for "):
            check_columns(types | {name: other}, wide, wide.inputs[0])


def test_a_lake_has_one_name_whatever_way_leads_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    assert {
        Lake(root).root for root in ("../b", f"{tmp_path}/b", f"file://{tmp_path}/b/", f"{tmp_path}/shop/../b")
    } == {f"{tmp_path}/b"}
    assert Lake(f"{tmp_path}/link/../b").root == f"{tmp_path}/b"
    assert Lake(f"{tmp_path}/link").root == f"{tmp_path}/link", "as it was named"
    assert Lake("s3://bucket/a/../b").root == "s3://bucket/a/../b"
