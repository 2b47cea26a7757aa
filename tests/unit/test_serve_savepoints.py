"""``floodmark serve``: answers as of a savepoint, and many results at once."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_lake
from asked import Asked, asked, key, small, totals
from small_lake import row

from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.spec.values.schema import RETRACTION


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two micro-batches: 'a' is 10, 'b' is 2, 'c' was retracted."""
    return small_lake.make(tmp_path / "lake")


@pytest.fixture
def ask(lake: Lake, tmp_path: Path) -> Iterator[Asked]:
    """A service over the lake."""
    with asked(small(tmp_path), lake, tmp_path / "copies") as service:
        service.until("totals", 1)
        yield service


@pytest.mark.feature("U1")
def test_an_answer_as_of_a_savepoint_stays_what_it_was(ask: Asked, lake: Lake) -> None:
    saved = savepoints.create("totals", lake).id
    small_lake.batch(lake, 2, [row("a", 11, 7), row("d", 4, 8)])
    ask.until("totals", 2)
    status, answer = ask.get("/v1/outputs/totals", [("as_of", saved)])
    assert (status, totals(answer)) == (200, [("a", 10), ("b", 2)])
    assert (answer["as_of"]["savepoint"], answer["as_of"]["commit"], answer["as_of"]["batch"]) == (saved, 1, 1)
    assert totals(ask.get("/v1/outputs/totals", [*key("d"), ("as_of", saved)])[1]) == []
    assert totals(ask.get("/v1/outputs/totals", key("a"))[1]) == [("a", 11)]


def test_a_savepoint_that_is_not_there_or_was_removed_is_named(ask: Asked, lake: Lake) -> None:
    saved = savepoints.create("totals", lake)
    status, answer = ask.get("/v1/outputs/totals", [("as_of", saved.id[:-1])])
    assert (status, answer["error"]["code"]) == (404, "SERVE-025")
    assert f"Did you mean '{saved.id}'?" in answer["error"]["fix"]
    remove(saved.path)
    assert ask.get("/v1/outputs/totals", [("as_of", saved.id)])[1]["error"]["code"] == "SERVE-025"


def test_a_savepoint_whose_table_was_made_anew_or_cleaned_is_gone(ask: Asked, lake: Lake) -> None:
    saved = savepoints.create("totals", lake).id
    files = list(Path(lake.output("totals")).glob("*.parquet"))
    for file in files:
        file.rename(file.with_suffix(".aside"))
    status, answer = ask.get("/v1/outputs/totals", [("as_of", saved)])
    assert (status, answer["error"]["code"]) == (410, "SERVE-026")
    remove(lake.output("totals"))
    small_lake.batch(lake, 2, [row("a", 11, 7)])
    status, answer = ask.get("/v1/outputs/totals", [("as_of", saved)])
    assert (status, answer["error"]["code"]) == (410, "SERVE-026")


def read(content: bytes, kind: str) -> list[dict[str, Any]]:
    """The rows of a bulk answer."""
    if kind == "json":
        return [json.loads(line) for line in content.splitlines()]
    if kind == "arrow":
        with pa.ipc.open_stream(content) as reader:
            table = reader.read_all()
    else:
        table = pq.read_table(io.BytesIO(content))
    assert json.loads(table.schema.metadata[b"floodmark.as_of"])["commit"] in {1, 3}
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@pytest.mark.parametrize("kind", ["json", "arrow", "parquet"])
def test_all_results_come_at_once_in_the_order_of_their_keys(ask: Asked, lake: Lake, kind: str) -> None:
    for number, rows in enumerate(
        [[row(f"k{n:03}", n, 10 + n) for n in range(300)], [row("k007", 1, 900, RETRACTION)]]
    ):
        small_lake.batch(lake, 2 + number, rows)
    ask.until("totals", 3)
    status, content, headers = ask.raw(f"/v1/outputs/totals/bulk?format={kind}")
    expected = ["a", "b", *(f"k{n:03}" for n in range(300) if n != 7)]
    assert (status, [one["key"] for one in read(content, kind)]) == (200, expected)
    assert json.loads(headers["Floodmark-As-Of"])["commit"] == 3
    _, content, _ = ask.raw(f"/v1/outputs/totals/bulk?format={kind}&from.key=k006&to.key=k010")
    assert [one["key"] for one in read(content, kind)] == ["k006", "k008", "k009"]
    _, content, _ = ask.raw(f"/v1/outputs/totals/bulk?format={kind}&from.key=x")
    assert kind == "json" or pq
    assert not content or kind != "json"


def test_formats_of_bulk_are_refused_for_keys(ask: Asked) -> None:
    status, answer = ask.get("/v1/outputs/totals", [("format", "arrow")])
    assert (status, answer["error"]["code"]) == (400, "SERVE-030")
