"""Values that a row holds otherwise than its contract says are set aside, not converted."""

from __future__ import annotations

import enum
import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from pydantic import BaseModel, BeforeValidator, Field
from stored import rows

from floodmark import Ascending, Contract, EventTime, Files, JsonText, Source, TimeFormat
from floodmark.connectors.judging import strictness
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.landing import quarantine
from floodmark.lake.folder.paths import Lake

AT = "2024-01-01T00:00:00Z"


class Grade(enum.IntEnum):
    low = 1


class Part(BaseModel):
    n: int | None = None


class Row(Contract):
    at: EventTime
    n: int | None = Field(default=None, ge=0)
    f: float | None = None
    b: bool | None = None
    d: date | None = None
    t: datetime | None = None
    s: str | None = None
    x: Decimal | None = Field(default=None, max_digits=38, decimal_places=20)
    one: Literal[1, 2] | None = None
    grade: Grade | None = None
    part: Part | None = None
    parts: list[Part] | None = None
    counts: dict[str, int] | None = None
    any: JsonText | None = None
    lax: Annotated[int | None, Field(strict=False)] = None
    own: Annotated[int | None, BeforeValidator(lambda value: value.strip() if isinstance(value, str) else value)] = None


class Lax(Row, strict=False):
    pass


def no_sail() -> Sail:
    raise AssertionError("no server is needed")


def landed(lake: Lake, folder: Path, contract: type[Contract] = Row) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows that landed, and the reasons of the others."""
    source = Source("r", contract=contract, connector=Files(str(folder)), watermark=Ascending(), max_quarantine_share=1)
    land(no_sail, source, lake)
    good = [vars(row) for row in rows(lake.log("r"), "_sequence") if row._kind == 0]
    return good, [entry.reason for entry in quarantine.show("r", lake, limit=100).newest]


def json_file(folder: Path, *fields: str) -> Path:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(f'{{"at": "{AT}", {field}}}\n' for field in fields))
    return folder


ALTERED = [
    ('"n": "007"', "n: expected a valid integer, not text (Field(strict=False) converts it), got '007'"),
    ('"n": true', "n: expected a valid integer, not true or false (Field(strict=False) converts it), got True"),
    ('"n": "1_000"', None),
    ('"n": 9007199254740993.0', None),
    ('"f": "1.5"', None),
    ('"f": true', None),
    ('"b": 1', "b: expected a valid boolean, not a number (Field(strict=False) converts it), got 1"),
    ('"b": "yes"', None),
    ('"b": 0.0', None),
    ('"s": 7', None),
    ('"d": 86400', None),
    ('"d": "86400"', None),
    ('"t": "20240131"', None),
    ('"t": 20240131', None),
    ('"t": "2024"', None),
    ('"t": "20240131103000"', None),
    ('"one": true', None),
    ('"one": 1.0', None),
    ('"grade": "1"', None),
    ('"part": {"n": "1"}', "part.n: expected a valid integer, not text (Field(strict=False) converts it), got '1'"),
    ('"parts": [{"n": 1}, {"n": false}]', None),
    ('"counts": {"a": "1"}', None),
]


def test_a_value_of_json_that_only_a_conversion_makes_fit_is_set_aside(lake: Lake, tmp_path: Path) -> None:
    good, reasons = landed(lake, json_file(tmp_path / "in", *(field for field, _ in ALTERED)))
    assert (good, len(reasons)) == ([], len(ALTERED))
    assert {reason for _, reason in ALTERED if reason} <= set(reasons)


def test_what_is_set_aside_is_kept_as_it_was_written(lake: Lake, tmp_path: Path) -> None:
    landed(lake, json_file(tmp_path / "in", '"n":  "007"'))
    (entry,) = quarantine.show("r", lake).newest
    assert entry.raw == f'{{"at": "{AT}", "n":  "007"}}'


SAME = [
    ('"n": 7', {"n": 7}),
    ('"n": 7.0', {"n": 7}),
    ('"f": 7', {"f": 7.0}),
    ('"f": "-Infinity"', {"f": float("-inf")}),
    ('"b": false', {"b": False}),
    ('"d": "2024-02-29"', {"d": date(2024, 2, 29)}),
    ('"one": 2', {"one": 2}),
    ('"grade": 1', {"grade": "1"}),
    ('"part": {"n": 1}, "parts": [{"n": 2}]', {"part": {"n": 1}, "parts": [{"n": 2}]}),
    ('"lax": "007"', {"lax": 7}),
    ('"lax": true', {"lax": 1}),
    ('"own": " 7 "', {"own": 7}),
    ('"x": 1.10', {"x": Decimal("1.1")}),
    ('"x": 1234567890123456.7', {"x": Decimal("1234567890123456.7")}),
    ('"x": 0.30000000000000001', {"x": Decimal("0.30000000000000001")}),
    ('"x": 123456789012345678e-20', {"x": Decimal("0.00123456789012345678")}),
    ('"x": "12345678901234567.89"', {"x": Decimal("12345678901234567.89")}),
    ('"x": 12345678901234567.89', {"x": Decimal("12345678901234567.89")}),
    ('"x": 0.12345678901234567891, "f": 0.12345678901234567891', {"x": Decimal("0.12345678901234567891")}),
    ('"x": 0.12345678901234567891, "any": {"y": 0.12345678901234567891}', {"any": '{"y": 0.12345678901234568}'}),
    ('"x": 0.12345678901234567891, "part": {"n": 1}, "d": "2024-02-29"', {"d": date(2024, 2, 29), "part": {"n": 1}}),
]


def test_a_value_of_json_that_is_what_the_contract_says_lands(lake: Lake, tmp_path: Path) -> None:
    good, reasons = landed(lake, json_file(tmp_path / "in", *(field for field, _ in SAME)))
    assert reasons == []
    for row, (_, expected) in zip(good, SAME, strict=True):
        assert {name: row[name] for name in expected} == expected


def test_a_contract_that_says_so_converts_all_its_values(lake: Lake, tmp_path: Path) -> None:
    (row,), _ = landed(lake, json_file(tmp_path / "in", '"n": "007", "b": 1, "f": "1.5", "part": {"n": "1"}'), Lax)
    assert (row["n"], row["b"], row["f"], row["part"]) == (7, True, 1.5, {"n": 1})


def test_columns_of_another_type_are_not_converted(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    columns = {
        "at": [AT] * 5,
        "n": pa.array(["007", None, None, None, None]),
        "f": pa.array([None, True, None, None, None]),
        "b": pa.array([None, None, 1, None, None]),
        "t": pa.array([None, None, None, 20240131, None]),
    }
    pq.write_table(pa.table(columns), tmp_path / "in" / "a.parquet")
    good, reasons = landed(lake, tmp_path / "in")
    assert (len(good), len(reasons)) == (1, 4)


def test_a_text_of_csv_is_a_number_as_it_is_written(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"at,n,f,b,one,grade\n{AT},007,1.5,true,2,1\n{AT},7.5,x,maybe,3,2\n")
    (row,), reasons = landed(lake, tmp_path / "in")
    assert (row["n"], row["f"], row["b"], row["one"], row["grade"], len(reasons)) == (7, 1.5, True, 2, "1", 1)


def test_digits_that_are_a_day_are_not_counted_from_1970(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("at\n2024\n202401\n20240131\n20240131103000\n1700000000\n1700000000123\n")
    good, reasons = landed(lake, tmp_path / "in")
    assert [row["at"].year for row in good] == [2023, 2023]
    assert len(reasons) == 4
    assert all(
        r.startswith("at: expected a time in ISO 8601, or a number since 1970; else TimeFormat says") for r in reasons
    )


class Day(Contract):
    at: Annotated[EventTime, TimeFormat("%Y%m%d")]


def test_a_format_reads_such_digits(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("at\n20240131\n")
    (tmp_path / "in" / "b.jsonl").write_text(json.dumps({"at": 20240131}) + "\n")
    good, _ = landed(lake, tmp_path / "in", Day)
    assert [f"{row['at']:%Y-%m-%d}" for row in good] == ["2024-01-31"] * 2


@given(st.one_of(st.integers(10**12, 10**13 - 1), st.integers(min_value=10**14)), st.sampled_from(["19", "20"]))
def test_no_day_has_as_many_digits_as_a_time_in_milliseconds(number: int, century: str) -> None:
    """Such numbers are taken without a look at their digits."""
    assert strictness._DAY.fullmatch(f"{century}{str(number)[2:]}") is None
