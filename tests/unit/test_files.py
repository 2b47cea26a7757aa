"""Files as people send them: each row lands or is set aside with a reason; the digest is that of the rows that were read."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Files, Source
from floodmark.connectors.judging.validation import Rules
from floodmark.connectors.readers import files
from floodmark.connectors.readers.files import FileReader
from floodmark.connectors.unit import Unreadable
from floodmark.core.errors import ConnectorError

T = "2025-01-01T00:00:00Z"
NULS = "\0" * 50
BROKEN, OTHER_WIDTH = "expected a CSV record, got a broken one", "expected 3 fields as in the header, got"


class Reading(Contract):
    """A value of a key."""

    at: EventTime
    k: str
    v: int | None = None


def read(
    folder: Path, name: str, content: bytes
) -> tuple[list[tuple[str, int | None]], list[tuple[int, str]], tuple[int, str]]:
    """(key and value of good rows, line and reason of the others, size and digest) of a file."""
    (folder / name).write_bytes(content)
    source = Source(
        "readings", contract=Reading, connector=Files(str(folder)), watermark=BoundedOutOfOrderness("1 minute")
    )
    reader = FileReader(source.connector, Reading, "readings")
    (unit,) = reader.pending({}).units
    opened = reader.open(unit)
    batches = list(Rules(source, 10**13).batches(opened.records(), opened.form))
    good = [(row["k"], row["v"]) for batch in batches for row in batch.rows.to_pylist()]
    return good, [(row.position, row.reason) for batch in batches for row in batch.broken], opened.fingerprint()


@pytest.mark.parametrize(
    ("text", "good", "broken"),
    [
        (f"\ufeffat,k,v\n{T},a,1\n", [("a", 1)], []),
        (f'\ufeff"at","k","v"\n"{T}","a","1"\n', [("a", 1)], []),
        (f"at,k,v\r\n{T},a,1\r\n{T},b,2", [("a", 1), ("b", 2)], []),
        (f'at,k,v\n{T},"a\nb",1\n{T},"c\r\nd",2\n', [("a\nb", 1), ("c\r\nd", 2)], []),
        (f"at,k,v\n{T},a\n{T},b,2,3\n\n{T},c,3\n", [("c", 3)], [(2, f"{OTHER_WIDTH} 2"), (3, f"{OTHER_WIDTH} 4")]),
        (f"at,k,v\n{T},a\0b,1\n{T},c,2\n", [("a\0b", 1), ("c", 2)], []),
        (f"at,k,v\n{NULS}\n{T},c,2\n", [("c", 2)], [(2, f"{OTHER_WIDTH} 1")]),
        (f'at,k,v\n{T},"a,1\n{T},b,2\n', [("b", 2)], [(2, BROKEN)]),
        (f'at,k,v\n{T},"a"b,1\n{T},c,2\n', [("c", 2)], [(2, BROKEN)]),
    ],
)
def test_each_row_of_a_csv_lands_or_is_set_aside_with_its_line(
    tmp_path: Path, text: str, good: list[tuple[str, int]], broken: list[tuple[int, str]]
) -> None:
    rows, aside, (size, digest) = read(tmp_path, "a.csv", text.encode())
    assert rows == good
    assert [position for position, _ in aside] == [position for position, _ in broken]
    for (_, reason), (_, begin) in zip(aside, broken, strict=True):
        assert reason.startswith(begin)
    assert (size, digest) == (len(text.encode()), hashlib.sha256(text.encode()).hexdigest())


def test_another_delimiter_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match=r"CONNECTOR-010 .* Files\(\.\.\., delimiter=';'\)"):
        read(tmp_path, "a.csv", f"at;k;v\n{T};a;1\n".encode())


def test_a_header_that_cannot_be_read_sets_the_file_aside(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="UTF-16"):
        read(tmp_path, "a.csv", "at,k,v\n".encode("utf-16"))


def parquet(key: str) -> bytes:
    sink = io.BytesIO()
    at = pa.array([1735689600000000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "k": [key], "v": [1]}), sink)
    return sink.getvalue()


@pytest.mark.parametrize("in_memory", [1, 64 << 20])
def test_the_digest_of_a_parquet_file_is_that_of_the_rows_even_when_it_is_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    read_columns, first = files.parquet_columns, parquet("first")

    def replaced_meanwhile(file: object) -> object:
        (tmp_path / "new").write_bytes(parquet("second"))
        (tmp_path / "new").replace(tmp_path / "a.parquet")
        return read_columns(file)

    monkeypatch.setattr(files, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(files, "parquet_columns", replaced_meanwhile)
    rows, aside, (size, digest) = read(tmp_path, "a.parquet", first)
    assert (rows, aside) == ([("first", 1)], [])
    assert (size, digest) == (len(first), hashlib.sha256(first).hexdigest())
