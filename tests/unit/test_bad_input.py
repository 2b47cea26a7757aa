"""Wrong inputs as newcomers write them: each error says where, what was expected, what was found and what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from floodmark import (
    Ascending,
    Contract,
    EventTime,
    Files,
    PromoteWhen,
    Rows,
    Source,
    Stream,
    TimeFormat,
    Workspace,
    operator,
    operator_asset,
    source_asset,
)
from floodmark.cli.new.inference import look
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval


class Row(Contract):
    at: EventTime
    n: int
    tags: list[str]


def built(step: Callable[[Stream], Any]) -> Callable[[Path], Any]:
    def build(_: Path) -> Any:
        def wrong(rows: Stream[Row]) -> Stream:
            return step(rows)

        return operator(wrong)

    return build


def looked(name: str, content: str | bytes) -> Callable[[Path], Any]:
    def build(folder: Path) -> Any:
        file = folder / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return look(file)

    return build


def contract(annotation: Any, **named: Any) -> Callable[[Path], Any]:
    return lambda _: type("Odd", (Contract,), {"__annotations__": {"x": annotation, **named}}, event_time="ingestion")


def source(**settings: Any) -> Callable[[Path], Any]:
    return lambda _: Source("rows", **{"contract": Row, "connector": Rows([]), "watermark": Ascending(), **settings})


def twice(_: Path) -> Any:
    one = source()(_)
    return Workspace(sources=[one, one])


CASES: list[tuple[str, Callable[[Path], Any], str, str]] = [
    ("two statements", built(lambda r: r.filter("n > 1; DROP TABLE x")), "DEFINITION-141", "without a semicolon"),
    ("no such column", built(lambda r: r.filter("m > 1")), "DEFINITION-022", "Columns:"),
    ("no such method", built(lambda r: r.fliter("n > 1")), "DEFINITION-147", "filter"),
    ("a step too early", built(lambda r: r.aggregate()), "DEFINITION-147", ".window("),
    (
        "199 streams in pairs",
        built(lambda r: reduce(Stream.union, [r] * 199)),
        "DEFINITION-475",
        "union(second, third)",
    ),
    ("an array as key", built(lambda r: r.key_by("tags")), "DEFINITION-053", "tags[0]"),
    ("any dictionary", contract(dict), "DEFINITION-011", "JsonText"),
    ("two columns by case", contract(int, X=int), "DEFINITION-144", "Rename one"),
    ("listed twice", twice, "DEFINITION-070", "Keep one"),
    ("a share above one", source(max_quarantine_share=2), "DEFINITION-017", "from 0 to 1"),
    ("an unknown encoding", lambda _: Files("in", encoding="utf-9"), "DEFINITION-153", "encoding"),
    ("a long delimiter", lambda _: Files("in", delimiter="||"), "DEFINITION-153", "delimiter"),
    ("a format without a day", lambda _: TimeFormat("%H:%M"), "DEFINITION-150", "epoch ms"),
    ("a misspelt epoch", lambda _: TimeFormat("epoch mss"), "DEFINITION-150", "Did you mean 'epoch ms'?"),
    ("a Python function", built(lambda r: r.filter(lambda row: row.n)), "DEFINITION-020", "flat_map(function"),
    ("a number", built(lambda r: r.filter(5)), "DEFINITION-020", "Write it as text"),
    (
        "a name of 101 letters",
        lambda _: Source("a" * 101, contract=Row, connector=Rows([]), watermark=Ascending()),
        "DEFINITION-016",
        "Shorten it",
    ),
    ("a duration as watermark", source(watermark="30 minutes"), "DEFINITION-017", "BoundedOutOfOrderness("),
    ("a path as connector", source(connector="inbox"), "DEFINITION-017", 'Files("inbox/orders")'),
    ("a dictionary as contract", source(contract=dict), "DEFINITION-017", "where Order is a Contract"),
    ("no source", lambda _: source_asset({"name": "rows"}), "DEFINITION-076", "Source("),
    ("a single source", lambda _: Workspace(sources=source()(_)), "DEFINITION-076", "sources=[...]"),
    ("a source as operator", lambda _: Workspace(operators=[source()(_)]), "DEFINITION-076", "@operator above it"),
    ("a dictionary as settings", lambda _: Workspace(settings={"lake": "x"}), "DEFINITION-076", "Settings(lake=...)"),
    (
        "a rule as rollout",
        lambda folder: operator_asset(built(lambda r: r.filter("n > 1"))(folder), rollout=PromoteWhen(match=0.9)),
        "DEFINITION-097",
        "rollout=Rollout(",
    ),
    ("no time between", lambda _: Interval(start=5, end=5), "LIFECYCLE-001", "Name a later --to"),
    ("reversed times", lambda _: Interval(start=6, end=5), "LIFECYCLE-001", "Swap --from and --to."),
    ("nothing there", lambda folder: look(folder / "oders.csv"), "CONNECTOR-080", "a folder or a glob"),
    ("an empty folder", look, "CONNECTOR-080", "Name another folder"),
    ("a workbook", looked("a.xlsx", "x"), "CONNECTOR-081", "Save the sheet as CSV"),
    ("an archive", looked("a.zip", "x"), "CONNECTOR-081", "Unzip it"),
    ("words", looked("a.log", "some words"), "CONNECTOR-081", "--pattern"),
    ("one object of many lines", looked("a.json", '{"n": 1, "rows": [{"a": 1},\n{"a": 2}]}'), "CONNECTOR-084", "jq -c"),
    ("a cut gzip", looked("a.csv.gz", b"\x1f\x8b\x08"), "CONNECTOR-082", "Mend the file"),
    ("a cut array", looked("a.json", '[{"a": 1}'), "CONNECTOR-082", "Mend the file"),
    ("no Parquet", looked("a.parquet", "x"), "CONNECTOR-082", "Mend the file"),
    ("an empty file", looked("a.csv", ""), "CONNECTOR-083", "at least one row"),
    ("a header alone", looked("a.csv", "a,b\n"), "CONNECTOR-083", "at least one row"),
    ("one object", looked("a.json", '{"items": [{"a": 1}, {"a": 2}]}'), "CONNECTOR-084", "jq -c"),
]


@pytest.mark.parametrize(("build", "code", "fix"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_error_says_where_what_and_what_to_do(
    tmp_path: Path, build: Callable[[Path], Any], code: str, fix: str
) -> None:
    with pytest.raises(FloodmarkError) as caught:
        build(tmp_path)
    error = caught.value
    assert error.code == code
    assert all(part.strip() for part in (error.where, error.expected, error.got))
    assert fix in error.fix


def test_as_many_streams_at_once_are_one_step() -> None:
    @operator
    def whole(rows: Stream[Row]) -> Stream:
        return rows.union(*[rows.filter(f"n = {n}") for n in range(400)])

    assert whole.version.startswith("whole@")
