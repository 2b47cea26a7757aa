"""The table of a source's quarantine: its columns, and taking back what a landing that died has left in it.

Rows are set aside before the landing commit they belong to. On a local disk the same commit of the quarantine holds a transaction with that landing commit's
ordinal, so the end of the quarantine's log tells a landing that starts whether rows of a landing commit that never came are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, Schema

from floodmark.core import crash
from floodmark.core.sql import literal
from floodmark.lake import entries
from floodmark.lake.commits import SetAside
from floodmark.lake.conflicts import interrupted, retried
from floodmark.lake.files import Written
from floodmark.lake.paths import is_local
from floodmark.lake.writer import Writer

if TYPE_CHECKING:
    import duckdb

COLUMNS = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.string()),
        ("_landing", pa.int64()),
        ("_quarantined_at", pa.timestamp("us", tz="UTC")),
        ("_replayed", pa.int64()),
        ("_replay", pa.string()),
    ]
)
"""Columns of a quarantine."""


def table_schema() -> Schema:
    """The columns as a Delta table is created with them."""
    return Schema.from_arrow(COLUMNS)


def application(source: str) -> str:
    """Application id of the transactions by which a quarantine tells its last landing commit."""
    return f"quarantine/{source}"


def append(writer: Writer, write: Callable[[], Written], source: str, ordinal: int) -> None:
    """Set rows aside, in a table on a local disk.

    Args:
        writer: of the quarantine.
        write: writes the files.
        source: whose quarantine it is.
        ordinal: of the landing commit the rows belong to.

    Raises:
        LifecycleError: LIFECYCLE-004, another landing has set rows aside for that landing commit.
    """
    if not writer.append(write, SetAside(source=source, ordinal=ordinal), (application(source), ordinal)):
        raise interrupted(writer.path, f"one of landing commit {ordinal}")


def announce(path: str, source: str, ordinal: int) -> None:
    """Record on a local disk up to which landing commit a quarantine may name some, before rows are marked as replayed."""
    if not is_local(path):
        return
    retried(lambda: Writer(path).note(SetAside(source=source, ordinal=ordinal), (application(source), ordinal)), path)


def take_back(path: str, source: str, due: int) -> None:
    """Remove what landing commits that never came have set aside or marked as replayed.

    Args:
        path: of a quarantine; nothing happens where there is no table.
        source: its name.
        due: ordinal of the next landing commit.

    Raises:
        LifecycleError: LIFECYCLE-004, another writer came in between every time.
    """
    if not entries.is_table(path) or not _reaches(path, source, due):
        return
    crash.point("landing.before_recover")
    retried(lambda: DeltaTable(path).delete(f"_landing >= {due}"), path)
    replayed = f"_replayed >= {due}"
    retried(lambda: DeltaTable(path).update(predicate=replayed, updates={"_replayed": "NULL"}), path)
    announce(path, source, due - 1)
    crash.point("landing.after_recover")


def files_of(path: str) -> list[str]:
    """Where the data files of a quarantine's newest version are; none where only the opened table tells."""
    return [name if name.startswith("/") else f"{path}/{name}" for name in entries.live_files(path) or ()]


def relation(connection: duckdb.DuckDBPyConnection, path: str, files: Sequence[str]) -> str:
    """What SQL reads the rows of a quarantine from, with the name of each row's file where the files are known.

    Opening the table takes longer than reading it, and each relation over many files opens all of them once more.

    Args:
        connection: of the SQL.
        path: of a table.
        files: of its newest version, as ``files_of`` says; none where they are not known.
    """
    if files:
        listed = ", ".join(map(literal, files))
        return f"read_parquet([{listed}], union_by_name=true, filename=true, hive_partitioning=false)"
    connection.register("quarantine", DeltaTable(path).to_pyarrow_dataset())
    return "(SELECT *, '' AS filename FROM quarantine)"


def _reaches(path: str, source: str, due: int) -> bool:
    """Whether a quarantine may name a landing commit from an ordinal on."""
    last = entries.transaction_of(path, application(source)) if is_local(path) else None
    return _may_reach(DeltaTable(path), due) if last is None else last >= due


def _may_reach(table: DeltaTable, due: int) -> bool:
    """The same of a quarantine that is not on a local disk, or that only versions before have written: the statistics of its files tell."""
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    known = [(file.get("max._landing"), file.get("max._replayed"), file.get("null_count._replayed")) for file in files]
    counts = [file["num_records"] for file in files]
    return any(
        landing is None or landing >= due or (nulls != count if replayed is None else replayed >= due)
        for (landing, replayed, nulls), count in zip(known, counts, strict=True)
    )
