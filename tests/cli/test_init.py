"""Scaffolding, with the sample and from data."""

from __future__ import annotations

import csv
import gzip
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.cli.inference import Looked, look
from floodmark.cli.invocation import Invocation
from floodmark.cli.loading import open_workspace
from floodmark.cli.scaffold import scaffold
from floodmark.core.errors import FloodmarkError
from floodmark.engines.embedded import server

from .conftest import Verb


@pytest.fixture(autouse=True)
def no_warming(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jars are there; a test of a scaffold needs none."""
    monkeypatch.setattr("floodmark.engines.spark.setup.jars.warm", lambda: None)


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
        "made shop: 16 files\n"
        "dev runs on the embedded engine, which needs no Java, prod on Spark: resources/settings.py\n"
        "next:\n  cd shop\n  floodmark land orders\n  floodmark run hourly_sales\n"
        "  floodmark run hourly_sales --unbounded --until-caught-up\n"
    )
    assert (tmp_path / "shop" / ".gitignore").is_file()
    assert not [file for file in (tmp_path / "shop").rglob("*") if file.is_file() and "{{" in file.read_text()]


def test_init_as_json(verb: Verb, tmp_path: Path) -> None:
    document = json.loads(verb("init", "shop", "--json").stdout)
    assert document["folder"] == str(tmp_path / "shop")
    assert (document["source"], document["operator"], len(document["files"])) == ("orders", "hourly_sales", 16)


def test_dev_is_embedded_and_prod_on_spark_and_both_on_spark_without_the_packages(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_modules: None
) -> None:
    for name, lacking in (("with", []), ("without", ["pysail"])):
        monkeypatch.setattr(server, "missing", lambda lacking=lacking: lacking)
        result = verb("init", name, "--json")
        assert json.loads(result.stdout)["engine"] == ("spark" if lacking else "embedded")
        settings = runpy.run_path(str(tmp_path / name / "resources" / "settings.py"))["settings"]
        assert [settings(one).engine for one in ("dev", "prod")] == ["spark" if lacking else "embedded", "spark"]
    assert "pip install 'floodmark[embedded]'" in verb("init", "said").stdout


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
    inbox = Path(__file__).parents[2] / "src/floodmark/cli/template/shop/inbox/orders"
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
    assert (looked.delimiter, list(kinds(looked))) == (separator, ["a", "b", "c"])


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
    assert kinds(looked) == {"at": "datetime", "b": "list[int]"}
    assert (looked.event_time, looked.left_out) == ("at", ("'c' (struct<x: int64>)",))
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
        ("a.csv", "", "CONNECTOR-082"),
        ("a.parquet", "no parquet", "CONNECTOR-082"),
    ],
)
def test_data_that_cannot_be_looked_at(tmp_path: Path, name: str, content: str, code: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FloodmarkError) as caught:
        look(tmp_path / name)
    assert caught.value.code == code


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FloodmarkError, match=r"CONNECTOR-080 --from: expected a file, got no file .*nope.csv"):
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
    delimiter = looked.delimiter or ","
    names = rows[0].split(delimiter)
    values: dict[str, Any] = {n: text or None for n, text in zip(names, rows[1].split(delimiter), strict=True)}
    source.contract.model_validate(values)
    lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,E,W,I", "--line-length", "160", "."]
    done = subprocess.run(lint, cwd=tmp_path / "made", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
