"""The search for a key: in columns, nested values, archives, texts and bytes; a number counts only where its column or a word is."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.lake.forgetting.keys import ForgottenKey
from floodmark.lake.forgetting.search import search

ANN, NUMBER = "person=ann@example.org", "number=1004"


def holding(folder: Path, key: str) -> tuple[str, ...]:
    return search(str(folder), [ForgottenKey.parse(key)]).holding


def parquet(folder: Path, **columns: list[object]) -> None:
    pq.write_table(pa.table(columns), folder / "rows.parquet")


@pytest.mark.parametrize(
    ("key", "columns", "holds"),
    [
        (ANN, {"person": ["bob", "ann@example.org", None]}, True),
        (ANN, {"other": ["to ann@example.org, today"]}, True),
        (ANN, {"nested": [{"who": ["ann@example.org"]}]}, True),
        (ANN, {"blob": [b"\x00\x01ann@example.org\x02"]}, True),
        (ANN, {"person": ["joann@example.org", "ann@example.organ"]}, False),
        (NUMBER, {"number": [7, 1004]}, True),
        (NUMBER, {"amount": [1004]}, False),
        (NUMBER, {"nested": [{"number": 1004}]}, True),
        (NUMBER, {"raw": ["2025-03-01,1004,DE"]}, True),
        (NUMBER, {"raw": ["2025-03-01,11004,DE", "10045", "1004.5"]}, False),
        (NUMBER, {"raw": ['{"number": 1004, "size": 7}']}, True),
        (NUMBER, {"raw": ['{"number": 7, "size": 1004}']}, False),
    ],
)
def test_rows(tmp_path: Path, key: str, columns: dict[str, list[object]], holds: bool) -> None:
    parquet(tmp_path, **columns)
    assert holding(tmp_path, key) == (("rows.parquet",) if holds else ())


@pytest.mark.parametrize(
    ("key", "text", "holds"),
    [
        (ANN, b"\xff\xfebinaryann@example.orgmore", True),
        (ANN, b"nobody", False),
        (NUMBER, json.dumps({"add": {"stats": json.dumps({"minValues": {"number": 1004}})}}).encode(), True),
        (NUMBER, json.dumps({"add": {"size": 1004, "stats": json.dumps({"numRecords": 1004})}}).encode(), False),
        (NUMBER, b"number=10045", False),
    ],
)
def test_texts_and_bytes(tmp_path: Path, key: str, text: bytes, holds: bool) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "some.file").write_bytes(text)
    assert holding(tmp_path, key) == (("inside/some.file",) if holds else ())


def test_archives_and_names_of_files_are_searched_and_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", "ann@example.org " * 100)
    (tmp_path / "ann@example.org.csv").write_text("")
    state = tmp_path / "checkpoint" / "state" / "0"
    state.mkdir(parents=True)
    (state / "1.sst").write_bytes(b"compressed")
    found = search(str(tmp_path), [ForgottenKey.parse(ANN)])
    assert found.holding == ("ann@example.org.csv", "archive")
    assert found.unread == ("checkpoint/state/0/1.sst",)
    assert found.files == 3
