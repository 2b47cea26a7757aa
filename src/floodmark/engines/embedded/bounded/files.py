"""Parquet files by which the rows of a bounded run are passed between Sail and the kernels."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.core.memory import worker_memory
from floodmark.engines.embedded.bounded.final import LastRows
from floodmark.engines.embedded.bounded.groups import RESULTS, Results, Work, computed
from floodmark.engines.frames.portions import AT
from floodmark.engines.frames.sorting import sorted_batches
from floodmark.lake.table.rows import plain_type, row_schema
from floodmark.semantics.kernels.columnar import Stage
from floodmark.spec.values.schema import Schema

BUCKET = "_bucket"
"""The column that divides key groups among buckets."""
LAST = "_last"
"""The name of the last rows among the names of outputs."""
_ALIKE = ("_kind", "_ingest_time", "_progress")
"""Stamps that many rows have in common, for which a dictionary of values is small, as often for texts."""
_FEW_ROWS, _GATHERED = 1 << 16, 1 << 26
"""Rows of a file that is large enough for a table; most bytes of small files that become one, and of their rows that are in memory."""
_SORTED, _READ, _BATCH = 1 << 29, 1 << 20, 1 << 22
"""Most bytes of rows that are sorted in memory, however much there is; bytes of a column, and of rows, that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Some of the key groups.

    Args:
        number: of the bucket.
        source: folder with the bucket's rows, as Sail has written them.
        target: folder in which each output has a folder.
    """

    number: int
    source: str
    target: str


def counted(folder: str) -> int:
    """The number of rows in all files below a folder."""
    return sum(pq.read_metadata(file).num_rows for file in Path(folder).rglob("*.parquet"))


def outputs(work: Work) -> dict[str, Schema]:
    """``RESULTS`` and the side outputs, in the order of their folders, with their columns; ``LAST`` if last rows are wanted."""
    results = {RESULTS: work.stage.step.schema if work.final is None else work.final.schema}
    last = {LAST: work.final.schema} if work.final is not None and work.final.keys else {}
    return {**results, **{name: schema for name, (_, schema) in work.sides.items()}, **last}


def folder_of(work: Work, target: str, output: str) -> Path:
    """The folder of an output's rows."""
    return Path(target) / str(list(outputs(work)).index(output))


def write_empty(work: Work, target: str) -> None:
    """Write a file without rows for each output, so that each output has a file to read."""
    for output, schema in outputs(work).items():
        folder = folder_of(work, target, output)
        folder.mkdir(parents=True)
        pq.write_table(row_schema(schema).empty_table(), folder / "empty.parquet")


def fill(work: Work, bucket: Bucket) -> tuple[int, int]:
    """Compute a bucket and write its rows. A repeated call writes the same files.

    Returns:
        Number of late rows and of dropped (row, window) pairs.
    """
    rows, memory = _rows(bucket.source), work.memory or worker_memory()
    if not isinstance(work.stage, Stage):
        rows = sorted_batches(rows, ("group", AT), min(memory // 4, _SORTED))
    with ExitStack() as writers:
        files = _Files(work, bucket, writers, memory // 16)
        results = Results(files.write)
        computed(work, rows, results)
        files.end()
    return results.late, results.dropped


class _Files:
    """The files of a bucket: one for each output, which the first rows create.

    Args:
        work: of which they are.
        bucket: whose rows they have.
        writers: closes them.
        memory: most bytes of last rows that are held.
    """

    def __init__(self, work: Work, bucket: Bucket, writers: ExitStack, memory: int) -> None:
        self._work, self._bucket, self._writers = work, bucket, writers
        self._schemas, self._opened = outputs(work), dict[str, pq.ParquetWriter]()
        self._held: dict[str, list[pa.Table]] = {}
        self._last = LastRows(work.final.keys, memory) if work.final is not None and work.final.keys else None

    def write(self, output: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Append rows to the file of an output."""
        table = pa.Table.from_batches(batches)
        if output == RESULTS and self._work.final is not None:
            table = self._work.final.rows(table)
            if self._last is not None:
                self._last.add(table)
        self._append(output, table)

    def end(self) -> None:
        """Write what is held, and the last rows, if all have been held."""
        rows = None if self._last is None else self._last.rows()
        if rows is not None:
            self._append(LAST, rows)
        for output in self._held:
            self._flush(output)

    def _append(self, output: str, table: pa.Table) -> None:
        held = self._held.setdefault(output, [])
        held.append(table)
        if sum(part.num_rows for part in held) >= _FEW_ROWS or sum(part.nbytes for part in held) >= _BATCH:
            self._flush(output)

    def _flush(self, output: str) -> None:
        """Write the rows of an output that are held as a row group."""
        held, schema = self._held[output], row_schema(self._schemas[output])
        if not held:
            return
        if output not in self._opened:
            path = folder_of(self._work, self._bucket.target, output) / f"{self._bucket.number}.parquet"
            coded = [field.name for field in schema if field.name in _ALIKE or pa.types.is_string(field.type)]
            writer = pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=coded)
            self._opened[output] = self._writers.enter_context(writer)
        self._opened[output].write_table(pa.concat_tables(held).cast(schema))
        held.clear()


def last_of(work: Work, target: str) -> Path | None:
    """The folder of the last rows, after all buckets are computed; None if a bucket has not written its own."""
    if LAST not in outputs(work):
        return None
    rows, last = (folder_of(work, target, output) for output in (RESULTS, LAST))
    return last if {file.name for file in rows.iterdir()} == {file.name for file in last.iterdir()} else None


def gather(source: Path, target: Path) -> None:
    """Move the files with rows of one folder into another one; many small ones become one file."""
    footers = {file: footer for file in sorted(source.glob("*.parquet")) if (footer := pq.read_metadata(file)).num_rows}
    rows, size = sum(footer.num_rows for footer in footers.values()), sum(map(_bytes, footers.values()))
    if len(footers) > 1 and rows < len(footers) * _FEW_ROWS and size < _GATHERED:
        _merge(list(footers), target / "0.parquet")
        return
    for file in footers:
        shutil.move(file, target / file.name)


def _merge(files: Sequence[Path], target: Path) -> None:
    """Write the rows of files of one schema into one file. Values that repeat take more in memory than in files, so a part is there at a time."""
    with pq.ParquetWriter(target, pq.read_schema(files[0]), compression="zstd") as writer:
        held = list[pa.Table]()
        for file in files:
            with pq.ParquetFile(file) as parquet:
                for number in range(parquet.num_row_groups):
                    held.append(parquet.read_row_group(number))
                    if sum(part.nbytes for part in held) >= _GATHERED:
                        writer.write_table(pa.concat_tables(held))
                        held.clear()
        if held:
            writer.write_table(pa.concat_tables(held))


def _rows(folder: str) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket with the types that kernels get from Spark."""
    for path in sorted(Path(folder).rglob("*.parquet")):
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ) as file:
            fields = [pa.field(f.name, plain_type(f.type)) for f in file.schema_arrow if f.name != BUCKET]
            schema = pa.schema(fields)
            size = max(1, min(1 << 14, _BATCH * file.metadata.num_rows // _bytes(file.metadata)))
            for batch in file.iter_batches(batch_size=size, columns=schema.names, use_threads=False):
                if batch.num_rows:
                    yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def _bytes(metadata: pq.FileMetaData) -> int:
    """Bytes of the rows of a file, before they are compressed."""
    return 1 + sum(int(metadata.row_group(number).total_byte_size) for number in range(metadata.num_row_groups))
