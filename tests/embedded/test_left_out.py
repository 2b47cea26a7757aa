"""Fields a contract does not name: a landing says which it leaves out, unless the contract says what becomes of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pydantic import AliasChoices, AliasPath, BaseModel, Field, model_validator

from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.table.left_out import LeftOut
from floodmark.spec.rows.connector import DeltaTable, Files, Rows
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import Ascending, Source
from floodmark.spec.values.annotations import Rescued


class Reading(Contract):
    at: EventTime
    value: int


class Keeping(Reading):
    unknown: Rescued


class Meant(Reading, extra="ignore"):
    pass


class Strict(Reading, extra="forbid"):
    pass


def none() -> Sail:
    raise AssertionError("no server is needed")


def row(n: int, **more: Any) -> dict[str, Any]:
    return {"at": f"2001-01-01T{n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}Z", "value": n, **more}


def left_out(lake: Lake, connector: Any, contract: type[Contract] = Reading) -> LeftOut:
    source = Source("readings", contract=contract, connector=connector, watermark=Ascending(), max_quarantine_share=1)
    done = land(none, source, lake)
    assert log.newest(lake.log("readings")).left_out == done.left_out
    return done.left_out


def test_of_lines_of_json_the_first_rows_and_one_in_128_are_looked_at(lake: Lake) -> None:
    found = left_out(lake, Rows([row(n, note="x", **({"rare": 1} if n == 5 else {})) for n in range(32 + 1280)]))
    assert found == LeftOut(rows={"note": 42, "rare": 1}, looked_at=42)
    assert found.describe("Reading", 1312) == (
        "left out, as Reading has no such field: note (42), rare (1), of 42 rows looked at. To keep them: a field for each, or "
        '`unknown: Rescued` for all; to leave them out without a word: class Reading(Contract, extra="ignore")'
    )


@pytest.mark.parametrize("contract", [Keeping, Meant, Strict])
def test_a_contract_that_says_what_becomes_of_them_is_not_asked(lake: Lake, contract: type[Contract]) -> None:
    assert left_out(lake, Rows([row(n, note="x") for n in range(5)]), contract) == LeftOut()


def test_without_unknown_fields_there_is_nothing_to_say(lake: Lake) -> None:
    found = left_out(lake, Rows([row(n) for n in range(5)]))
    assert found == LeftOut(looked_at=5)
    assert found.describe("Reading", 5) == ""


def test_columns_of_a_csv_file_are_those_of_its_header(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [f"{row(n)['at']},{n},a,b" for n in range(200)]
    (folder / "a.csv.gz").write_bytes(gzip.compress("\n".join(["at,value,note,", *lines, "broken"]).encode()))
    (folder / "b.csv").write_text("value,at\n" + "".join(f"{n},{row(n)['at']}\n" for n in range(200, 300)))
    assert left_out(lake, Files(str(folder))) == LeftOut(rows={"note": 201}, looked_at=301)


@pytest.mark.parametrize("broken", [False, True], ids=["whole columns", "row by row"])
def test_columns_of_parquet(lake: Lake, tmp_path: Path, *, broken: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pa.Table.from_pylist([row(n, note="x") for n in range(100)])
    rows = rows.set_column(0, "at", rows["at"].cast(pa.timestamp("us", tz="UTC")))
    if broken:
        rows = rows.set_column(1, "value", pa.array([None, *range(99)]))
    pq.write_table(rows, folder / "a.parquet")
    expected = LeftOut(rows={"note": 33}, looked_at=33) if broken else LeftOut(rows={"note": 100}, looked_at=100)
    assert left_out(lake, Files(str(folder))) == expected


def test_what_a_change_feed_adds_to_rows_is_no_field_of_them(lake: Lake, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    write_deltalake(path, pa.Table.from_pylist([row(n, note="x") for n in range(3)]))
    assert left_out(lake, DeltaTable(path, read="changes")) == LeftOut(rows={"note": 3}, looked_at=3)


class Part(BaseModel):
    size: int


class Nested(Contract):
    at: EventTime
    first: Part
    parts: list[Part]
    by_name: dict[str, Part]
    value: int = Field(validation_alias=AliasChoices("v", AliasPath("values", 0)))


def test_fields_of_nested_models_are_named_with_their_path(lake: Lake) -> None:
    part = {"size": 1, "weight": 2}
    rows = [
        {"at": row(n)["at"], "first": part, "parts": [part, part], "by_name": {"a": {"size": 1}}, "values": [1]}
        for n in range(3)
    ]
    rows[0]["value"] = 1
    found = left_out(lake, Rows(rows), Nested)
    assert found == LeftOut(rows={"first.weight": 3, "parts.weight": 3, "value": 1}, looked_at=3)


def test_a_model_that_takes_rows_apart_by_itself_is_not_asked(lake: Lake) -> None:
    class Flat(Contract):
        at: EventTime
        value: int

        @model_validator(mode="before")
        @classmethod
        def flatten(cls, given: dict[str, Any]) -> dict[str, Any]:
            return {"at": given["when"]["at"], "value": given["value"]}

    rows = [{"when": {"at": row(n)["at"]}, "value": n} for n in range(3)]
    assert left_out(lake, Rows(rows), Flat).rows == {}


def test_documents_of_megabytes_are_looked_at_a_few_in_a_batch(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text("".join(json.dumps(row(n, note="x" * 40_000)) + "\n" for n in range(50)))
    assert left_out(lake, Files(str(folder))) == LeftOut(rows={"note": 1}, looked_at=1)


def test_names_without_end_are_a_hundred_of_which_ten_are_shown(lake: Lake) -> None:
    found = left_out(lake, Rows([row(n, **{f"k{n}_{m}": 1 for m in range(20)}) for n in range(10)]))
    assert len(found.rows) == 100
    assert "k0_0 (1)" in found.describe("Reading", 10)
    assert "and 90 others, of 10 rows." in found.describe("Reading", 10)
