"""The small tables ``starts`` and ``ticks`` of a timeline, with one row per start or micro-batch. Upkeep merges their files (``retention``)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.lake.folder.copies import copy, files_of
from floodmark.lake.table import history
from floodmark.lake.table.commits import Ticked


def reached(path: str) -> int | None:
    """The greatest ``reached`` of a table of ticks, from statistics if possible; None without ticks."""
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    name = "max.reached"
    if name in actions.column_names and not actions[name].null_count:
        return pc.max(actions[name]).as_py()  # type: ignore[no-any-return]  # a bigint
    return pc.max(DeltaTable(path).to_pyarrow_table(columns=["reached"])["reached"]).as_py()  # type: ignore[no-any-return]


def ticked(path: str, batch: int) -> int:
    """The last version of ``ticks`` before the first commit of a micro-batch after ``batch``."""
    version = int(DeltaTable(path).version())
    for commit in history.every(path):
        if isinstance(commit.record, Ticked):
            if commit.record.batch <= batch:
                break
            version = commit.version - 1
    return version


def copied(source: str, target: str, version: int) -> None:
    """Copy a table of marks up to a version."""
    for path in files_of(source):
        name = path.split("/")[-1]
        if path.startswith("_delta_log/") and (not name[:20].isdigit() or int(name[:20]) > version):
            continue
        copy(f"{source}/{path}", f"{target}/{path}")
