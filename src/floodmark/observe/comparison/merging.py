"""The table of windows of a comparison by steps, kept to few files: those of about one size become one file, and superseded rows go.

Every size class holds fewer than ``FANOUT`` files, so that a table of n rows has in the order of log n files, and each row is written again as
often. Files that were replaced stay until the next merge, for whoever reads the table meanwhile.
"""

from __future__ import annotations

import math
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from deltalake.transaction import RemoveAction

from floodmark.core import crash
from floodmark.core.sql import literal
from floodmark.lake.expiry import expire
from floodmark.lake.files import Written
from floodmark.lake.writer import Writer

FANOUT = 16
"""Files of one size class that become one; steps after which the table is looked at."""


def merge(path: str, step: int, connection: duckdb.DuckDBPyConnection) -> None:
    """Merge where there is enough to, and remove what an earlier merge or a killed process has left; nothing between two looks.

    Args:
        path: of the table; the caller is the only one who writes.
        step: that was committed last.
        connection: to ask on.
    """
    if step % FANOUT:
        return
    writer = Writer(path)
    actions = pa.table(writer.table().get_add_actions(flatten=True)).to_pylist()
    _remove_others(path, [unquote(action["path"]) for action in actions])
    classes = defaultdict[int, list[RemoveAction]](list)
    now = time.time_ns() // 1_000_000
    for action in actions:
        size = int(math.log(max(1, action["num_records"]), FANOUT))
        classes[size].append(RemoveAction(unquote(action["path"]), False, now, action["size_bytes"], {}))
    merged = [files for _, files in sorted(classes.items()) if len(files) >= FANOUT]
    for number, files in enumerate(merged):
        _rewrite(writer, connection, files, Path(path, f"merged-{step}-{number}"))
    if merged:
        writer.table().create_checkpoint()
        expire(path, floor=writer.table().version(), writer=writer)


def _rewrite(writer: Writer, connection: duckdb.DuckDBPyConnection, old: Sequence[RemoveAction], target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)  # of a process that was killed
    target.mkdir()
    listed = ", ".join(literal(f"{writer.path}/{one.path}") for one in old)
    rows = (
        f"SELECT * FROM read_parquet([{listed}], hive_partitioning = false) "
        "QUALIFY row_number() OVER (PARTITION BY cell ORDER BY step DESC) = 1 ORDER BY cell"
    )
    connection.execute(f"COPY ({rows}) TO {literal(f'{target}/cells.parquet')} (FORMAT parquet, COMPRESSION zstd)")
    crash.point("comparison.before_merge")
    new = [replace(one, data_change=False) for one in Written(folder=target).actions()]
    writer.rewrite(old, new)
    crash.point("comparison.after_merge")


def _remove_others(path: str, files: Sequence[str]) -> None:
    """Folders that the newest version does not name."""
    named = {Path(file).parts[0] for file in files}
    for folder in Path(path).iterdir():
        if folder.name not in {*named, "_delta_log"}:
            shutil.rmtree(folder)
