"""Compaction of outputs: the same rows in the same order in fewer files, without what says nothing any more; others write meanwhile. No JVM starts."""

from __future__ import annotations

import errno
import itertools
import random
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from streams import WINDOWED

from floodmark.core.time import Interval
from floodmark.lake.table import changes, history
from floodmark.lake.table.commits import BoundedRun, MicroBatch
from floodmark.lake.table.files import Written
from floodmark.lake.table.outputs import table_schema
from floodmark.lake.table.rows import marker, row_schema
from floodmark.lake.table.sequences import last_read, results_in_order
from floodmark.lake.writing import compaction
from floodmark.lake.writing.compaction import carry_out, compact, of_output
from floodmark.lake.writing.writer import Writer
from floodmark.spec.graph.operator import Input, OutputRef
from floodmark.spec.values.schema import BOUNDED, MARKER, PARTITION, Column, Schema, first_sequence
from floodmark.spec.windowing.partitions import Hourly

OWN = Schema((Column(name="n", type="bigint"),))
RESULTS = Input(name="o", table="o", schema=OWN, upstream=OutputRef(WINDOWED, ""))
CUT = Hourly("1970-01-01")
HOUR = 3_600
SMALL = 9_000
"""Bytes that a file has here once it is compacted."""


class Output:
    """An output of a stream, whose rows the test knows."""

    def __init__(self, path: Path, seed: int, *, divided: bool = False) -> None:
        self.path, self.draw, self.divided = str(path), random.Random(seed), divided
        self.batches, self.numbers, self.clock = itertools.count(), itertools.count(), 1_000
        self.rows = dict[int, tuple[int, int | None]]()  # n -> event time in seconds, progress
        self.progress = 0
        schema = table_schema(OWN, CUT if divided else None)
        DeltaTable.create(self.path, schema, partition_by=[PARTITION] if divided else None)

    def batch(self) -> None:
        """A micro-batch; now and then one without rows, and without progress."""
        number = next(self.batches)
        self.progress += self.draw.choice([0, 1, 60])
        found = itertools.islice(self.numbers, self.draw.choice([0, 1, 1, 40]))
        rows = [(n, first_sequence(number) + place, self.progress) for place, n in enumerate(found)]
        self._append(number, rows, settled=False)

    def settle(self) -> None:
        """A marker behind the last micro-batch."""
        self.progress += 5
        self._append(next(self.batches), [], settled=True)

    def _append(self, number: int, rows: list[tuple[int, int, int]], *, settled: bool) -> None:
        moments = {n: self.draw.randrange(5 * HOUR) for n, _, _ in rows}
        self.rows |= {n: (moment, self.progress) for n, moment in moments.items()}
        mark = marker(OWN, watermark=self.progress, sequence=None, now=0)
        table = pa.concat_tables([_table(rows, moments), pa.Table.from_batches([mark])])
        said = MicroBatch(
            operator="o", version="o@1", timeline=0, table="o", batch=number, progress=self.progress, settled=settled
        )
        self.clock += 5
        assert Writer(self.path).append(
            lambda: self._written(table), said, ("o/settle" if settled else "o", number), modified=self.clock
        )

    def _written(self, table: pa.Table) -> Written:
        folder = Path(self.path, uuid.uuid4().hex)
        folder.mkdir()
        if not self.divided:
            pq.write_table(table, folder / "part-00000.parquet")
            return Written(folder=folder)
        moments = [
            None if moment is None else CUT.key(int(moment.timestamp() * 1000))
            for moment in table["_event_time"].to_pylist()
        ]
        for key in sorted(set(moments), key=str):
            place = folder / f"{PARTITION}={key or '__HIVE_DEFAULT_PARTITION__'}"
            place.mkdir()
            pq.write_table(table.filter(pa.array([one == key for one in moments])), place / "part-00000.parquet")
        return Written(folder=folder, partition_by=(PARTITION,))

    def bounded(self) -> None:
        """A bounded run puts rows of an hour in place of those that are there."""
        hour, n = self.draw.randrange(5), next(self.numbers)
        self.rows = {n: row for n, row in self.rows.items() if row[0] // HOUR != hour}
        table = _table([(n, BOUNDED + n, None)], {n: hour * HOUR})
        self.rows[n] = (hour * HOUR, None)
        interval = Interval(start=hour * HOUR * 1000, end=(hour + 1) * HOUR * 1000)
        said = BoundedRun(
            operator="o", version="o@1", fingerprint="", table="o", interval=interval, late_rows="all", inputs={}
        )
        low = datetime.fromtimestamp(hour * HOUR, UTC)
        high = datetime.fromtimestamp((hour + 1) * HOUR - 1, UTC)
        writer = Writer(self.path)
        if not writer.replace(self._written(table), low, high, said):
            writer.replace_rows(self._written(table), low, high, said)

    def files(self) -> list[dict[str, Any]]:
        return pa.table(DeltaTable(self.path).get_add_actions(flatten=True)).to_pylist()

    def read(self) -> list[dict[str, Any]]:
        """All rows, as files of their own, which hold what their names say of them."""
        files = {file["path"]: file.get(f"partition.{PARTITION}") for file in self.files()}
        held = {path: pq.read_table(Path(self.path, unquote(path)), partitioning=None).to_pylist() for path in files}
        return [row | {PARTITION: files[path]} for path, rows in held.items() for row in rows]

    def check(self) -> None:
        rows = [row for row in self.read() if row["_kind"] != MARKER]
        assert {row["n"]: (int(row["_event_time"].timestamp()), row["_progress"]) for row in rows} == self.rows
        assert len(rows) == len(self.rows)
        if self.divided:
            assert all(row[PARTITION] == CUT.key(int(row["_event_time"].timestamp() * 1000)) for row in rows)
        assert (
            max((row["_progress"] for row in self.read() if row["_progress"] is not None), default=0) == self.progress
        )
        through_log = DeltaTable(self.path).to_pyarrow_table().filter(pa.compute.field("_kind") != MARKER)
        assert sorted(through_log["n"].to_pylist()) == sorted(self.rows)


MADE = pytest.mark.parametrize(
    ("seed", "divided"),
    [
        (0, False),
        (1, True),
        *(
            pytest.param(seed, divided, marks=pytest.mark.soak)
            for seed in range(10)
            for divided in (False, True)
            if (seed, divided) not in {(0, False), (1, True)}
        ),
    ],
)
"""Outputs; ``make soak`` makes others."""


def _table(rows: list[tuple[int, int, int | None]], moments: dict[int, int]) -> pa.Table:
    own = [
        {
            "n": n,
            "_event_time": datetime.fromtimestamp(moments[n], UTC),
            "_watermark": progress,
            "_progress": progress,
            "_sequence": sequence,
            "_ingest_time": datetime.fromtimestamp(0, UTC),
            "_kind": 0,
        }
        for n, sequence, progress in rows
    ]
    return pa.Table.from_pylist(own, schema=row_schema(OWN))


@MADE
@pytest.mark.few(1)
def test_rows_and_progress_stay_and_markers_go(tmp_path: Path, seed: int, divided: bool) -> None:
    output = Output(tmp_path / "o", seed, divided=divided)
    for _ in range(3):
        for _ in range(8):
            output.batch()
        output.settle()
        before = len(output.files())
        fewer = compact(output.path, SMALL * output.draw.choice([1, 3]), of_output)
        assert len(output.files()) == before - fewer < before
        output.check()
        marks = sum(row["_kind"] == MARKER for row in output.read())
        assert marks <= len(output.files())
    compact(output.path, plan=of_output)
    output.check()
    if not divided:
        assert results_in_order(DeltaTable(output.path)) is not None
    assert sum(row["_kind"] == MARKER for row in output.read()) <= 2
    assert not compact(output.path, plan=of_output) or divided


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 10))])
def test_files_are_read_in_order_whatever_was_merged(tmp_path: Path, seed: int) -> None:
    """Sequences and progress of what is read only grow, markers too, until a bounded run has written between."""
    output = Output(tmp_path / "o", 200 + seed)
    for _ in range(4):
        for _ in range(6):
            output.batch()
        output.draw.choice([output.settle, lambda: compact(output.path, SMALL, of_output)])()
        table = DeltaTable(output.path)
        files = results_in_order(table)
        assert files is not None
        assert {file.path for file in files} == {file["path"] for file in output.files()}
        rows = [row for file in files for row in pq.read_table(Path(output.path, file.path)).to_pylist()]
        reached = [row["_progress"] for row in rows]
        assert reached == sorted(reached)
        sequences = [row["_sequence"] for row in rows if row["_kind"] != MARKER]
        assert sequences == sorted(sequences)
        assert len(sequences) == len(output.rows)
        assert last_read(output.path, table.version(), -1, RESULTS) == max(sequences, default=-1)
    version = DeltaTable(output.path).version()
    assert not history.replaced(output.path, -1)
    output.bounded()
    assert results_in_order(DeltaTable(output.path)) is None
    assert history.replaced(output.path, version)
    output.batch()
    assert not history.replaced(output.path, version + 1)
    version = DeltaTable(output.path).version()
    output.batch()
    DeltaTable(output.path).create_checkpoint()
    for gone in range(version + 1):
        Path(output.path, "_delta_log", f"{gone:020d}.json").unlink()
    assert not history.replaced(output.path, version)
    assert history.replaced(output.path, version - 1), "nobody knows what the commit did that is gone"


@MADE
@pytest.mark.few(1)
def test_rows_bounded_runs_have_put_between_stay_too(tmp_path: Path, seed: int, divided: bool) -> None:
    output = Output(tmp_path / "o", 100 + seed, divided=divided)
    for _ in range(4):
        for _ in range(4):
            output.batch()
        output.draw.choice([output.bounded, output.settle])()
        compact(output.path, SMALL, of_output)
        output.check()


def test_what_a_bounded_run_has_replaced_meanwhile_is_left_alone(tmp_path: Path) -> None:
    output = Output(tmp_path / "o", 7)
    for _ in range(20):
        output.batch()
    writer = Writer(output.path)
    plan = of_output(writer.table())
    assert plan.runs
    for _ in range(4):
        output.bounded()
    assert carry_out(writer, compaction.Plan(plan.runs, keep_markers=False)) == 0
    output.check()


def test_a_change_is_known_when_its_file_was_merged_or_taken_out_again(tmp_path: Path) -> None:
    output = Output(tmp_path / "o", 8)
    for _ in range(9):
        output.batch()
    version = DeltaTable(output.path).version()
    known = set(output.rows)
    while set(output.rows) == known:
        output.batch()
    compact(output.path, plan=of_output)

    def touched(moment: int) -> bool:
        found = changes.between(output.path, version, DeltaTable(output.path).version(), log=False)
        return found.touch(Interval(start=moment * 1000, end=moment * 1000 + 1))

    new = [moment for n, (moment, _) in output.rows.items() if n not in known]
    assert all(map(touched, new))
    old = [moment for n, (moment, _) in output.rows.items() if n in known]
    assert not all(map(touched, old))
    version = DeltaTable(output.path).version()
    compact(output.path, plan=of_output)
    before = dict(output.rows)
    output.bounded()
    gone = [moment for n, (moment, _) in before.items() if n not in output.rows]
    assert gone
    assert all(map(touched, gone))


def test_a_disk_that_is_full_in_the_middle_leaves_the_table_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Output(tmp_path / "o", 9)
    for _ in range(9):
        output.batch()
    files = output.files()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            carry_out(Writer(output.path), compaction.Plan(of_output(DeltaTable(output.path)).runs, keep_markers=False))
    assert output.files() == files
    output.check()
    assert compact(output.path, plan=of_output) > 0
    output.check()
