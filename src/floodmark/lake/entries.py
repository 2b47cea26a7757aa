"""The entries of a table's log as files: the newest version, what each commit says, the table's id. A table is not opened for that.

Opening a table by delta-rs reads all its files, all files that were removed, and lists all entries of the log; here the newest version is found from
the last checkpoint on by asking for files by name, in as many steps as there are digits, and of the checkpoint only the columns asked for are read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileType

from floodmark.lake.paths import is_local
from floodmark.lake.storage import file_system, read, write

LOG = "_delta_log"
"""Folder in that of a table."""
_HEAD = {
    "protocol": ("protocol.minReaderVersion", "protocol.minWriterVersion"),
    "metaData": ("metaData.configuration",),
}
"""Kinds of actions that say what a table asks of who appends to it, with their columns in a checkpoint."""
_ID = "id"
"""File beside a table's log with the table's id."""
_OF_VERSION = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint\..*)(\.crc)?")


def checkpoint_of(version: int) -> str:
    """Name of the file that says all a table is at a version."""
    return f"{version:020d}.checkpoint.parquet"


def entry_of(version: int) -> str:
    """Name of the file that says what a commit did."""
    return f"{version:020d}.json"


def beside(path: str, name: str) -> str:
    """A file in which floodmark keeps what a table's log no longer says; Delta and Spark pass over its folder."""
    return f"{path.rstrip('/')}/_floodmark/{name}"


class Entry(NamedTuple):
    """An entry of a log.

    Args:
        version: the version of the table that the commit made.
        content: of the file.
    """

    version: int
    content: bytes


class Held(NamedTuple):
    """A file of a log that is of one version: an entry, a checkpoint, or a checksum.

    Args:
        version: it is of.
        size: bytes.
        at: when it was written, ms.
    """

    version: int
    size: int
    at: int


class Head(NamedTuple):
    """What a table's newest version asks of who appends to it.

    Args:
        version: the newest one.
        protocol: versions of the protocol, for readers and for writers.
        properties: of the table.
    """

    version: int
    protocol: tuple[int, int]
    properties: dict[str, str]


def log_files(path: str) -> dict[str, Held]:
    """The files of a table's log that are of one version, by name."""
    files, base = file_system(f"{path.rstrip('/')}/{LOG}")
    held = {}
    for info in files.get_file_info(FileSelector(base, allow_not_found=True)):
        named = _OF_VERSION.fullmatch(info.base_name)
        if info.type == FileType.File and named is not None:
            held[info.base_name] = Held(int(named[1]), info.size, (info.mtime_ns or 0) // 1_000_000)
    return held


def is_table(path: str) -> bool:
    """Whether there is a table at a path; its log is listed only where that is not known otherwise."""
    if is_local(path) and not Path(path, LOG).is_dir():
        return False
    return (is_local(path) and newest(path) is not None) or DeltaTable.is_deltatable(path)


def newest(path: str) -> int | None:
    """The newest version of a table on a local disk; None where its log says that in another way, or there is none."""
    known = checkpointed(path)
    if known is None or not _there(path, known):
        return None
    step = 1
    while _there(path, known + step):
        known, step = known + step, step * 2
    while step := step // 2:  # the entries behind a checkpoint have no gap
        known += step if _there(path, known + step) else 0
    return known


def entry(path: str, version: int) -> Entry | None:
    """The entry of a version of a table; None where it is gone, or there is no such version yet."""
    name = f"{path.rstrip('/')}/{LOG}/{entry_of(version)}"
    if not is_local(path):
        content = read(name)
        return None if content is None else Entry(version, content)
    try:
        return Entry(version, Path(name).read_bytes())
    except FileNotFoundError:
        return None


def readable(path: str, first: int, last: int) -> bool:
    """Whether who reads a table commit by commit finds those from one version to another, and the files that they have added."""
    for version in range(first, last + 1):
        log_entry = entry(path, version)
        if log_entry is None:
            return False
        added = (one["add"] for one in actions(log_entry) if "add" in one)
        if not all_there(path, (add["path"] for add in added if add.get("dataChange", True))):
            return False
    return True


def all_there(path: str, names: Iterable[str]) -> bool:
    """Whether none of a table's files is gone, by their paths as commits say them."""
    files, folder = file_system(path)
    infos = files.get_file_info([f"{folder}/{unquote(name)}" for name in names])
    return all(info.type != FileType.NotFound for info in infos)


def backwards(path: str, newest: int) -> Iterator[Entry]:
    """The entries of a table, newest first, down to the oldest one that is there."""
    version = newest
    while (log_entry := entry(path, version)) is not None:
        yield log_entry
        version -= 1


def actions(entry: Entry) -> Iterator[dict[str, Any]]:
    """What a commit did, in its order: each with one key, the kind of action."""
    return map(json.loads, entry.content.splitlines())


def version_of(path: str) -> int:
    """The newest version of a table.

    Raises:
        TableNotFoundError: there is none.
    """
    version = newest(path) if is_local(path) else None
    return int(DeltaTable(path).version()) if version is None else version


def id_of(path: str) -> str:
    """The id of a table, which it keeps for ever.

    Raises:
        TableNotFoundError: there is none.
    """
    first = entry(path, 0) if is_local(path) else None
    if first is None and is_local(path) and (stored_id := read(beside(path, _ID))) is not None:
        return stored_id.decode()
    metadata = None if first is None else _metadata(first)
    if metadata is None and is_local(path):
        metadata = _checkpointed_metadata(path)
    return str(DeltaTable(path).metadata().id if metadata is None else metadata["id"])


def keep_id(path: str) -> None:
    """Keep the id of a table beside its log, before the entry of version 0, which tells it, goes."""
    write(beside(path, _ID), id_of(path).encode())


def fields_of(path: str) -> dict[str, dict[str, Any]]:
    """The columns of the newest version of a table by name, each as Delta writes a field: ``type``, ``nullable``, ``metadata``.

    Raises:
        TableNotFoundError: there is none.
    """
    return {field["name"]: field for field in json.loads(schema_of(path))["fields"]}


def schema_of(path: str) -> str:
    """The columns of the newest version of a table, as Delta writes a schema in JSON.

    Raises:
        TableNotFoundError: there is none.
    """
    return (_newest_schema(path) if is_local(path) else None) or str(DeltaTable(path).schema().to_json())


def _newest_schema(path: str) -> str | None:
    """As text; None where it cannot be found without opening the table."""
    for log_entry in since_checkpoint(path):
        if (metadata := _metadata(log_entry)) is not None:
            return str(metadata["schemaString"])
    metadata = _checkpointed_metadata(path)
    return None if metadata is None else str(metadata["schemaString"])


def since_checkpoint(path: str) -> Iterator[Entry]:
    """The entries of a table on a local disk, newest first, down to that of its last checkpoint; none where these are not known."""
    if (ends := _ends(path)) is not None:
        checkpoint, last = ends
        yield from takewhile(lambda one: one.version >= checkpoint, backwards(path, last))


def transaction_of(path: str, app: str) -> int | None:
    """The last version an application id has committed to a table; None for none.

    Raises:
        TableNotFoundError: there is no table.
    """
    for log_entry in since_checkpoint(path) if is_local(path) else ():
        for line in log_entry.content.splitlines() if b'"txn"' in log_entry.content else ():
            transaction = json.loads(line).get("txn") if b'"txn"' in line else None
            if transaction is not None and transaction["appId"] == app:
                return int(transaction["version"])
    ends = _ends(path) if is_local(path) else None
    known = None if ends is None else _of_checkpoint(path, ends[0], "txn.appId", "txn.version")
    if known is None:
        return DeltaTable(path).transaction_version(app)
    return next((int(one["version"]) for one in known if one["appId"] == app), None)


def head_of(path: str) -> Head | None:
    """What the newest version of a table on a local disk asks of who appends to it; None where only the opened table tells."""
    if (ends := _ends(path)) is None:
        return None
    checkpoint, last = ends
    by_kind, oldest = dict[str, dict[str, Any]](), last + 1
    for log_entry in takewhile(lambda one: one.version > checkpoint or not checkpoint, backwards(path, last)):
        oldest = log_entry.version
        for line in (
            log_entry.content.splitlines()
            if b'"metaData"' in log_entry.content or b'"protocol"' in log_entry.content
            else ()
        ):
            for kind, fields in json.loads(line).items():
                if kind in {"metaData", "protocol"}:
                    by_kind.setdefault(kind, fields)
    if oldest > (checkpoint + 1 if checkpoint else 0):  # an entry is gone
        return None
    for kind, columns in _HEAD.items():
        if kind not in by_kind:
            known = _of_checkpoint(path, checkpoint, *columns)
            if not known:
                return None
            by_kind[kind] = known[0]
    protocol, properties = by_kind["protocol"], by_kind["metaData"].get("configuration") or {}
    versions = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    return Head(last, versions, dict(properties))


def live_files(path: str) -> list[str] | None:
    """The data files of the newest version of a table, below it, by modification time; None where only the opened table tells."""
    ends = _ends(path) if is_local(path) else None
    known = None if ends is None else _of_checkpoint(path, ends[0], "add.path", "add.modificationTime")
    if ends is None or known is None:
        return None
    times = {add["path"]: int(add["modificationTime"]) for add in known}
    for version in range(ends[0] + 1 if ends[0] else 0, ends[1] + 1):
        if (log_entry := entry(path, version)) is None:
            return None
        for action in actions(log_entry):
            if (add := action.get("add")) is not None:
                times[add["path"]] = int(add["modificationTime"])
            elif (remove := action.get("remove")) is not None:
                times.pop(remove["path"], None)
    return [unquote(name) for name in sorted(times, key=times.__getitem__)]


def _metadata(entry: Entry) -> dict[str, Any] | None:
    """What an entry makes of a table: its id, schema, properties; None where it leaves them as they were."""
    for line in entry.content.splitlines() if b'"metaData"' in entry.content else ():
        if b'"metaData"' in line and (metadata := json.loads(line).get("metaData")) is not None:
            return dict(metadata)
    return None


def _checkpointed_metadata(path: str) -> dict[str, Any] | None:
    """The id and the schema of a table at its last checkpoint; None where that is not one file."""
    rows = _of_checkpoint(path, checkpointed(path) or 0, "metaData.id", "metaData.schemaString")
    return rows[0] if rows is not None and len(rows) == 1 else None


def _of_checkpoint(path: str, checkpoint: int, *columns: str) -> list[dict[str, Any]] | None:
    """The actions of one kind in a checkpoint.

    Args:
        path: of the table.
        checkpoint: version; nothing is said by that of version 0, whose entry is there.
        columns: the fields that are read, each as ``kind.field``.

    Returns:
        None where the checkpoint is not one file, or is gone.
    """
    if not checkpoint:
        return []
    try:
        with pq.ParquetFile(Path(path, LOG, checkpoint_of(checkpoint))) as file:
            table = file.read(columns=list(columns), use_threads=False)
    except FileNotFoundError:
        return None
    name = columns[0].split(".")[0]
    if name not in table.column_names:
        return []
    kind = table[name].combine_chunks()
    return list(kind.filter(kind.is_valid()).to_pylist())


def _ends(path: str) -> tuple[int, int] | None:
    """The versions of the last checkpoint, 0 for none, and of the newest entry of a table on a local disk; None where these are not known."""
    checkpoint, last = checkpointed(path), newest(path)
    return None if checkpoint is None or last is None else (checkpoint, last)


def commit_info(entry: Entry) -> dict[str, Any]:
    """What an entry says of its commit; nothing where it does not say."""
    infos = (json.loads(line).get("commitInfo") for line in entry.content.splitlines() if b'"commitInfo"' in line)
    return next((dict(said) for said in infos if said is not None), {})


def checkpointed(path: str) -> int | None:
    """The version of the last checkpoint of a table on a local disk, or 0 before the first one; None where that cannot be read."""
    try:
        return int(json.loads(Path(path, LOG, "_last_checkpoint").read_bytes())["version"])
    except FileNotFoundError:
        return 0
    except (
        ValueError,
        LookupError,
        TypeError,
    ):  # half written, or by something else: whoever opens the table finds out
        return None


def _there(path: str, version: int) -> bool:
    return os.path.isfile(f"{path}/{LOG}/{entry_of(version)}")  # noqa: PTH113 - a start asks a dozen times, and a Path takes longer than the answer
