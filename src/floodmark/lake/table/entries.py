"""Reads the entries of a table's log as files, without opening the table: newest version, commit contents, table id, schema.

Opening a table with delta-rs reads its list of files and of removed files, and lists all entries of the log. Here the newest version is located by
probing for entry files by name, starting at the last checkpoint, in logarithmically many steps; of the checkpoint only the requested columns are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileType

from floodmark.lake.folder.paths import is_local
from floodmark.lake.folder.storage import exists, file_system, read, write

LOG = "_delta_log"
"""Folder of the log in the table's folder."""
_HEAD = {
    "protocol": ("protocol.minReaderVersion", "protocol.minWriterVersion"),
    "metaData": ("metaData.configuration",),
}
"""Kinds of actions with a table's requirements for writers -> their columns in a checkpoint."""
_ID = "id"
"""File beside a table's log with the table's id."""
_OF_VERSION = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint\..*)(\.crc)?")


def checkpoint_of(version: int) -> str:
    """Name of the checkpoint file of a version."""
    return f"{version:020d}.checkpoint.parquet"


def entry_of(version: int) -> str:
    """Name of the log entry file of a version."""
    return f"{version:020d}.json"


def beside(path: str, name: str) -> str:
    """Path of a file where floodmark stores facts that a table's log no longer holds. Delta and Spark ignore its folder."""
    return f"{path.rstrip('/')}/_floodmark/{name}"


class Entry(NamedTuple):
    """An entry of a log.

    Args:
        version: the table version that the commit created.
        content: content of the entry file.
    """

    version: int
    content: bytes


class Held(NamedTuple):
    """A file of a log that belongs to one version: an entry, a checkpoint, or a checksum.

    Args:
        version: the version it belongs to.
        size: size, bytes.
        at: modification time, ms.
    """

    version: int
    size: int
    at: int


class Head(NamedTuple):
    """The requirements of a table's newest version for writers.

    Args:
        version: the newest version.
        protocol: (reader, writer) versions of the Delta protocol.
        properties: properties of the table.
    """

    version: int
    protocol: tuple[int, int]
    properties: dict[str, str]


def log_files(path: str) -> dict[str, Held]:
    """File name -> file, for the files of a table's log that belong to one version."""
    files, base = file_system(f"{path.rstrip('/')}/{LOG}")
    held = {}
    for info in files.get_file_info(FileSelector(base, allow_not_found=True)):
        named = _OF_VERSION.fullmatch(info.base_name)
        if info.type == FileType.File and named is not None:
            held[info.base_name] = Held(int(named[1]), info.size, (info.mtime_ns or 0) // 1_000_000)
    return held


def is_table(path: str) -> bool:
    """True if there is a table at a path. Lists its log only if cheaper probes cannot decide."""
    if is_local(path) and not Path(path, LOG).is_dir():
        return False
    return newest(path) is not None or DeltaTable.is_deltatable(path)


def newest(path: str) -> int | None:
    """The newest version of a table; None if there is no table, or if its log has no readable checkpoint pointer or entry."""
    known = checkpointed(path)
    if known is None or not has_entry(path, known):
        return None
    step = 1
    while has_entry(path, known + step):
        known, step = known + step, step * 2
    while step := step // 2:  # entries after a checkpoint have no gap
        known += step if has_entry(path, known + step) else 0
    return known


def entry(path: str, version: int) -> Entry | None:
    """The log entry of a table version; None if it was removed or does not exist yet."""
    name = f"{path.rstrip('/')}/{LOG}/{entry_of(version)}"
    if not is_local(path):
        content = read(name)
        return None if content is None else Entry(version, content)
    try:
        return Entry(version, Path(name).read_bytes())
    except FileNotFoundError:
        return None


def readable(path: str, first: int, last: int) -> bool:
    """True if all log entries from ``first`` to ``last`` exist, and all data files they added."""
    for version in range(first, last + 1):
        log_entry = entry(path, version)
        if log_entry is None:
            return False
        added = (one["add"] for one in actions(log_entry) if "add" in one)
        if not all_there(path, (add["path"] for add in added if add.get("dataChange", True))):
            return False
    return True


def all_there(path: str, names: Iterable[str]) -> bool:
    """True if all named data files of a table exist. Names are URL-encoded paths as in commits."""
    files, folder = file_system(path)
    infos = files.get_file_info([f"{folder}/{unquote(name)}" for name in names])
    return all(info.type != FileType.NotFound for info in infos)


def backwards(path: str, newest: int) -> Iterator[Entry]:
    """The log entries of a table from ``newest`` down to the oldest in an unbroken sequence."""
    version = newest
    while version >= 0 and (log_entry := entry(path, version)) is not None:
        yield log_entry
        version -= 1


def actions(entry: Entry) -> Iterator[dict[str, Any]]:
    """The actions of a commit in order, each a dict with one key, the kind of action."""
    return map(json.loads, entry.content.splitlines())


def added(entry: Entry) -> list[dict[str, Any]]:
    """The add actions by which a commit adds rows; none for a commit that replaces rows, which readers of a stream pass over."""
    every = list(actions(entry))
    if any(one["remove"].get("dataChange", True) for one in every if "remove" in one):
        return []
    return [one["add"] for one in every if "add" in one and one["add"].get("dataChange", True)]


def version_of(path: str) -> int:
    """The newest version of a table.

    Raises:
        TableNotFoundError: there is no table.
    """
    version = newest(path)
    return int(DeltaTable(path).version()) if version is None else version


def id_of(path: str) -> str:
    """The id of a table, which never changes.

    Raises:
        TableNotFoundError: there is no table.
    """
    first = entry(path, 0)
    if first is None and (stored_id := read(beside(path, _ID))) is not None:
        return stored_id.decode()
    metadata = None if first is None else _metadata(first)
    if metadata is None:
        metadata = _checkpointed_metadata(path)
    return str(DeltaTable(path).metadata().id if metadata is None else metadata["id"])


def keep_id(path: str) -> None:
    """Store the id of a table beside its log, before the entry of version 0, which holds it, is removed."""
    write(beside(path, _ID), id_of(path).encode())


def fields_of(path: str) -> dict[str, dict[str, Any]]:
    """Column name -> field of the newest version of a table, in Delta's JSON form: ``type``, ``nullable``, ``metadata``.

    Raises:
        TableNotFoundError: there is no table.
    """
    return {field["name"]: field for field in json.loads(schema_of(path))["fields"]}


def schema_of(path: str) -> str:
    """The schema of the newest version of a table, in Delta's JSON form.

    Raises:
        TableNotFoundError: there is no table.
    """
    return _newest_schema(path) or str(DeltaTable(path).schema().to_json())


def _newest_schema(path: str) -> str | None:
    """The schema as JSON text; None if only opening the table can tell."""
    for log_entry in since_checkpoint(path):
        if (metadata := _metadata(log_entry)) is not None:
            return str(metadata["schemaString"])
    metadata = _checkpointed_metadata(path)
    return None if metadata is None else str(metadata["schemaString"])


def since_checkpoint(path: str) -> Iterator[Entry]:
    """The log entries of a table, newest first, down to that of its last checkpoint; empty if these versions are unknown."""
    if (ends := _checkpoint_and_newest(path)) is not None:
        checkpoint, last = ends
        yield from takewhile(lambda one: one.version >= checkpoint, backwards(path, last))


def transaction_of(path: str, app: str) -> int | None:
    """The last transaction version that an application id committed to a table; None if it committed none.

    Raises:
        TableNotFoundError: there is no table.
    """
    for log_entry in since_checkpoint(path):
        for line in log_entry.content.splitlines() if b'"txn"' in log_entry.content else ():
            transaction = json.loads(line).get("txn") if b'"txn"' in line else None
            if transaction is not None and transaction["appId"] == app:
                return int(transaction["version"])
    ends = _checkpoint_and_newest(path)
    known = None if ends is None else _of_checkpoint(path, ends[0], "txn.appId", "txn.version")
    if known is None:
        return DeltaTable(path).transaction_version(app)
    return next((int(one["version"]) for one in known if one["appId"] == app), None)


def head_of(path: str) -> Head | None:
    """The writer requirements of the newest version of a table; None if only opening the table can tell."""
    if (ends := _checkpoint_and_newest(path)) is None:
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
    if oldest > (checkpoint + 1 if checkpoint else 0):  # an entry was removed
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
    """Paths of the data files of a table's newest version, relative to its folder, by modification time; None if only opening the table can tell."""
    ends = _checkpoint_and_newest(path)
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
    """The ``metaData`` action of an entry: id, schema, properties; None if the entry has none."""
    for line in entry.content.splitlines() if b'"metaData"' in entry.content else ():
        if b'"metaData"' in line and (metadata := json.loads(line).get("metaData")) is not None:
            return dict(metadata)
    return None


def _checkpointed_metadata(path: str) -> dict[str, Any] | None:
    """The id and the schema of a table at its last checkpoint; None without a checkpoint in one file."""
    rows = _of_checkpoint(path, checkpointed(path) or 0, "metaData.id", "metaData.schemaString")
    return rows[0] if rows is not None and len(rows) == 1 else None


def _of_checkpoint(path: str, checkpoint: int, *columns: str) -> list[dict[str, Any]] | None:
    """The actions of one kind in a checkpoint.

    Args:
        path: path of the table.
        checkpoint: version of the checkpoint; 0 for none.
        columns: the fields to read, each as ``kind.field``, all of one kind.

    Returns:
        The actions, each a dict of the fields; empty without a checkpoint; None if the checkpoint is not one file, or was removed.
    """
    if not checkpoint:
        return []
    try:
        files, name = file_system(f"{path}/{LOG}/{checkpoint_of(checkpoint)}")
        with files.open_input_file(name) as content, pq.ParquetFile(content) as file:
            table = file.read(columns=list(columns), use_threads=False)
    except FileNotFoundError:
        return None
    name = columns[0].split(".")[0]
    if name not in table.column_names:
        return []
    kind = table[name].combine_chunks()
    return list(kind.filter(kind.is_valid()).to_pylist())


def _checkpoint_and_newest(path: str) -> tuple[int, int] | None:
    """(version of the last checkpoint or 0 for none, version of the newest entry) of a table; None if they are unknown."""
    checkpoint, last = checkpointed(path), newest(path)
    return None if checkpoint is None or last is None else (checkpoint, last)


def commit_info(entry: Entry) -> dict[str, Any]:
    """The ``commitInfo`` action of an entry; empty if the entry has none."""
    infos = (json.loads(line).get("commitInfo") for line in entry.content.splitlines() if b'"commitInfo"' in line)
    return next((dict(said) for said in infos if said is not None), {})


def checkpointed(path: str) -> int | None:
    """The version of the last checkpoint of a table; 0 if there is none yet; None if ``_last_checkpoint`` is malformed."""
    try:
        content = (
            Path(path, LOG, "_last_checkpoint").read_bytes()
            if is_local(path)
            else read(f"{path}/{LOG}/_last_checkpoint")
        )
        return 0 if content is None else int(json.loads(content)["version"])
    except FileNotFoundError:
        return 0
    except (
        ValueError,
        LookupError,
        TypeError,
    ):  # half written, or by another program: callers then open the table
        return None


def has_entry(path: str, version: int) -> bool:
    """Whether the log entry of a table version is there."""
    return exists(f"{path}/{LOG}/{entry_of(version)}")
