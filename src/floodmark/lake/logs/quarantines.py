"""The table of a source's quarantine: its columns, writes, and the recovery after a killed landing.

Rows are quarantined before the landing commit they belong to. On a local disk the quarantine's commit holds a transaction with that landing commit's
ordinal, so the end of the quarantine's log tells a starting landing whether the quarantine has rows of a landing commit that never happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, Schema

from floodmark.core import crash
from floodmark.core.sql import literal
from floodmark.lake.folder.paths import is_local
from floodmark.lake.table import entries
from floodmark.lake.table.commits import SetAside
from floodmark.lake.table.files import Written
from floodmark.lake.writing.confirmed import revise
from floodmark.lake.writing.conflicts import interrupted, retried
from floodmark.lake.writing.writer import Writer

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
"""Columns of a quarantine, as an Arrow schema."""


def table_schema() -> Schema:
    """Columns of a quarantine, as a Delta schema."""
    return Schema.from_arrow(COLUMNS)


def application(source: str) -> str:
    """Application id of the transactions whose version is the last landing commit in a quarantine."""
    return f"quarantine/{source}"


def append(writer: Writer, write: Callable[[], Written], source: str, ordinal: int) -> None:
    """Quarantine rows.

    Args:
        writer: writer of the quarantine.
        write: () -> files; writes the rows.
        source: name of the source.
        ordinal: ordinal of the landing commit that the rows belong to.

    Raises:
        LifecycleError: LIFECYCLE-004, another landing has quarantined rows for that landing commit.
    """
    if not writer.append(write, SetAside(source=source, ordinal=ordinal), (application(source), ordinal)):
        raise interrupted(writer.path, f"one of landing commit {ordinal}")


def announce(path: str, source: str, ordinal: int) -> None:
    """Record the greatest landing commit that rows of a quarantine may refer to, before rows are marked as replayed."""
    retried(lambda: Writer(path).note(SetAside(source=source, ordinal=ordinal), (application(source), ordinal)), path)


def undo_uncommitted(path: str, source: str, due: int) -> None:
    """Undo quarantined rows and replay marks of landing commits that never happened.

    Args:
        path: path of a quarantine; nothing is done without a table.
        source: name of the source.
        due: ordinal of the next landing commit; this and later ordinals are undone.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
    """
    if not entries.is_table(path) or not _reaches(path, source, due):
        return
    crash.point("landing.before_recover")
    revise(path, lambda table, properties: table.delete(f"_landing >= {due}", commit_properties=properties))
    replayed, undone = f"_replayed >= {due}", {"_replayed": "NULL"}
    revise(path, lambda table, properties: table.update(undone, predicate=replayed, commit_properties=properties))
    announce(path, source, due - 1)
    crash.point("landing.after_recover")


def files_of(path: str) -> list[str]:
    """Paths of the data files of a quarantine's newest version; empty if only opening the table can tell."""
    if not is_local(path):  # DuckDB reads buckets through a client of its own
        return []
    return [name if name.startswith("/") else f"{path}/{name}" for name in entries.live_files(path) or ()]


def relation(connection: duckdb.DuckDBPyConnection, path: str, files: Sequence[str]) -> str:
    """SQL relation with the rows of a quarantine, and the file name of each row if the files are known.

    Opening the table takes longer than reading it, and each relation over many files opens all of them again.

    Args:
        connection: connection that will run the SQL.
        path: path of the quarantine.
        files: files of its newest version, from ``files_of``; empty if unknown.
    """
    if files:
        listed = ", ".join(map(literal, files))
        return f"read_parquet([{listed}], union_by_name=true, filename=true, hive_partitioning=false)"
    connection.register("quarantine", DeltaTable(path).to_pyarrow_dataset())
    return "(SELECT *, '' AS filename FROM quarantine)"


def _reaches(path: str, source: str, due: int) -> bool:
    """True if rows of a quarantine may refer to landing commit ``due`` or a later one."""
    last = entries.transaction_of(path, application(source))
    return _may_reach(DeltaTable(path), due) if last is None else last >= due


def _may_reach(table: DeltaTable, due: int) -> bool:
    """As ``_reaches``, from file statistics: for a quarantine that is not on a local disk, or written only by earlier versions of floodmark."""
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    known = [(file.get("max._landing"), file.get("max._replayed"), file.get("null_count._replayed")) for file in files]
    counts = [file["num_records"] for file in files]
    return any(
        landing is None or landing >= due or (nulls != count if replayed is None else replayed >= due)
        for (landing, replayed, nulls), count in zip(known, counts, strict=True)
    )
