"""Scaffolding, with the sample and from data."""

from __future__ import annotations

import csv
import gzip
import json
import runpy
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark import (
    Ascending,
    Contract,
    EventTime,
    Expectation,
    Rows,
    Settings,
    Source,
    Stream,
    Workspace,
    operator,
    operator_asset,
)
from floodmark.cli.new.inference import Looked, look
from floodmark.cli.new.scaffold import scaffold
from floodmark.cli.shell.invocation import Invocation
from floodmark.cli.shell.loading import open_workspace
from floodmark.cli.verbs.workspace import _refused_in
from floodmark.core.errors import FloodmarkError

from .conftest import Verb


def kinds(looked: Looked) -> dict[str, str]:
    return {f.name: f.type + (" | None" if f.nullable else "") for f in looked.fields}


def csv_file(folder: Path, name: str, *rows: str) -> Path:
    text = "\n".join(rows) + "\n"
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder / name


def test_init_makes_a_workspace_and_says_what_is_next(verb: Verb, tmp_path: Path) -> None:
    result = verb("init", "shop")
    assert result.exit_code == 0
    assert result.stdout == (
        "made shop: 17 files\n"
        "dev runs on the embedded engine, which needs no Java, prod on Spark: resources/settings.py\n"
        "next:\n  cd shop\n  floodmark land orders\n  floodmark run hourly_sales\n"
        "  floodmark run hourly_sales --unbounded --until-caught-up\n"
    )
    assert (tmp_path / "shop" / ".gitignore").is_file()
    assert not [file for file in (tmp_path / "shop").rglob("*") if file.is_file() and "{{" in file.read_text()]


def test_init_as_json(verb: Verb, tmp_path: Path) -> None:
    document = json.loads(verb("init", "shop", "--json").stdout)
    assert document["folder"] == str(tmp_path / "shop")
    assert (document["source"], document["operator"], len(document["files"])) == ("orders", "hourly_sales", 17)


def test_dev_is_embedded_and_prod_on_spark(verb: Verb, tmp_path: Path, fresh_modules: None) -> None:
    assert verb("init", "shop").exit_code == 0
    settings = runpy.run_path(str(tmp_path / "shop" / "resources" / "settings.py"))["settings"]
    assert [settings(one).engine for one in ("dev", "prod")] == ["embedded", "spark"]


def test_init_leaves_a_folder_with_files_alone(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine.txt").write_text("keep")
    result = verb("init", "shop")
    assert result.exit_code == 1
    assert result.stderr == (
        f"LIFECYCLE-020 folder {tmp_path / 'shop'}\n"
        "  expected: a new or empty folder\n  got:      one with files in it\n"
        "  fix:      Choose another name, or empty it first; nothing was changed.\n"
    )
    assert [file.name for file in (tmp_path / "shop").iterdir()] == ["mine.txt"]


def test_the_scaffolds_own_tests_pass(shop: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=shop, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_samples_late_rows_are_late() -> None:
    """30 minutes of bound, an hour of lateness: one order refires its hour, two come too late for it."""
    inbox = Path(__file__).parents[2] / "src/floodmark/cli/new/template/sample/inbox/orders"
    newest, late = "", []
    for file in sorted(inbox.iterdir()):
        for row in csv.DictReader(file.read_text().splitlines()):
            if row["items"] != "0":
                minutes = [
                    int(text[11:13]) * 60 + int(text[14:16])
                    for text in (newest or row["ordered_at"], row["ordered_at"])
                ]
                closes = (minutes[1] // 60 + 1) * 60
                if closes <= minutes[0] - 30:
                    late.append((row["order_id"], closes + 60 <= minutes[0] - 30))
                newest = max(newest, row["ordered_at"])
    assert late == [("1011", False), ("1016", True), ("1018", True)]


def test_types_and_nulls_are_read_from_all_values(tmp_path: Path) -> None:
    file = csv_file(
        tmp_path,
        "a.csv",
        "n,f,b,d,t,s,e",
        "1,1.5,true,2024-01-01,2024-01-01T10:00:00Z,x,",
        "-2,3,False,2024-02-29,2024-01-01 11:30:00Z,,",
    )
    looked = look(file)
    assert kinds(looked) == {
        "n": "int",
        "f": "float",
        "b": "bool",
        "d": "date",
        "t": "datetime",
        "s": "str | None",
        "e": "str | None",
    }
    assert (looked.event_time, looked.rows, looked.whole) == ("t", 2, True)


def test_texts_that_look_like_numbers_with_leading_zeros_stay_texts(tmp_path: Path) -> None:
    assert kinds(look(csv_file(tmp_path, "a.csv", "zip,big", "01234,12345678901234567890", "56789,1")))["zip"] == "str"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path: Path, separator: str) -> None:
    looked = look(csv_file(tmp_path, "a.csv.gz", separator.join("abc"), separator.join("123")))
    assert (looked.connector.delimiter, list(kinds(looked))) == (separator, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("day,created_at", "2024-01-01,2024-01-01T00:00:00Z", "created_at"),
        ("updated,happened_at", "2024-01-01T00:00:00Z,2024-01-01T00:00:00Z", "happened_at"),
        ("n,day", "1,2024-01-01", "day"),
        ("n,ts", "1,1700000000", "ts"),
        ("n,ts", "1,1700000000123", "ts"),
        ("n,ts", "1,17", None),
        ("n,other", "1,1700000000", None),
        ("n,m", "1,2", None),
    ],
)
def test_the_event_time_is_the_best_candidate(tmp_path: Path, header: str, row: str, expected: str | None) -> None:
    assert look(csv_file(tmp_path, "a.csv", header, row)).event_time == expected


def test_a_time_with_gaps_is_no_event_time(tmp_path: Path) -> None:
    assert look(csv_file(tmp_path, "a.csv", "n,at", "1,2024-01-01T00:00:00Z", "2,")).event_time is None


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"at": "2024-01-01T00:00:00Z", "b": [1], "c": {"x": 1}}\nbroken\n{"at": "2024-01-02T00:00:00Z", "b": [2]}\n'
    )
    looked = look(tmp_path / "a.jsonl")
    assert kinds(looked) == {"at": "datetime", "b": "list[int]", "c": "C | None"}
    assert [(m.name, [(f.name, f.type) for f in m.fields]) for m in looked.models] == [("C", [("x", "int")])]
    assert (looked.event_time, looked.left_out) == ("at", ())
    pq.write_table(
        pa.table({"n": pa.array([1, None], pa.int32()), "d": pa.array(["1.25", "2.50"]).cast(pa.decimal128(9, 2))}),
        tmp_path / "a.parquet",
    )
    assert kinds(look(tmp_path / "a.parquet")) == {"n": "int | None", "d": "Decimal"}


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.xlsx", "x", "CONNECTOR-081"),
        ("a.csv", "a,b\n", "CONNECTOR-083"),
        ("a.csv", "", "CONNECTOR-083"),
        ("a.parquet", "no parquet", "CONNECTOR-082"),
    ],
)
def test_data_that_cannot_be_looked_at(tmp_path: Path, name: str, content: str, code: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FloodmarkError) as caught:
        look(tmp_path / name)
    assert caught.value.code == code


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(
        FloodmarkError, match=r"CONNECTOR-080 --from: expected a file, a folder or a glob, got nothing at .*nope.csv"
    ):
        look(tmp_path / "nope.csv")


SAMPLES: list[tuple[str, list[str]]] = [
    (
        "Order Log.csv",
        [
            "ID,Order Date,class,amount,ordered_at",
            "1,2024-01-01,a,1.5,2024-01-01 10:00",
            "2,2024-01-02,b,,2024-01-01 11:00",
        ],
    ),
    ("2024-q1.csv", ["x,x y,_z,model_a", "1,2,3,4"]),
    ("settings.csv", ["date,datetime,copy", "2024-01-01,2024-01-01T00:00:00Z,a"]),
    ("count.tsv", ["a\tb", "1\t"]),
    ("semi.csv.gz", ["a;at", "1;2024-01-01T00:00:00+01:00"]),
]


@pytest.mark.parametrize(("name", "rows"), SAMPLES)
def test_a_workspace_over_any_data_is_valid_and_formatted(
    fresh_modules: None, tmp_path: Path, name: str, rows: list[str]
) -> None:
    file = csv_file(tmp_path, name, *rows)
    looked = look(file)
    scaffold(tmp_path / "made", looked)
    opened = open_workspace(Invocation(), tmp_path / "made")
    (source,) = opened.workspace.sources
    delimiter = "\t" if name.endswith(".tsv") else looked.connector.delimiter
    names = rows[0].split(delimiter)
    values: dict[str, Any] = {n: text or None for n, text in zip(names, rows[1].split(delimiter), strict=True)}
    source.contract.model_validate(values)
    lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,E,W,I", "--line-length", "160", "."]
    done = subprocess.run(lint, cwd=tmp_path / "made", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def times(looked: Looked) -> dict[str, str | None]:
    return {f.name: f.format for f in looked.fields if f.type in {"datetime", "date"}}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2010/01/01 00:00", "2010/01/02 10:30"], "%Y/%m/%d %H:%M"),
        (["Jan 1 2000", "Feb 29 2000"], "%b %d %Y"),
        (["13/02/2025", "01/02/2025"], "%d/%m/%Y"),
        (["02/13/2025", "01/02/2025"], "%m/%d/%Y"),
        (["03/02/2025", "01/03/2025", "02/03/2025"], "%d/%m/%Y"),  # in order if the day comes first
        (["24.12.2024 18:00", "24.12.2024 18:05"], "%d.%m.%Y %H:%M"),
        (["07/04/2024 08:15:00 PM", "07/14/2024 08:15:00 PM"], "%m/%d/%Y %I:%M:%S %p"),
        (["10/Oct/2000:13:55:36 -0700", "11/Oct/2000:13:55:36 -0700"], "%d/%b/%Y:%H:%M:%S %z"),
        (["Mon Jan 01 00:00:00 +0000 2024", "Tue Jan 02 00:00:00 +0000 2024"], "%a %b %d %H:%M:%S %z %Y"),
        (["20240131", "20240201"], "%Y%m%d"),
        (["1700000000", "1700000001"], "epoch s"),
        (["1700000000123", "1700000001123"], "epoch ms"),
        (["1700000000123456", "1700000001123456"], "epoch us"),
        (["1700000000123456789", "1700000001123456789"], "epoch ns"),
        (["1700000000.5", "1700000001.25"], "epoch s"),
    ],
)
def test_times_are_recognised_however_they_are_written(tmp_path: Path, values: list[str], expected: str) -> None:
    looked = look(csv_file(tmp_path, "a.csv", "n;sold_at", *(f"{n};{value}" for n, value in enumerate(values))))
    assert looked.event_time == "sold_at"
    assert times(looked) == {"sold_at": expected}


def test_a_time_that_may_be_either_is_said_and_the_author_decides(verb: Verb, tmp_path: Path) -> None:
    file = csv_file(tmp_path, "a.csv", "n,at", "1,05/06/2025", "2,02/03/2025", "3,05/04/2025")
    (field,) = [f for f in look(file).fields if f.name == "at"]
    assert (field.format, field.note) == ("%m/%d/%Y", "or is it %d/%m/%Y? --time-format '%d/%m/%Y'")
    assert times(look(file, ["%d/%m/%Y"])) == {"at": "%d/%m/%Y"}
    assert "\n  at: or is it %d/%m/%Y? --time-format '%d/%m/%Y'\n" in init_from(verb, file)[0]


def init_from(verb: Verb, data: Path | str, *more: str) -> tuple[str, dict[str, Any]]:
    """What is said, and the document with the trial."""
    said = verb("init", "said", "--from", str(data), *more)
    assert said.exit_code == 0, said.stderr
    return said.stdout, json.loads(verb("init", "made", "--from", str(data), *more, "--json").stdout)


def test_one_bad_time_in_a_thousand_is_one_row_set_aside(verb: Verb, tmp_path: Path) -> None:
    good = [f"2024-01-01T{n // 60:02d}:{n % 60:02d}:00,{n}" for n in range(999)]
    text, document = init_from(verb, csv_file(tmp_path, "a.csv", "at,n", *good[:500], "soon,x", *good[500:]))
    assert document["trial"] == {
        "rows": 1000,
        "set_aside": 1,
        "examples": [["a.csv", 502, document["trial"]["examples"][0][2]]],
        "unreadable": "",
        "event_times": [1_704_067_200_000, 1_704_127_080_000],
        "behind": 0,
    }
    assert "\nat is the event time: 2024-01-01T00:00:00Z to 2024-01-01T16:38:00Z\n" in text
    assert "of all 1,000 rows 1 would be set aside\n  a.csv row 502: at: expected a valid datetime" in text
    assert "at     EventTime" in text


def test_rows_in_no_order_are_all_on_time(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"2024-01-{day:02d}T12:00:00Z,{day}" for day in (9, 3, 20, 1, 31, 15)]
    text, document = init_from(verb, csv_file(tmp_path, "a.csv", "at,n", *rows))
    assert "  not in order: the watermark waits for rows 19 days behind the newest one" in text
    monkeypatch.chdir(document["folder"])
    assert verb("land", "a").exit_code == 0
    assert "daily_a 6 rows; late: 0 taken in, 0 dropped" in verb("run", "daily_a").stdout


def test_one_row_in_a_hundred_that_is_far_behind_is_not_waited_for(verb: Verb, tmp_path: Path) -> None:
    rows = [f"2024-01-01T{n // 60:02d}:{n % 60:02d}:00Z,{n}" for n in range(200)]
    _, document = init_from(verb, csv_file(tmp_path, "a.csv", "at,n", *rows, "1900-01-01T00:00:00Z,0"))
    assert document["trial"]["behind"] < 60_000


def test_a_time_of_the_year_1_among_others_is_seen(verb: Verb, tmp_path: Path) -> None:
    text, _ = init_from(verb, csv_file(tmp_path, "a.csv", "at,n", "0001-01-01T00:00:00Z,1", "2024-01-01T00:00:00Z,2"))
    assert "at is the event time: 0001-01-01T00:00:00Z to 2024-01-01T00:00:00Z" in text


def test_texts_that_mean_null_large_numbers_and_nan_keep_their_columns_numbers(tmp_path: Path) -> None:
    rows = [
        f"2024-01-01T00:00:{n:02d},{'N/A' if n % 3 else n},{10**19 + n},{'NaN' if n % 2 else 'inf'}" for n in range(9)
    ]
    looked = look(csv_file(tmp_path, "a.csv", "at,price,id,ratio", *rows))
    assert kinds(looked) == {"at": "datetime", "price": "int | None", "id": "Decimal", "ratio": "float"}
    assert (looked.connector.null_values, looked.connector.missing_values) == (("",), ("N/A",))


def test_a_text_that_could_mean_null_stays_text_and_is_said(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"2024-01-01T00:00:{n:02d},{'NA' if n % 3 else 'DE'},{n if n % 2 else 'NA'}" for n in range(12)]
    text, document = init_from(verb, csv_file(tmp_path, "a.csv", "at,country,n", *rows))
    assert '  country: \'NA\' (8) stays text; as null: Files(null_values=("", "NA"))\n' in text
    assert "  n: 'NA' (6) is read as null, by missing_values in assets/a.py\n" in text
    monkeypatch.chdir(document["folder"])
    said = verb("land", "a")
    assert (said.exit_code, "read as null" in said.stdout) == (0, False)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("phone", ["+4930123456", "+49 30 1234567"]),
        ("phone", ["4930123456", "+4930123456"] + ["4930123457"] * 200),
        ("zip", ["01067"] + ["10115"] * 200),
        ("id", ["000123", "000124"]),
        ("commit", ["1234567", "12e4567"]),
        ("digits", ["0.1234567890123456789", "0.5"]),
        ("wide", ["12345678901234567.89", "0.5"]),
        ("version", ["1.9", "1.10"]),
        ("zipCode", ["10115", "20095"]),
        ("PLZ", ["10115", "20095"]),
        ("units", ["2", "2", '"2,2"']),
        ("country", ["NA", "DE"]),
    ],
)
def test_a_text_that_a_number_would_alter_stays_text(tmp_path: Path, name: str, values: list[str]) -> None:
    assert kinds(look(csv_file(tmp_path, "a.csv", f"{name},n", *(f"{value},1" for value in values))))[name] == "str"


@pytest.mark.parametrize("values", [["+3", "-2", "0"], ["1e-05", "2.5E+03"], ["0.30000000000000004", "1"]])
def test_a_number_that_keeps_its_value_is_a_number(tmp_path: Path, values: list[str]) -> None:
    looked = look(csv_file(tmp_path, "a.csv", "x,n", *(f"{value},1" for value in values)))
    assert kinds(looked)["x"] in {"int", "float"}


def test_texts_of_typed_columns_and_of_json_stay_texts(tmp_path: Path) -> None:
    pq.write_table(pa.table({"zip": ["10115"], "at": ["2024-01-01T00:00:00Z"], "n": [1]}), tmp_path / "a.parquet")
    assert kinds(look(tmp_path / "a.parquet")) == {"zip": "str", "at": "datetime", "n": "int"}
    (tmp_path / "a.jsonl").write_text('{"n": "7", "x": 12345678901234567.89, "b": "true"}\n' * 2)
    looked = look(tmp_path / "a.jsonl")
    assert kinds(looked) == {"n": "str", "x": "Decimal", "b": "str"}
    assert looked.fields[1].digits == (38, 2)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_a_spreadsheets_export(verb: Verb, tmp_path: Path, encoding: str) -> None:
    rows = [f"{n + 1:02d}.02.2024 10:00;Köln;1.{n:03d},5" for n in range(20)]
    (tmp_path / "a.csv").write_bytes("\r\n".join(["sep=;", "Datum;Ort;Umsatz €", *rows, ""]).encode(encoding))
    _, document = init_from(verb, tmp_path / "a.csv")
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (20, 0)
    connector = look(tmp_path / "a.csv").connector
    assert (connector.delimiter, connector.decimal, connector.skip) == (";", ",", 1)


def test_a_folder_and_a_glob_and_what_is_beside(verb: Verb, tmp_path: Path) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    for day in (1, 2):
        csv_file(folder, f"{day}.csv", "at,n", f"2024-01-0{day}T00:00:00,{day}")
    (folder / "more.parquet").write_bytes(b"")
    text, document = init_from(verb, folder)
    assert (document["source"], document["trial"]["rows"]) == ("days", 2)
    assert f"not taken: 1 files of other kinds; these are {folder}/*.csv" in text
    assert look(folder / "*.csv").connector.path == f"{folder}/*.csv"
    assert look(folder / "1.csv").connector.path == f"{folder}/1[.]csv"


def test_fields_between_spaces_have_their_columns(tmp_path: Path) -> None:
    rows = [f"{n} 2 {n / 4:.2f}" for n in range(9)]
    looked = look(csv_file(tmp_path, "a.csv", *rows))
    assert (looked.connector.delimiter, looked.connector.header) == (" ", ("column_1", "column_2", "column_3"))
    assert list(kinds(look(csv_file(tmp_path, "b.csv", "a b c", *rows)))) == ["a", "b", "c"]
    prose = csv_file(tmp_path, "c.csv", "said", "a word or two", "and then a few more", "well")
    assert kinds(look(prose)) == {"said": "str"}


def test_no_header_lines_before_it_and_a_name_twice(tmp_path: Path) -> None:
    rows = [f"2024-01-01T00:00:{n:02d},s,{n}" for n in range(9)]
    assert look(csv_file(tmp_path, "a.csv", *rows)).connector.header == ("column_1", "column_2", "column_3")
    looked = look(csv_file(tmp_path, "b.csv", "Report", "of today", "", "at,who,n", *rows))
    assert (looked.connector.skip, list(kinds(looked))) == (3, ["at", "who", "n"])
    looked = look(csv_file(tmp_path, "c.csv", "at,who,who", *rows))
    assert (looked.connector.skip, looked.connector.header) == (1, ("at", "who", "who_2"))
    assert look(csv_file(tmp_path, "b.csv", "v1,v2,,", "ham,hello,,", "spam,win,,")).connector.header == (
        "v1",
        "v2",
        "column_3",
        "column_4",
    )


def test_documents_become_nested_contracts(verb: Verb, tmp_path: Path) -> None:
    documents = [
        {
            "sha": f"{n}",
            "commit": {"author": {"name": "a", "date": f"2024-01-01T00:00:{n:02d}Z"}, "parents": [{"sha": "x"}]},
            "labels": {f"k{(n + i) % 40}": i for i in range(3)},
            "mixed": n if n % 2 else {"n": n},
            "none": None,
        }
        for n in range(40)
    ]
    (tmp_path / "a.json").write_text(json.dumps(documents, indent=1))
    _, document = init_from(verb, tmp_path / "a.json")
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (40, 0)
    looked = look(tmp_path / "a.json")
    assert kinds(looked) == {
        "date_": "datetime",
        "sha": "str",
        "commit": "Commit",
        "labels": "dict[str, int | None]",
        "mixed": "JsonText",
        "none": "JsonText | None",
    }
    assert looked.fields[0].path == ("commit", "author", "date")
    assert [model.name for model in looked.models] == ["Author", "Parent", "Commit"]


@pytest.mark.parametrize(
    ("name", "content", "code", "fix"),
    [
        (
            "a.json",
            '{"total": 2, "items": [{"a": 1}, {"a": 2}]}',
            "CONNECTOR-084",
            "jq -c '.items[]' FILE > items.jsonl",
        ),
        ("a.xlsx", "x", "CONNECTOR-081", "Save the sheet as CSV."),
        ("a.json", '[{"a": 1}', "CONNECTOR-082", "Mend the file"),
        ("a.log", "just some words", "CONNECTOR-081", r"--pattern '(?P<at>\S+) (?P<level>\w+) (?P<message>.*)'"),
        ("a.arrow", "ARROW1", "CONNECTOR-081", "Convert it to CSV"),
        ("a.csv.gz", "no gzip", "CONNECTOR-082", "Mend the file"),
    ],
)
def test_what_cannot_be_looked_at_says_what_to_do(tmp_path: Path, name: str, content: str, code: str, fix: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FloodmarkError) as caught:
        look(tmp_path / name)
    assert caught.value.code == code
    assert fix in caught.value.fix


def test_a_file_without_an_ending_is_the_only_one_that_lands(verb: Verb, tmp_path: Path) -> None:
    for name in ("events", "events2"):
        (tmp_path / name).write_text('{"at": "2024-01-01T00:00:00Z", "n": 1}\n{"at": "2024-01-01T00:00:01Z", "n": 2}\n')
    _, document = init_from(verb, tmp_path / "events")
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (2, 0)


def test_a_time_format_that_is_none_is_refused_before_anything_is_made(verb: Verb, tmp_path: Path) -> None:
    file = csv_file(tmp_path, "a.csv", "at", "2024-01-01")
    result = verb("init", "made", "--from", str(file), "--time-format", "dayfirst")
    assert "DEFINITION-150" in result.stderr
    assert not (tmp_path / "made").exists()


def test_an_operator_is_registered_where_it_is_written_and_validate_says_what_run_refuses(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_modules: None
) -> None:
    init_from(verb, csv_file(tmp_path, "sales.csv", "at,shop", "2024-01-01T00:00:00Z,a"))
    monkeypatch.chdir(tmp_path / "made")
    module = Path("operators/sales.py")
    more = """

@operator
def odd(sales: Stream[SalesRow]) -> Stream:
    \"\"\"Sail has no such function.\"\"\"
    return sales.select(n="soundex(shop) || luhn_check(shop) || typeof(map('a', 1))")
"""
    module.write_text(module.read_text() + more)
    result = json.loads(verb("validate", "--json").stdout)
    assert [one["name"] for one in result["operators"]] == ["daily_sales", "odd"]
    (warning,) = [one for one in result["warnings"] if "CAPABILITY-031" in one]
    assert "operator 'odd'" in warning
    assert "floodmark run odd --engine spark" in warning


def test_validate_says_which_expectation_the_engine_refuses() -> None:
    class Sale(Contract):
        at: EventTime
        cents: int

    wanted = Expectation("column_median_to_be_between", column="cents", max_value=100)
    sales = Source("sales", contract=Sale, connector=Rows([]), watermark=Ascending())

    @operator(inputs={"sales": sales})
    def dear(sales: Stream[Sale]) -> Stream:
        return sales.filter("cents > 10")

    for engine, found in (("embedded", 1), ("spark", 0)):
        asset = operator_asset(dear, expectations=[wanted])
        workspace = Workspace(sources=[sales], operators=[asset], settings=Settings(engine=engine))
        refused = _refused_in(workspace)
        assert len(refused) == found
        assert all("CAPABILITY-037 expectation 'column_median_to_be_between_cents'" in one for one in refused)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1544712660000000000", "1544712661000000000"], "epoch ns"),
        ([1544712660000000000, 1544712661000000000], "epoch ns"),
        (["1544712660000000", "1544712661000000"], "epoch us"),
        ([1544712660000, 1544712661000], "epoch ms"),
        (["1544712660", "1544712661"], "epoch s"),
        (["1544712660000000000", "1544712661000"], None),
        (["1544712660000000000", "soon"], None),
    ],
)
def test_numbers_since_1970_in_json_are_times_by_the_magnitude_of_all(
    verb: Verb, tmp_path: Path, values: list[Any], expected: str | None
) -> None:
    lines = [
        json.dumps({"timeUnixNano": value, "body": {"stringValue": "x"}, "droppedAttributesCount": 1})
        for value in values
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    looked = look(tmp_path / "a.jsonl")
    assert times(looked) == ({"timeUnixNano": expected} if expected else {})
    _, document = init_from(verb, tmp_path / "a.jsonl")
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (2, 0)


def test_nanoseconds_that_are_left_out_are_said(verb: Verb, tmp_path: Path) -> None:
    rows = ["2024-04-21T09:19:38.008550852Z,1713691178008550852", "2024-04-21T09:19:39.1Z,1713691179008550852"]
    text, _ = init_from(verb, csv_file(tmp_path, "a.csv", "at,n", *rows))
    assert "  at: to the microsecond: the digits behind are left out\n" in text
    (field,) = [f for f in look(csv_file(tmp_path, "b.csv", "x,ts", "1,1713691178008550852")).fields if f.name == "ts"]
    assert (field.format, field.note) == ("epoch ns", "to the microsecond: the digits behind are left out")


def test_numbers_since_1970_deeper_in_documents_are_times(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"span": {"startTimeUnixNano": "1544712660000000000"}, "n": 1}\n' * 2)
    looked = look(tmp_path / "a.jsonl")
    assert (looked.event_time, looked.fields[0].format) == ("startTimeUnixNano", "epoch ns")


def test_amounts_are_decimals_with_their_digits(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        ("1,000.50", "1.000,50 EUR", "$ -3.20", "(12.00)", "5 EUR", "1.5", "1'000", "3,5"),
        ("-3", "2,00 EUR", "$1,234,567.00", "7-", "6 USD", "2.25", "12", "4,25"),
    ]
    names = ["a", "b", "c", "d", "e", "f", "g", "h"]
    lines = [f"2024-01-0{n}T00:00:00Z;" + ";".join(row) for n, row in enumerate(rows, start=1)]
    file = csv_file(tmp_path, "a.csv", "at;" + ";".join(names), *lines)
    looked = look(file)
    assert kinds(looked) == {
        "at": "datetime",
        **dict.fromkeys("abcd", "Decimal"),
        "e": "str",
        "f": "float",
        "g": "Decimal",
        "h": "float",
    }
    assert [f.digits for f in looked.fields[1:5]] == [(18, 2)] * 4
    text, document = init_from(verb, file)
    assert "  e: several currencies (EUR, USD), so the amounts stay text\n" in text
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (2, 0)
    contract = runpy.run_path(str(Path(document["folder"]) / "operators" / "a.py"))["ARow"]
    monkeypatch.chdir(document["folder"])
    assert verb("land", "a").exit_code == 0
    first, second = (
        contract.model_validate({"at": "2024-01-01", **dict(zip(names, row, strict=True))}) for row in rows
    )
    assert list(first.model_dump().values())[1:] == [
        Decimal("1000.50"), Decimal("1000.50"), Decimal("-3.20"), Decimal("-12.00"), "5 EUR", 1.5, Decimal(1000), 3.5,
    ]  # fmt: skip
    assert (second.c, second.d) == (Decimal("1234567.00"), Decimal(-7))


@pytest.mark.parametrize("values", [["1,000", "2,500"], ["1.000", "2.500", "7"], ["$1,000", "$2,000"]])
def test_an_amount_that_can_be_read_in_two_ways_is_not_guessed(verb: Verb, tmp_path: Path, values: list[str]) -> None:
    rows = [f"2024-01-0{n};{value}" for n, value in enumerate(values, start=1)]
    file = csv_file(tmp_path, "a.csv", "at;amount", *rows)
    said = verb("init", "made", "--from", str(file))
    assert said.exit_code == 1
    assert "CONNECTOR-200" in said.stderr
    assert f"'{values[0]}' in column 'amount', which is 1" in said.stderr
    assert not (tmp_path / "made").exists()
    readings = set()
    for sign in (".", ","):
        looked = look(file, decimal=sign)
        (field,) = [f for f in looked.fields if f.name == "amount"]
        readings.add((field.type, field.digits))
        made = verb("init", f"made{ord(sign)}", "--from", str(file), "--decimal", sign, "--json")
        assert json.loads(made.stdout)["trial"]["set_aside"] == 0
    assert len(readings) == 2


def test_decimal_commas_between_commas_and_blanks(verb: Verb, tmp_path: Path) -> None:
    rows = [f'2024-01-0{n},"{n},50"," ","-{n}.000,25"' for n in range(1, 5)]
    file = csv_file(tmp_path, "a.csv", "day,gross,tax,net", *rows, '2024-01-05,"7,00",3,"1,00"')
    looked = look(file)
    assert (looked.connector.decimal, looked.connector.missing_values) == (".", (" ",))
    assert kinds(looked) == {"day": "date", "gross": "float", "tax": "int | None", "net": "Decimal"}
    _, document = init_from(verb, file)
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (5, 0)


def test_a_text_with_commas_below_titles_has_its_own_delimiter(tmp_path: Path) -> None:
    titles = ["Umsatzanzeige;Datei erstellt am: 09.12.2025", "", "IBAN;DE00", "Saldo;66,31;EUR", ""]
    titles += ["In der Datei sind alle Posten, auch vorgemerkte, nicht die anderen.", ""]
    rows = [f"0{n}.12.2025;Firma, Ort;Karte {n};-{n},98;EUR;1.{n}00,31;EUR" for n in range(1, 6)]
    looked = look(csv_file(tmp_path, "a.csv", *titles, "Buchung;Name;Text;Betrag;Waehrung;Saldo;Einheit", *rows))
    assert (looked.connector.delimiter, looked.connector.skip) == (";", 7)
    assert [f.type for f in looked.fields] == ["date", "str", "str", "float", "str", "Decimal", "str"]


def test_other_columns_decide_what_one_leaves_open(tmp_path: Path) -> None:
    assert kinds(look(csv_file(tmp_path, "a.csv", "amount;x", "1.000;2.5", "3.000;1.25")))["amount"] == "float"
    looked = look(csv_file(tmp_path, "b.csv", "amount;x", "1.000;2,5", "3.000;1,25"))
    assert (kinds(looked), looked.connector.decimal) == ({"amount": "Decimal", "x": "float"}, ",")
    assert kinds(look(csv_file(tmp_path, "c.csv", "lat;lon", "52.123;13.405"))) == {"lat": "float", "lon": "float"}


def test_names_beyond_ascii_are_kept(verb: Verb, tmp_path: Path) -> None:
    names = ["Empfänger", "Größe (cm)", "日付", "Cafe\u0301", "№", "Straße", "ﬁn"]
    file = csv_file(tmp_path, "Käufe Köln.csv", ";".join(names), *[";".join("abcdefg")] * 2)
    looked = look(file)
    assert looked.source == "kaeufe_koeln"
    assert [f.name for f in looked.fields] == ["Empfänger", "größe_cm", "日付", "café", "no", "Straße", "fin"]
    _, document = init_from(verb, file)
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (2, 0)


COMBINED = '1.2.3.4 - - [10/Oct/2000:13:55:3{n} -0700] "GET /a{n} HTTP/1.1" 200 {size} "-" "Mozilla/5.0"'


def test_logs_of_web_servers_and_logfmt_are_recognised(verb: Verb, tmp_path: Path) -> None:
    lines = [COMBINED.format(n=n, size="-" if n else n) for n in range(9)]
    looked = look(csv_file(tmp_path, "access.log", *lines))
    assert (looked.connector.format, looked.connector.pattern, looked.event_time) == ("text", "combined", "at")
    assert kinds(looked)["bytes"] == "int | None"
    common = csv_file(
        tmp_path, "common.log.gz", *(line[: -len(' "-" "Mozilla/5.0"')] for line in lines), "no such line"
    )
    text, document = init_from(verb, common)
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (10, 1)
    assert "  bytes: '-' (8) is read as null, by missing_values in assets/common.py\n" in text
    rows = [f'at=2024-01-01T00:00:0{n}Z level=info n={n} msg="it is {n}"' for n in range(9)]
    looked = look(csv_file(tmp_path, "app.txt", *rows))
    assert kinds(looked) == {"at": "datetime", "level": "str", "n": "int", "msg": "str"}
    assert looked.connector.format == "logfmt"


def test_lines_of_a_pattern_of_the_authors_own(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = csv_file(tmp_path, "a.log", "2024-01-01T00:00:00Z INFO it's", "  and more", "2024-01-01T00:00:01Z WARN \\b")
    pattern = r"(?P<at>\S+) (?P<level>[A-Z]+) (?P<message>.*)"
    _, document = init_from(verb, file, "--pattern", pattern)
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (3, 1)
    monkeypatch.chdir(document["folder"])
    assert "2 rows in 1 commit, 1 quarantined" in verb("land", "a").stdout
    said = verb("init", "other", "--from", str(file), "--pattern", "(?P<at>[0-9]+)")
    assert (said.exit_code, "CONNECTOR-203" in said.stderr) == (1, True)


TITLES = [
    (["Umsatz 2024"], 1),
    (["Umsatz, Köln; 2024"], 1),
    (["", "Umsatz 2024", ""], 3),
    (["Umsatz 2024;;", ";;"], 2),
    (["Umsatz;2024;", "Stand:;01.02.2024;", ""], 3),
    (['"Umsatz', 'von 2024";;'], 2),
    (["Report", "Created by: me, you and others", "Filter: none; sorted: yes", ""], 4),
]


@pytest.mark.parametrize(("titles", "skip"), TITLES)
def test_lines_of_a_title_above_the_header(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, titles: list[str], skip: int
) -> None:
    rows = [f"0{n}.02.2024 10:00;Köln;{n},5" for n in range(1, 8)]
    file = csv_file(tmp_path, "a.csv", *titles, "Datum;Ort;Umsatz", *rows)
    looked = look(file)
    assert (looked.connector.skip, looked.connector.header) == (skip, ())
    assert kinds(looked) == {"Datum": "datetime", "Ort": "str", "Umsatz": "float"}
    _, document = init_from(verb, file)
    assert (document["trial"]["rows"], document["trial"]["set_aside"]) == (7, 0)
