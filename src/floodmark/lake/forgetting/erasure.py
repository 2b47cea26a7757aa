"""Removal of rows from a log or a quarantine: each file that has some is replaced by a file without them.

All other rows keep their sequences, stamps and order, so that positions, lateness and the order of files stay valid: a log has gaps in ``_sequence``
where rows were removed. The commits set ``dataChange=false``: no reader takes them for new rows.
"""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.lake.folder.storage import file_system
from floodmark.lake.forgetting.matching import Mask
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Forgotten
from floodmark.lake.writing import compaction
from floodmark.lake.writing.compaction import File
from floodmark.lake.writing.writer import Writer


def matching_rows(path: str, mask: Mask) -> int:
    """Number of rows of a table's newest version that a mask selects; 0 without a table."""
    if not entries.is_table(path):
        return 0
    table = DeltaTable(path)
    return sum(_selected(path, table, file, mask)[0] for file in compaction.files_of(table))


def erase(path: str, mask: Mask) -> int:
    """Remove the rows that a mask selects. Repeatable.

    Args:
        path: path of the table; nothing is done without a table.
        mask: the rows to remove.

    Returns:
        Number of rows removed.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
    """
    if not entries.is_table(path):
        return 0
    writer, removed, again = Writer(path), 0, True
    while again:
        again, table = False, writer.table()
        for file in compaction.files_of(table):
            selected, others = _selected(path, table, file, mask)
            if not selected:
                continue
            old, new = compaction.without(path, table, file, mask, empty=not others)
            crash.point("forget.before_rows")
            if writer.rewrite(old, new, Forgotten(rows=selected)):
                removed += selected
            else:  # another writer has merged the file since
                again = True
            crash.point("forget.after_rows")
    return removed


def _selected(path: str, table: DeltaTable, file: File, mask: Mask) -> tuple[int, int]:
    """(rows that the mask selects, other rows) of a file."""
    kinds = pa.schema(table.schema().to_arrow())
    constants = [(name, pa.scalar(value).cast(kinds.field(name).type)) for name, value in file.values]
    system, location = file_system(f"{path}/{unquote(file.path)}")
    selected = others = 0
    with system.open_input_file(location) as content:
        for batch in pq.ParquetFile(content).iter_batches():
            whole = batch
            for name, value in constants:
                whole = whole.append_column(name, pa.repeat(value, batch.num_rows))
            number = pc.sum(mask(whole)).as_py() or 0
            selected, others = selected + number, others + batch.num_rows - number
    return selected, others
