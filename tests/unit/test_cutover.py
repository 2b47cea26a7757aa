"""Cut-overs of tables: against rows picked by hand, whatever was in which file; in an order whose progress is true."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.core.errors import LifecycleError
from floodmark.core.time import END
from floodmark.lake.stream import last_values
from floodmark.lake.table.commits import Restored
from floodmark.lake.table.outputs import PROPERTIES
from floodmark.lake.table.rows import STAMP_SCHEMA
from floodmark.lake.writing.cutover import Cutover
from floodmark.lake.writing.graft import graft
from floodmark.lifecycle.cutover import chosen, final, parse
from floodmark.spec.values.schema import BOUNDED, MARKER, PARTITION, RETRACTION, ROW, first_sequence

Row = dict[str, Any]
HOUR = 3_600_000
BEGIN = 1_740_787_200_000
OWN = pa.schema(
    [
        ("key", pa.string()),
        ("window_end", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("mean", pa.float64()),
        ("exact", pa.decimal128(38, 4)),
        ("tags", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
)
SCHEMA = pa.schema([*OWN, *STAMP_SCHEMA, (PARTITION, pa.string())])
WIDER = pa.schema([*OWN, ("share", pa.float64()), *STAMP_SCHEMA, (PARTITION, pa.string())])
PARTED = 6
"""Micro-batches of both."""
SAYS = Restored(
    mode="rebuild", operator="o", version="o@1", timeline=1, table="t", restored=-1, savepoint="s", batch=9, progress=0
)


def instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def batch(number: int, dice: random.Random, value: int, reached: int, *, late: bool) -> list[Row]:
    """A micro-batch: the window that has closed for two keys, and perhaps a revision of the one before."""
    first, rows = first_sequence(number), list[Row]()

    def row(key: str, end: int, n: int, sequence: int, kind: int = ROW) -> Row:
        about = {
            "key": key,
            "window_end": instant(end),
            "n": n,
            "mean": float("nan") if n % 3 == 0 else n / 7,
            "exact": Decimal(f"{n}99999999999999999999999999.1234"),
            "tags": [(key, [n, None])],
            "share": n / 2,
        }
        stamps = {"_event_time": instant(end - 1), "_watermark": end - 1, "_progress": reached, "_sequence": sequence}
        return (
            about
            | stamps
            | {"_ingest_time": instant(end), "_kind": kind, PARTITION: instant(end - 1).date().isoformat()}
        )

    end = BEGIN + (number + 1) * HOUR
    rows += [row(key, end, value + number, first + place) for place, key in enumerate("ab")]
    if late and number:
        old = end - HOUR
        rows += [
            row("a", old, value + number - 1, first + 5, RETRACTION),
            row("a", old, value + number - 1 + dice.randint(1, 9) * 100, first + 5),
        ]
    marker = dict.fromkeys(WIDER.names) | {"_kind": MARKER, "_progress": end - 1, "_watermark": end - 1}
    return [*rows, *([marker] if dice.random() < 0.5 else [])]


def written(path: Path, batches: list[list[Row]], schema: pa.Schema, dice: random.Random) -> DeltaTable:
    """A table of files that hold a micro-batch or several, as upkeep leaves them."""
    place = 0
    while place < len(batches):
        some = dice.choice([1, 1, 2, 3])
        rows = [row for one in batches[place : place + some] for row in one]
        table = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)
        write_deltalake(str(path), table, mode="append", partition_by=[PARTITION], configuration=PROPERTIES)
        place += some
    return DeltaTable(str(path))


def told(row: Row, names: list[str]) -> str:
    values = [row[name] for name in names]
    return repr([one.isoformat() if isinstance(one, datetime) else one for one in values])


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.soak) for n in range(4, 12))])
def test_each_version_has_its_side_of_the_instant(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    parted = PARTED
    shared = [batch(n, dice, 0, BEGIN + n * HOUR - 1, late=dice.random() < 0.4) for n in range(parted)]
    sides = []
    for value, count in ((0, dice.randint(2, 9)), (1000, dice.randint(2, 9))):
        since = range(parted, parted + count)
        sides.append([batch(n, dice, value, BEGIN + n * HOUR - 1, late=dice.random() < 0.4) for n in since])
    replaced = [
        row | {"_sequence": BOUNDED + place, "_progress": None, "n": 77}
        for place, row in enumerate(row for row in shared[1] if row["_kind"] == ROW)
    ]
    old, new = shared + sides[0] + [replaced], shared + sides[1]
    old_table = written(tmp_path / "old", old, SCHEMA, dice)
    new_table = written(tmp_path / "new", new, WIDER, dice)
    at = BEGIN + dice.randint(parted, parted + 6) * HOUR
    cutover = Cutover(
        table="t",
        staying=(str(tmp_path / "old"), old_table.version()),
        coming=(str(tmp_path / "new"), new_table.version()),
        at=at,
        since=first_sequence(parted),
    )
    cutover.check()
    mixed, target = str(tmp_path / "mixed"), str(tmp_path / "old")
    cutover.write(mixed)
    last_values.write(mixed, None, ["key", "window_end"], str(tmp_path / "values"), cutover.part)
    graft(mixed, target, "app", SAYS, also=cutover.part)

    found = DeltaTable(target).to_pyarrow_table().to_pylist()
    names = [*WIDER.names[: len(OWN) + 1], "_event_time", "_watermark", "_kind", PARTITION]
    expected = [
        row | ({"share": None} if keeps else {})
        for keeps, side in ((True, old), (False, new))
        for one in side
        for row in one
        if row["_kind"] != MARKER and (row["_event_time"] < instant(at)) is keeps
    ]
    rows = [row for row in found if row["_kind"] != MARKER]
    assert Counter(told(row, names) for row in rows) == Counter(told(row, names) for row in expected)
    in_order(rows, parted)
    marks = sorted(row["_progress"] for row in found if row["_kind"] == MARKER)
    assert marks == sorted(
        row["_progress"]
        for keeps, side in ((True, old), (False, new))
        for one in side
        for row in one
        if row["_kind"] == MARKER and (row["_progress"] < at) is keeps
    )
    values = DeltaTable(str(tmp_path / "values")).to_pyarrow_table().to_pylist()
    assert {(row["key"], row["window_end"]): row["n"] for row in values} == last(rows)


def in_order(rows: list[Row], parted: int) -> None:
    """Each sequence is of one result, or of one pair; no row comes behind one that says that all of its time are there."""
    streamed = sorted(
        (row for row in rows if row["_sequence"] < BOUNDED), key=lambda row: (row["_sequence"], row["_kind"])
    )
    pairs = Counter(row["_sequence"] for row in streamed)
    for row in streamed:
        others = [one for one in streamed if one["_sequence"] == row["_sequence"]]
        assert pairs[row["_sequence"]] == 1 or {one["_kind"] for one in others} == {ROW, RETRACTION}
        assert len({(one["key"], one["window_end"]) for one in others}) == 1
    since = [row for row in streamed if row["_sequence"] >= first_sequence(parted)]
    reached = [row["_progress"] for row in since]
    assert reached == sorted(reached)
    firsts: dict[tuple[str, datetime], Row] = {}
    for row in since:
        firsts.setdefault((row["key"], row["window_end"]), row)
    for place, row in enumerate(since):
        for later in since[place + 1 :]:
            on_time = firsts[later["key"], later["window_end"]] is later and later["_kind"] == ROW
            assert not on_time or later["_event_time"] > instant(row["_progress"])


def last(rows: list[Row]) -> Mapping[tuple[str, datetime], int]:
    found: dict[tuple[str, datetime], Row] = {}
    for row in sorted(rows, key=lambda row: (row["_sequence"], row["_kind"])):
        found[row["key"], row["window_end"]] = row
    return {key: row["n"] for key, row in found.items() if row["_kind"] == ROW}


def test_files_of_which_all_stays_are_linked(tmp_path: Path) -> None:
    dice, count = random.Random(1), 8
    batches = [batch(n, dice, 0, BEGIN + n * HOUR - 1, late=False)[:2] for n in range(count)]
    for one in batches:
        table = written(tmp_path / "old", [one], SCHEMA, dice)
    written(tmp_path / "new", batches, WIDER, dice)
    cutover = Cutover(
        table="t",
        staying=(str(tmp_path / "old"), table.version()),
        coming=(str(tmp_path / "new"), DeltaTable(str(tmp_path / "new")).version()),
        at=BEGIN + (PARTED + 1) * HOUR,
        since=first_sequence(PARTED),
    )
    assert len(cutover.part.files) == PARTED, "those since then are numbered anew"
    rows = cutover.part.rows(WIDER).to_table()
    assert rows.schema == WIDER
    assert rows["share"].null_count == rows.num_rows == 2 * PARTED


@pytest.mark.parametrize("table", ["plain", "t__late", "t__quarantine"])
def test_rows_of_the_input_keep_their_sequence_and_none_that_was_set_aside_is_lost(tmp_path: Path, table: str) -> None:
    """What one version set aside and the other one did not is kept, where its time was the old one's."""
    schema = pa.schema([("v", pa.float64()), *STAMP_SCHEMA])

    def rows(*numbers: int, run: int) -> list[Row]:
        def row(number: int) -> Row:
            at = instant(BEGIN + number)
            stamps = {"_event_time": at, "_watermark": run, "_progress": run, "_sequence": number, "_kind": ROW}
            return {"v": float("nan") if number % 2 else 0.5, "_ingest_time": instant(BEGIN + run)} | stamps

        return [row(number) for number in numbers]

    for name, given in (("old", rows(1, 2, 3, 7, 8, run=1)), ("new", rows(2, 3, 4, 7, 9, run=2))):
        write_deltalake(str(tmp_path / name), pa.Table.from_pylist(given, schema=schema), configuration=PROPERTIES)
    cutover = Cutover(
        table=table, staying=(str(tmp_path / "old"), 0), coming=(str(tmp_path / "new"), 0), at=BEGIN + 5, since=None
    )
    cutover.write(str(tmp_path / "mixed"))
    graft(str(tmp_path / "mixed"), str(tmp_path / "old"), "app", SAYS, also=cutover.part)
    found = DeltaTable(str(tmp_path / "old")).to_pyarrow_table()
    expected = [1, 2, 3, 7, 9] if table == "plain" else [1, 2, 3, 4, 7, 9]
    assert sorted(found["_sequence"].to_pylist()) == expected


def test_tables_that_cannot_be_one_are_refused(tmp_path: Path) -> None:
    for name, kind in (("old", pa.int64()), ("new", pa.float64())):
        table = pa.table({"v": pa.array([1], kind)})
        write_deltalake(str(tmp_path / name), table, configuration=PROPERTIES)
    cutover = Cutover(table="t", staying=(str(tmp_path / "old"), 0), coming=(str(tmp_path / "new"), 0), at=0, since=0)
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-110.*v long -> double") as refused:
        cutover.check()
    assert "leave the cut-over out" in str(refused.value)


WINDOWS: dict[str, Any] = {
    "step": "window_aggregate",
    "uid": "w",
    "allowed_lateness": 5,
    "window": {"kind": "Tumbling"},
}


def graph(step: Mapping[str, Any]) -> dict[str, Any]:
    return {"outputs": [["", {"step": "project", "of": {**step, "of": {"step": "read", "input": "x"}}}]]}


def test_what_is_final_when() -> None:
    assert final(graph(WINDOWS), 100, "here") == 96
    assert final(graph({"step": "filter"}), 100, "here") == 101
    assert final(graph(WINDOWS), END, "here") == END
    for other, got in (
        ({"window": {"kind": "Global"}}, "windows are Global"),
        ({"window": {"kind": "Count"}}, "windows are Count"),
        ({"time": "processing"}, "in processing time"),
        ({"step": "process"}, "a step process"),
    ):
        with pytest.raises(LifecycleError, match=f"LIFECYCLE-110.*{got}"):
            final(graph(WINDOWS | other), 100, "here")


def test_the_instant_is_one_where_all_is_final() -> None:
    assert chosen(parse("closed", "here"), 7, "here") == 7
    assert chosen(parse("1970-01-01T00:00:00.003", "here"), 7, "here") == 3
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-111.*1970-01-01T00:00:00.007Z or before"):
        chosen(8, 7, "here")
    with pytest.raises(LifecycleError, match="LIFECYCLE-002"):
        parse("soon", "here")
