"""How many rows a source has set aside is said by its last landing commit: a look opens no quarantine, however large that is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from engines import embedded

from floodmark.core.time import describe
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.table import commits
from floodmark.lake.writing import writer
from floodmark.observe import status
from floodmark.spec.rows.connector import Files
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import Ascending, Source
from floodmark.spec.workspace import Workspace


class Reading(Contract):
    """What a device measures."""

    at: EventTime
    value: int


def readings(inbox: Path) -> Source:
    return Source("readings", contract=Reading, connector=Files(str(inbox)), watermark=Ascending())


def put(inbox: Path, number: int, broken: int) -> None:
    """A file with a row that keeps the contract, behind some that do not."""
    at = describe(1_000_000 * (number + 1))
    inbox.mkdir(exist_ok=True)
    rows = [f"{at},{'x' if row < broken else row}" for row in range(broken + 1)]
    (inbox / f"{number}.csv").write_text("\n".join(["at,value", *rows]) + "\n")


def told(source: Source, lake: Lake) -> dict[str, Any]:
    return status.status(Workspace(sources=[source]), lake)[0]


def test_a_look_counts_what_was_set_aside_without_the_quarantine(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, table = readings(tmp_path / "inbox"), lake.quarantine("readings")
    for number, broken in enumerate((2, 0, 3)):
        put(tmp_path / "inbox", number, broken)
        embedded().land(source, lake)
        with monkeypatch.context() as patch:
            patch.setattr(status, "_count", lambda path: pytest.fail(f"opens {path}"))
            assert told(source, lake)["quarantined"] == DeltaTable(table).to_pyarrow_dataset().count_rows()
    assert told(source, lake)["quarantined"] == 5
    embedded().land(source, lake, end=True)
    assert told(source, lake)["quarantined"] == 5


def test_what_an_older_version_has_set_aside_counts(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, encode = readings(tmp_path / "inbox"), commits.encode
    put(tmp_path / "inbox", 0, 4)
    with monkeypatch.context() as patch:

        def older(record: Any) -> str:
            return encode(replace(record, set_aside=-1) if isinstance(record, commits.Landing) else record)

        patch.setattr(writer, "encode", older)
        patch.setattr(log, "encode", older)
        embedded().land(source, lake)
    newest = log.newest(lake.log("readings"))
    assert newest is not None
    assert newest.set_aside == -1
    assert told(source, lake)["quarantined"] == 4
    put(tmp_path / "inbox", 1, 1)
    embedded().land(source, lake)
    newest = log.newest(lake.log("readings"))
    assert newest is not None
    assert newest.set_aside == told(source, lake)["quarantined"] == 5
