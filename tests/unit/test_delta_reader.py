"""The reader of a Delta table of others: values of partitions, odd values, a table that was made anew, and the cost of a long log."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.connectors.readers import delta
from floodmark.connectors.readers.delta import DeltaReader
from floodmark.connectors.unit import Pending
from floodmark.core.errors import ConnectorError
from floodmark.lake.table.commits import Landed
from floodmark.spec.rows.connector import DeltaTable


@pytest.fixture
def reader(tmp_path: Path) -> DeltaReader:
    """Of a table that is not there yet."""
    return DeltaReader(DeltaTable(str(tmp_path / "table")), "orders")


def rows(reader: DeltaReader, version: int) -> list[Any]:
    """The rows of a version."""
    (unit,) = (one for one in reader.pending({}).units if one.name == f"version {version}")
    return [record.value for record in reader.open(unit).records()]


def landed(looked: Pending) -> tuple[dict[str, Landed], dict[str, str]]:
    """What a landing of all units notes: units and positions."""
    units = {
        unit.name: Landed(name=unit.name, size=0, modified=0, digest="", status="landed", ordinal=0)
        for unit in looked.units
    }
    return units, {"": looked.units[-1].position}


def test_values_of_partitions_have_the_types_of_their_columns(reader: DeltaReader) -> None:
    values = {"n": 5, "x": 1.5, "is_open": True, "cents": Decimal("1.20"), "text": "7", "void": None}
    table = pa.table(
        {"id": [1], "cents": pa.array([values["cents"]], pa.decimal128(10, 2)), "void": pa.array([None], pa.int64())}
        | {name: [values[name]] for name in ("n", "x", "is_open", "text")}
    )
    write_deltalake(reader.settings.path, table, partition_by=[*values])
    assert rows(reader, 0) == [{"id": 1, **values}]


def test_maps_are_dictionaries_and_a_time_without_a_date_is_a_text(reader: DeltaReader) -> None:
    far = pa.array([253402300800000000], pa.int64()).view(pa.timestamp("us", "UTC"))
    maps = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    write_deltalake(reader.settings.path, pa.table({"m": maps, "at": far, "on": [date(2020, 1, 1)]}))
    assert rows(reader, 0) == [{"m": {"a": 1}, "at": "+10000-01-01T00:00:00Z", "on": date(2020, 1, 1)}]


def test_a_table_that_was_made_anew_is_refused(reader: DeltaReader) -> None:
    path = reader.settings.path
    for number in range(3):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    units, positions = landed(reader.pending({}))
    assert reader.pending(units, positions).units == []
    shutil.rmtree(path)
    write_deltalake(path, pa.table({"n": [7]}))
    for known in (positions, {}):  # without a position, as of earlier releases
        with pytest.raises(ConnectorError, match=r"CONNECTOR-009 source 'orders': .*newest version is 0; 2 has landed"):
            reader.pending(units, known)
    for number in range(4):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    with pytest.raises(ConnectorError, match="CONNECTOR-009 .*new source name"):
        reader.pending(units, positions)


def test_a_look_behind_what_has_landed_lists_no_log(reader: DeltaReader, monkeypatch: pytest.MonkeyPatch) -> None:
    path = reader.settings.path
    write_deltalake(path, pa.table({"n": [0]}))
    units, positions = landed(reader.pending({}))
    monkeypatch.setattr(delta, "FileSelector", lambda *_, **__: pytest.fail("lists the log"))
    assert reader.pending(units, positions).units == []
    for number in (1, 2):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    assert [unit.name for unit in reader.pending(units, positions).units] == ["version 1", "version 2"]


def test_a_version_that_is_gone_before_it_landed_is_told(reader: DeltaReader) -> None:
    path = reader.settings.path
    for number in range(4):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    units, positions = landed(Pending(reader.pending({}).units[:2]))
    for version in (0, 1, 2):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    with pytest.raises(ConnectorError, match="CONNECTOR-005 .*version 2 .*got 3 as the oldest"):
        reader.pending(units, positions)


def test_a_start_that_has_not_come_yet_is_waited_for(reader: DeltaReader) -> None:
    write_deltalake(reader.settings.path, pa.table({"n": [1]}))
    later = DeltaReader(DeltaTable(reader.settings.path, starting_version=9), "orders")
    assert later.pending({}).units == []


def test_a_version_behind_very_many_others_does_not_read_all_their_entries(
    reader: DeltaReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        write_deltalake(reader.settings.path, pa.table({"n": [number]}), mode="append")
    read, loads = list[int](), json.loads
    units = reader.pending({}).units
    reader.open(units[20])
    monkeypatch.setattr(delta.json, "loads", lambda text: read.append(1) or loads(text))
    content = reader.open(units[25])
    assert len(read) < 12  # lines of its own entry and of the first one
    assert [record.value for record in content.records()] == [{"n": 25}]


def test_a_column_that_is_added_has_its_name_from_its_version_on(reader: DeltaReader) -> None:
    path = reader.settings.path
    write_deltalake(path, pa.table({"n": [1], "part": [1]}), partition_by="part")
    write_deltalake(path, pa.table({"n": [2], "part": [2], "more": [3]}), mode="append", schema_mode="merge")
    at = datetime(2020, 1, 1, tzinfo=UTC)
    write_deltalake(path, pa.table({"n": [4], "part": [5], "at": [at]}), mode="append", schema_mode="merge")
    assert rows(reader, 2)[0]["at"] == at
    assert rows(reader, 0) == [{"n": 1, "part": 1}]
    assert rows(reader, 1) == [{"n": 2, "part": 2, "more": 3}]
