"""The entries of a table's log as files: the newest version, what each commit says, the table's id. A table is not opened for that.

Opening a table by delta-rs reads all its files and lists all entries of the log; here the newest version is found from the last checkpoint on by
asking for files by name, in as many steps as there are digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from deltalake import DeltaTable

from floodmark.lake.paths import is_local


class Entry(NamedTuple):
    """An entry of a log.

    Args:
        version: the version of the table that the commit made.
        content: of the file.
    """

    version: int
    content: bytes


def newest(path: str) -> int | None:
    """The newest version of a table on a local disk; None where its log says that in another way, or there is none."""
    known = _checkpointed(path)
    if known is None or not _there(path, known):
        return None
    step = 1
    while _there(path, known + step):
        known, step = known + step, step * 2
    while step := step // 2:  # the entries behind a checkpoint have no gap
        known += step if _there(path, known + step) else 0
    return known


def backwards(path: str, newest: int) -> Iterator[Entry]:
    """The entries of a table, newest first, down to the oldest one that is there."""
    version = newest
    while (entry := _entry(path, version)) is not None:
        yield entry
        version -= 1


def version_of(path: str) -> int:
    """The newest version of a table.

    Raises:
        TableNotFoundError: there is none.
    """
    found = newest(path) if is_local(path) else None
    return int(DeltaTable(path).version()) if found is None else found


def id_of(path: str) -> str:
    """The id of a table, which it keeps for ever.

    Raises:
        TableNotFoundError: there is none.
    """
    if is_local(path):
        first = _entry(path, 0)
        for line in first.content.splitlines() if first is not None else ():
            if b'"metaData"' in line and (metadata := json.loads(line).get("metaData")):
                return str(metadata["id"])
        checkpoint = _checkpointed(path)
        file = Path(path, "_delta_log", f"{checkpoint or 0:020d}.checkpoint.parquet")
        if checkpoint and file.is_file():
            ids = (
                pq.ParquetFile(file).read(columns=["metaData.id"])["metaData"].combine_chunks().field("id").drop_null()
            )
            if len(ids) == 1:
                return str(ids[0])
    return str(DeltaTable(path).metadata().id)


def commit_info(entry: Entry) -> dict[str, Any]:
    """What an entry says of its commit; nothing where it does not say."""
    found = (json.loads(line).get("commitInfo") for line in entry.content.splitlines() if b'"commitInfo"' in line)
    return next((dict(said) for said in found if said is not None), {})


def _checkpointed(path: str) -> int | None:
    """The version of the last checkpoint, or 0 before the first one."""
    try:
        return int(json.loads(Path(path, "_delta_log", "_last_checkpoint").read_bytes())["version"])
    except FileNotFoundError:
        return 0
    except (
        ValueError,
        LookupError,
        TypeError,
    ):  # half written, or by something else: whoever opens the table finds out
        return None


def _there(path: str, version: int) -> bool:
    return Path(path, "_delta_log", f"{version:020d}.json").is_file()


def _entry(path: str, version: int) -> Entry | None:
    file = Path(path, "_delta_log", f"{version:020d}.json")
    try:
        return Entry(version, file.read_bytes())
    except FileNotFoundError:
        return None
