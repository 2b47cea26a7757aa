"""Commits in a bucket whose answer is lost: each is made once, and nothing fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import Field
from s3_server import Plan
from streams import PLAIN

from floodmark import Ascending, Contract, EventTime, Files, Source
from floodmark.engines.embedded.landing import run as embedded_landing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import quarantines
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.results import tables
from floodmark.lake.stream import last_values
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Landed, Restored
from floodmark.lake.table.outputs import KEPT
from floodmark.lake.table.rows import row_schema
from floodmark.lake.writing.graft import graft
from floodmark.lake.writing.writer import Writer
from floodmark.spec.values.schema import MARKER, ROW, Column, Schema

if TYPE_CHECKING:
    from s3_server import Proxy, Server

OUTPUT = PLAIN.outputs[0]
Change = tuple[str, Callable[[], object]]
"""(path of the table that is changed, the change)."""


def rows_of(count: int, kind: int = ROW) -> pa.Table:
    """Rows of ``OUTPUT``, of which only the key tells one from another."""
    schema = row_schema(OUTPUT.schema)
    return pa.Table.from_pylist([{"key": str(n), "_sequence": n, "_kind": kind} for n in range(count)], schema)


def quarantine_of(lake: Lake) -> str:
    """A quarantine with two rows of a landing that was committed, and two of one that was not, which also replayed one of the first."""
    path = lake.quarantine("readings")
    tables.create(path, quarantines.table_schema(), (), {})
    rows = [{"file": "a", "position": n, "_landing": 1 + n // 2, "_replayed": 2 if n == 1 else None} for n in range(4)]
    write_deltalake(path, pa.Table.from_pylist(rows, quarantines.COLUMNS), mode="append")
    return path


def undone(lake: Lake) -> Change:
    """The undoing of a landing's quarantined rows and marks."""
    path = quarantine_of(lake)
    return path, lambda: quarantines.undo_uncommitted(path, "readings", 2)


def emptied(lake: Lake) -> Change:
    """The removal of results when a stream begins."""
    path = tables.ensure(lake, PLAIN, OUTPUT)
    write_deltalake(path, pa.concat_tables([rows_of(2), rows_of(1, MARKER)]), mode="append")
    return path, lambda: tables.empty(path)


def widened(lake: Lake) -> Change:
    """The addition of columns by an upgrade."""
    columns = (*OUTPUT.schema.columns, Column(name="more", type="bigint"))
    wider = replace(OUTPUT, schema=Schema(columns))
    return tables.ensure(lake, PLAIN, OUTPUT), lambda: tables.widen(lake, wider)


def grafted(lake: Lake) -> Change:
    """A table that a fork begins with."""
    path, target = tables.ensure(lake, PLAIN, OUTPUT), lake.output("grafted")
    write_deltalake(path, rows_of(3), mode="append")
    record = Restored(
        mode="fork",
        operator="plain",
        version="1",
        timeline=0,
        table="grafted",
        restored=-1,
        savepoint="one",
        batch=0,
        progress=0,
    )
    return target, lambda: graft(path, target, "fork", record)


def valued(lake: Lake) -> Change:
    """A table of last values."""
    path, target = tables.ensure(lake, PLAIN, OUTPUT), lake.output("values")
    write_deltalake(path, rows_of(3), mode="append")
    return target, lambda: last_values.write(path, None, ("key",), target)


def kept(lake: Lake) -> Change:
    """The properties that upkeep sets."""
    path = lake.log("strange")
    write_deltalake(path, rows_of(2))
    return path, lambda: Writer(path).set_properties(KEPT)


def marked(lake: Lake) -> Change:
    """The list of landed units where nothing but markers has landed for long."""
    units = LandedUnits(lake.internal("sources", "readings", "files"))
    units.add([Landed(name="a", size=1, modified=1, digest="", status="landed", ordinal=0)])
    units.flush()
    units._reached = 100
    return lake.internal("sources", "readings", "files"), units.flush


_CHANGES = [(undone, 0), (widened, 0), (grafted, 0)]
_MORE = [(undone, 1), (undone, 2), (emptied, 0), (grafted, 1), (valued, 0), (valued, 1), (kept, 0), (marked, 0)]


def content(path: str) -> tuple[int, list[tuple[str, str]], object]:
    """(version, columns, rows) of a table."""
    table = DeltaTable(path)
    rows = table.to_pyarrow_table()
    return table.version(), [(one.name, str(one.type)) for one in rows.schema], sorted(map(str, rows.to_pylist()))


@pytest.mark.parametrize(
    ("change", "commit"), [*_CHANGES, *(pytest.param(*change, marks=pytest.mark.soak) for change in _MORE)]
)
@pytest.mark.few(1)
def test_a_commit_whose_answer_is_lost_is_made_once(
    s3: Server, s3_proxy: Proxy, change: Callable[[Lake], Change], commit: int
) -> None:
    """Each of a change's commits in turn loses its answer; the table is that of a store that answers."""
    path, act = change(Lake(f"{s3.bucket()}/lake"))
    act()
    expected = content(path)
    path, act = change(Lake(f"{s3.bucket()}/lake"))
    before = DeltaTable(path).version() if DeltaTable.is_deltatable(path) else -1
    entry = f"_delta_log/{entries.entry_of(before + 1 + commit)}"
    s3_proxy.plan(Plan(fault="lost", method="PUT", path=entry, times=1))
    act()
    assert s3_proxy.faults() == {"lost": 1}
    s3_proxy.plan()
    assert content(path) == expected


class Strict(Contract):
    at: EventTime
    value: Annotated[int, Field(lt=10)]


class Mended(Contract):
    at: EventTime
    value: int


@pytest.mark.parametrize("commit", [1, pytest.param(0, marks=pytest.mark.soak)])
def test_a_replay_whose_answer_is_lost_lands_once(s3: Server, s3_proxy: Proxy, tmp_path: Path, commit: int) -> None:
    """The quarantine has an entry for the landing that replays, and one for the marks."""
    lake = Lake(f"{s3.bucket()}/lake")
    (tmp_path / "0.csv").write_text("at,value\n2001-01-01T00:00:00,1\n2001-01-01T00:00:01,50\n")
    files = Files(str(tmp_path), format="csv", min_age="0 s")

    def source(contract: type[Contract]) -> Source:
        return Source("readings", contract=contract, connector=files, watermark=Ascending(), max_quarantine_share=1)

    embedded_landing.land(_no_server, source(Strict), lake)
    path = lake.quarantine("readings")
    before = DeltaTable(path).version()
    s3_proxy.plan(Plan(fault="lost", method="PUT", path=f"_delta_log/{entries.entry_of(before + 1 + commit)}", times=1))
    embedded_landing.replay(_no_server, source(Mended), lake)
    assert s3_proxy.faults() == {"lost": 1}
    s3_proxy.plan()
    assert DeltaTable(path).version() == before + 2
    assert embedded_landing.replay(_no_server, source(Mended), lake).landed == 0
    rows = DeltaTable(lake.log("readings")).to_pyarrow_table().to_pylist()
    assert sum(row["_kind"] == ROW for row in rows) == 2


def _no_server() -> None:
    raise AssertionError
