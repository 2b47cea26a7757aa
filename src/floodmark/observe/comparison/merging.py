"""Compaction of the table of windows of a comparison by steps: files of about one size are merged to one, and superseded rows are dropped.

Every size class holds fewer than ``FANOUT`` files, so that a table of n rows has in the order of log n files, and each row is rewritten in the order
of log n times. Replaced files stay until the next merge, so that running queries can finish.
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
from floodmark.lake.maintenance.expiry import expire
from floodmark.lake.table.files import Written
from floodmark.lake.writing.writer import Writer

FANOUT = 16
"""Files of one size class that are merged to one; also the number of steps between two merges."""


def merge(path: str, step: int, connection: duckdb.DuckDBPyConnection) -> None:
    """Every ``FANOUT`` steps, merge each size class with enough files, and remove files left by earlier merges and killed processes.

    Args:
        path: path of the table. The caller must be its only writer.
        step: number of the last committed step.
        connection: DuckDB.
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
    shutil.rmtree(target, ignore_errors=True)  # left by a process that was killed
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
    """Remove the folders of files that are not part of the newest version."""
    named = {Path(file).parts[0] for file in files}
    for folder in Path(path).iterdir():
        if folder.name not in {*named, "_delta_log"}:
            shutil.rmtree(folder)
