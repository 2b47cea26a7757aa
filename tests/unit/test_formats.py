"""Texts as they come: encodings, headers, decimal commas, JSON documents."""

from __future__ import annotations

import errno
import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError
from stored import rows

from floodmark import Ascending, Contract, EventTime, Files, LocalTime, Source, TimeFormat
from floodmark.connectors.formats.documents import json_records
from floodmark.connectors.formats.tabular import parquet_columns
from floodmark.connectors.unit import Unreadable
from floodmark.core.errors import ConnectorError, DefinitionError
from floodmark.engines.embedded.landing.run import land, replay
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.landing import quarantine
from floodmark.lake.folder.paths import Lake


def no_sail() -> Sail:
    raise AssertionError("no server is needed")


class Payment(Contract):
    at: Annotated[EventTime, TimeFormat("%d.%m.%Y %H:%M")]
    shop: str
    amount: float | None = None
    tax: Decimal = Field(default=Decimal(0), max_digits=9, decimal_places=2)


def source(folder: Path, **settings: Any) -> Source:
    limits = {key: settings.pop(key) for key in ("max_quarantine_share",) if key in settings}
    contract = settings.pop("contract", Payment)
    return Source(
        "payments", contract=contract, connector=Files(str(folder), **settings), watermark=Ascending(), **limits
    )


def landed(lake: Lake) -> list[Any]:
    return [row for row in rows(lake.log("payments"), "_sequence") if row._kind == 0]


LINES = "at;shop;amount;tax\r\n03.02.2024 10:00;Café;1.234,5;0,19\r\n04.02.2024 10:00;Bar;;1\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_spreadsheet_with_semicolons_and_decimal_commas_lands(
    lake: Lake, tmp_path: Path, encoding: str, packed: bool
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    content = LINES.encode(encoding)
    (folder / ("a.csv.gz" if packed else "a.csv")).write_bytes(gzip.compress(content) if packed else content)
    result = land(no_sail, source(folder, delimiter=";", decimal=",", encoding=encoding), lake)
    assert (result.rows, result.quarantined) == (2, 0)
    first, second = landed(lake)
    assert (f"{first.at:%Y-%m-%d %H:%M}", first.shop, first.amount, first.tax) == (
        "2024-02-03 10:00",
        "Café",
        1234.5,
        Decimal("0.19"),
    )
    assert (second.amount, second.tax) == (None, Decimal(1))


def test_lines_before_the_header_and_no_header_at_all(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("Report of today\n\nat;shop\n03.02.2024 10:00;a\n3.2.;b\n")
    land(no_sail, source(folder, delimiter=";", skip=2), lake)
    (entry,) = quarantine.show("payments", lake).newest
    assert (entry.position, entry.reason) == (5, "at: expected a time written as %d.%m.%Y %H:%M, got '3.2.'")
    (folder / "b.csv").write_text("04.02.2024 10:00;c\n")
    land(no_sail, source(folder, delimiter=";", header=("at", "shop")), lake)
    assert [row.shop for row in landed(lake)] == ["a", "c"]


def test_a_row_with_a_decimal_comma_is_read_again_as_it_was(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("sep=;\nat;shop;amount\n03.02.2024 10:00;;2,5\n")
    land(no_sail, source(folder, delimiter=";", decimal=",", null_values=("",)), lake)
    assert quarantine.show("payments", lake).rows == 1

    class Lenient(Payment):
        shop: str | None = None  # type: ignore[assignment]  # wider than its base

    mended = Source("payments", contract=Lenient, connector=Files(str(folder)), watermark=Ascending())
    assert replay(no_sail, mended, lake).landed == 1
    assert [row.amount for row in landed(lake)] == [2.5]


class Visit(Contract, event_time="ingestion"):
    country: str | None = None
    minutes: int | None = None


def visits(lake: Lake) -> list[tuple[Any, Any]]:
    return [(row.country, row.minutes) for row in rows(lake.log("payments"), "_sequence") if row._kind == 0]


def test_a_text_that_means_null_only_where_nothing_is_text_is_counted(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("country,minutes\nNA,NA\nDE,NA\n,7\n")
    result = land(no_sail, source(tmp_path / "in", contract=Visit), lake)
    assert visits(lake) == [("NA", None), ("DE", None), (None, 7)]
    assert result.default_nulls.rows == {"minutes 'NA'": 2}
    assert result.default_nulls.describe().startswith("read as null: minutes 'NA' (2). To say so: Files(")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"missing_values": ("NA",)}, [("NA", None)]),
        ({"null_values": ("", "NA")}, [(None, None)]),
        ({"missing_values": ()}, []),
        ({"null_values": ("-",)}, []),
    ],
)
def test_what_the_author_says_means_null_is_not_counted(
    lake: Lake, tmp_path: Path, settings: dict[str, Any], expected: list[Any]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("country,minutes\nNA,NA\n")
    result = land(no_sail, source(tmp_path / "in", contract=Visit, **settings), lake)
    assert visits(lake) == expected
    assert (result.default_nulls.rows, result.quarantined) == ({}, 1 - len(expected))


class Stamp(Contract):
    at: Annotated[EventTime, TimeFormat("%d/%b/%Y:%H:%M:%S"), LocalTime("Europe/Berlin")]


class Micro(Contract):
    at: Annotated[EventTime, TimeFormat("epoch us")]


def test_a_time_of_a_zone_and_an_epoch() -> None:
    assert Stamp.model_validate({"at": "10/Jul/2024:12:00:00"}).at.isoformat() == "2024-07-10T10:00:00+00:00"
    for value in (1_700_000_000_123_456, "1700000000123456"):
        assert Micro.model_validate({"at": value}).at.isoformat() == "2023-11-14T22:13:20.123456+00:00"
    assert Micro.model_validate_json('{"at": -1}').at.isoformat() == "1969-12-31T23:59:59.999999+00:00"


@pytest.mark.parametrize("text", ["%d.%m", "%H:%M", "epoch", "day first", "%Q"])
def test_a_format_without_a_date_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-150"):
        TimeFormat(text)


OBJECTS = st.lists(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5) | st.none(), max_size=3))


@given(OBJECTS, st.sampled_from([None, 1, 4]), st.booleans())
def test_an_array_gives_its_objects_however_it_is_written(
    objects: list[dict[str, Any]], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(objects, indent=indent, ensure_ascii=ascii_only)
    found = list(json_records(iter(text.encode().splitlines(keepends=True))))
    assert [json.loads(record.raw) for record in found] == objects
    assert [record.position for record in found] == list(range(1, len(objects) + 1))


def test_a_long_array_on_one_line_and_objects_over_several_lines() -> None:
    many = [{"n": n, "text": "x" * 100} for n in range(5000)]
    assert [json.loads(r.raw)["n"] for r in json_records(iter([json.dumps(many).encode()]))] == list(range(5000))
    lines = b'{\n "n": 1\n}\n{\n "n": 2\n}\n'.splitlines(keepends=True)
    assert [json.loads(r.raw) for r in json_records(iter(lines))] == [{"n": 1}, {"n": 2}]


def test_an_object_may_be_broken_into_lines_anywhere_and_a_cut_line_is_one_broken_row() -> None:
    text = b'{"n": 1, "rows": [{"a": 1},\n{"a": 2}]}\n{"n": 2}\n'
    assert [json.loads(r.raw)["n"] for r in json_records(iter(text.splitlines(keepends=True)))] == [1, 2]
    cut = [b'{"n": 1, "rows": [{"a": 1},\n', b'{"n": 2}\n', b'{"n": 3}\n']
    assert [record.raw for record in json_records(iter(cut))] == [line.strip() for line in cut]


def test_a_first_line_that_is_an_array_of_its_own_is_one_broken_row() -> None:
    found = list(json_records(iter([b"[1]\n", b'{"n": 1}\n'])))
    assert [(record.position, record.raw) for record in found] == [(1, b"[1]"), (2, b'{"n": 1}')]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'[{"n": 1},\n', "its array is not closed"),
        (b'[\n{"n": 1},\n{"n"\n', "it is no JSON"),
        (b'[\n{"n": 1}\n] x\n', "something follows its array of 1 objects"),
        (b"[\n" + b"[" * 100_000 + b"\n", "its JSON is nested too deeply"),
    ],
)
def test_a_broken_document_lands_nothing(text: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        list(json_records(iter(text.splitlines(keepends=True))))


def test_a_line_that_is_nested_very_deeply_is_one_broken_row() -> None:
    lines = [b'{"n": ' + b"[" * 100_000 + b"\n", b'{"n": 1}\n']
    assert [record.position for record in json_records(iter(lines))] == [1, 2]


class Labelled(Contract):
    at: EventTime
    shop: str
    labels: dict[str, int]


def test_a_row_of_parquet_that_python_does_not_have_is_set_aside_and_the_others_land(
    lake: Lake, tmp_path: Path
) -> None:
    offsets, moment = pa.array([0, 1, 2, 4, 6], pa.int32()), 1_700_000_000_000_000
    columns = {
        "at": pa.array([moment, 253_402_300_800_000_000, moment, moment], pa.int64()).view(pa.timestamp("us", "UTC")),
        "shop": pa.StringArray.from_buffers(4, offsets.buffers()[1], pa.py_buffer(b"ab\xff\xfecd")),
        "labels": pa.MapArray.from_arrays(offsets, ["a", "b", "c", "d", "e", "e"], range(6)),
    }
    (tmp_path / "inbox").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "inbox" / "a.parquet")
    land(no_sail, source(tmp_path / "inbox", contract=Labelled, max_quarantine_share=1), lake)
    assert [row.shop for row in landed(lake)] == ["a"]
    reasons = {entry.reason.partition(":")[0]: entry.reason for entry in quarantine.show("payments", lake).newest}
    assert reasons.keys() == {"at", "shop", "labels"}
    assert "+10000-01-01T00:00:00Z" in reasons["at"]


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_a_parquet_file_with_a_broken_page_is_unreadable(codec: str) -> None:
    file = BytesIO()
    pq.write_table(pa.table({"n": range(5_000)}), file, compression=codec, use_dictionary=False)
    content = bytearray(file.getvalue())
    content[4:40] = b"\xff" * 36  # the head of the first page
    with pytest.raises(Unreadable, match="Invalid page header|deserialize"):
        list(parquet_columns(BytesIO(content)))


def test_an_error_of_the_disk_is_none_of_the_file() -> None:
    class Broken(BytesIO):
        def read(self, *_: Any) -> bytes:
            raise OSError(errno.EIO, "input/output error")

    with pytest.raises(OSError, match="input/output"):
        list(parquet_columns(Broken(b"PAR1" * 100)))


def test_a_landing_that_would_set_nearly_everything_aside_stops_and_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    bad = [f"2024-02-03 10:00;{n}\n" for n in range(99)]
    (folder / "a.csv").write_text("at;shop\n" + "".join(bad) + "03.02.2024 10:00;a\n")
    with pytest.raises(ConnectorError) as caught:
        land(no_sail, source(folder, delimiter=";"), lake, end=True)
    error = caught.value
    assert (error.code, error.where) == ("CONNECTOR-012", "source 'payments'")
    assert error.got.startswith("99 of 100, in a.csv: row 2: at: expected a time written as %d.%m.%Y %H:%M, got '2024-")
    assert error.got.count("row ") == 3
    assert "max_quarantine_share=1" in error.fix
    assert landed(lake) == []
    assert quarantine.show("payments", lake).rows == 0
    result = land(no_sail, source(folder, delimiter=";", max_quarantine_share=1), lake)
    assert (result.rows, result.quarantined, result.ended) == (1, 99, False)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("delimiter", ""), ("delimiter", ";;"), ("decimal", ";"), ("encoding", "utf-9"), ("skip", -1), ("header", "a,b"),
        ("header", ("a", "a")), ("format", "xls"), ("order_by", "date"),
    ],
)  # fmt: skip
def test_settings_of_files_are_checked_where_they_are_written(setting: str, value: Any) -> None:
    with pytest.raises(DefinitionError, match=rf"DEFINITION-153 Files\('in'\): expected .*, got {setting}="):
        Files("in", **{setting: value})


def test_a_comma_is_not_both_delimiter_and_decimal() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-153"):
        Files("in", decimal=",")


class Bounded(Contract):
    at: Annotated[EventTime, LocalTime("America/New_York")] = Field(ge=datetime(2009, 1, 1, tzinfo=UTC))


class BoundedText(Contract):
    at: Annotated[EventTime, TimeFormat("%d.%m.%Y"), LocalTime("Europe/Berlin")] = Field(
        lt=datetime(2009, 1, 1, tzinfo=UTC)
    )


@pytest.mark.parametrize(
    ("contract", "value", "fits"),
    [
        (Bounded, "2008-12-31T18:59:59", False),
        (Bounded, "2008-12-31T19:00:00", True),
        (BoundedText, "31.12.2008", True),
        (BoundedText, "02.01.2009", False),
    ],
)
def test_a_bound_holds_for_the_instant_of_a_local_time(contract: type[Contract], value: str, fits: bool) -> None:
    if fits:
        contract.model_validate({"at": value})
    else:
        with pytest.raises(ValidationError):
            contract.model_validate({"at": value})
