"""Statistics of files that a table no longer has: least and greatest values of columns, in the entries and checkpoints of its log.

They may be values of a removed row. No reader needs them: the files are gone. What floodmark reads of old entries, its own columns, stays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.lake.folder.paths import is_local
from floodmark.lake.folder.storage import file_system, files, read, remove, write
from floodmark.lake.restore import versions
from floodmark.lake.table.entries import LOG

_BOUNDS = ("minValues", "maxValues")


def strip(path: str) -> int:
    """Remove the bounds of a table's columns from the statistics of files that its newest version lacks. Repeatable.

    Readers see the old content of an entry or the new; a local entry keeps its date, which Delta takes for the date of the commit.

    Args:
        path: path of the table.

    Returns:
        Number of files of the log that were rewritten.
    """
    live, changed = versions.named(DeltaTable(path)), 0
    for name in files(f"{path}/{LOG}"):
        location = f"{path}/{LOG}/{name}"
        if name.endswith(".crc"):  # Delta's summary of a version, which may list files with their statistics; optional
            remove(location)
        elif name.endswith(".json"):
            changed += _strip_entry(location, live)
        elif name.endswith(".parquet"):
            changed += _strip_checkpoint(location, live)
        crash.point("forget.after_statistics")
    return changed


def _strip_entry(location: str, live: Collection[str]) -> bool:
    content = read(location) or b""
    lines, changed = list[bytes](), False
    for line in content.splitlines():
        document = json.loads(line)
        action = document.get("add") or document.get("remove")
        stats = None if action is None else _stripped(action, live)
        if action is not None and stats is not None:
            action["stats"], changed = stats, True
            lines.append(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())
        else:
            lines.append(line)
    if changed:
        _replace(location, b"\n".join(lines) + b"\n")
    return changed


def _stripped(action: dict[str, Any], live: Collection[str]) -> str | None:
    """The statistics of an action without bounds of the table's columns; None if they stay as they are."""
    text = action.get("stats")
    if not text or unquote(action["path"]) in live:
        return None
    stats = json.loads(text)
    bare = {
        name: {column: bound for column, bound in value.items() if column.startswith("_")} if name in _BOUNDS else value
        for name, value in stats.items()
    }
    return None if bare == stats else json.dumps(bare)


def _strip_checkpoint(location: str, live: Collection[str]) -> bool:
    system, path = file_system(location)
    table = pq.read_table(path, filesystem=system, partitioning=None)
    if "add" not in table.column_names:
        return False
    added = table["add"].combine_chunks()
    names, columns = [one.name for one in added.type], added.flatten()
    if "stats" not in names:
        return False
    number = names.index("stats")
    pairs = zip(columns[names.index("path")].to_pylist(), columns[number].to_pylist(), strict=True)
    texts = [
        None if name is None else _stripped({"path": name, "stats": stats}, live) or stats for name, stats in pairs
    ]
    if texts == columns[number].to_pylist():
        return False
    columns[number] = pa.array(texts, columns[number].type)
    whole = pa.StructArray.from_arrays(columns, fields=list(added.type), mask=pc.is_null(added))
    position = table.column_names.index("add")
    out = pa.BufferOutputStream()
    pq.write_table(table.set_column(position, table.schema.field(position), whole), out)
    _replace(location, out.getvalue().to_pybytes())
    return True


def _replace(location: str, content: bytes) -> None:
    if not is_local(location):
        write(location, content)
        return
    file = Path(location)
    dates = file.stat()
    write(location, content)
    os.utime(file, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    with suppress(FileNotFoundError):  # Hadoop's checksum of the old content
        file.with_name(f".{file.name}.crc").unlink()
