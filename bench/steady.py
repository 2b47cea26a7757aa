"""An embedded stream over very many micro-batches: whether anything grows with each of them.

    python bench/steady.py [MICRO_BATCHES] [LAKE] [--rows 100]

Each micro-batch takes 100 rows, or ``--rows``, of 20 keys and closes the windows of the one before it. They land first, into LAKE where one is named, and not
at all where it has them. Measured are, every hundredth part: wall and CPU ms of the micro-batches since the last time, memory of the stream's
process and of its server, open files, and files and bytes in the folder of the checkpoint. What is printed at the end are slopes by least
squares over the later half, per 1,000 micro-batches, and the servers that were used; the last line is the memory of all samples as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import micro_batch
import numpy as np
import psutil
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.files import Written
from floodmark.lake.table.outputs import PROPERTIES
from floodmark.lake.writing.writer import Writer
from floodmark.spec.values.run import BatchInfo
from floodmark.testing.lakes import as_written

micro_batch.KEYS = 20
SAMPLES, CHECKPOINTS = 100, 100
"""Most samples that are taken; micro-batches from one checkpoint of a table to the next, which is written beside the stream."""
_MEGABYTE = 1 << 20
UNITS = {
    "wall": "ms per micro-batch",
    "cpu": "ms per micro-batch",
    "driver": "MB",
    "server": "MB",
    "open": "files",
    "files": "files in the checkpoint",
    "size": "MB in the checkpoint",
}


@dataclass
class Sampled:
    """What is measured on the way.

    Args:
        lake: the stream runs in.
        sail: it runs on.
        every: micro-batches.
    """

    lake: Lake
    sail: Sail
    every: int
    samples: list[dict[str, float]] = field(default_factory=list)
    longest: float = 0
    done: int = 0
    rows: int = 0
    _sampled: int = 0
    _wall: float = 0
    _cpu: float = field(default_factory=time.process_time)

    def told(self, batch: BatchInfo) -> None:
        """A micro-batch is done."""
        self.done, self._wall, self.rows = self.done + 1, self._wall + batch.seconds, self.rows + batch.rows_in
        self.longest = max(self.longest, batch.seconds) if self.done > self.every else 0
        if self.done % self.every != self.every // 2 or self.done % CHECKPOINTS == 0:  # when no checkpoint begins
            return
        process, cpu, taken = psutil.Process(), time.process_time(), self.done - self._sampled
        with self.sail.lent() as connection:
            server = connection.server.megabytes
        sizes = list(_sizes(Path(Timeline.current(self.lake, micro_batch.one.name).folder(CHECKPOINT))))
        found = {
            "batch": self.done,
            "wall": self._wall / taken * 1000,
            "cpu": (cpu - self._cpu) / taken * 1000,
            "driver": process.memory_info().rss / _MEGABYTE,
            "server": server,
            "open": process.num_fds(),
            "files": len(sizes),
            "size": sum(sizes) / _MEGABYTE,
        }
        self.samples.append(found)
        self._wall, self._cpu, self._sampled = 0, time.process_time(), self.done
        print("  ".join(f"{name} {value:.1f}" for name, value in found.items()), flush=True)

    def slopes(self) -> dict[str, float]:
        """Per 1,000 micro-batches, over the later half."""
        half = self.samples[len(self.samples) // 2 :]
        batches = [sample["batch"] / 1000 for sample in half]
        return {name: float(np.polyfit(batches, [sample[name] for sample in half], 1)[0]) for name in UNITS}


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except FileNotFoundError:  # removed meanwhile
            continue


def land(lake: Lake, count: int) -> None:
    """A commit per micro-batch."""
    path = lake.input(micro_batch.one.inputs[0])
    # each checkpoint names all files, and landing is not what is measured
    rarely = {"delta.checkpointInterval": "10000"}
    write_deltalake(path, as_written(micro_batch.commit(0)).slice(0, 0), configuration={**PROPERTIES, **rarely})
    writer = Writer(path)
    for number in range(count):

        def write(number: int = number) -> Written:
            folder = Path(path, uuid.uuid4().hex)
            folder.mkdir()
            pq.write_table(as_written(micro_batch.commit(number)), folder / "part-0.parquet")
            return Written(folder=folder)

        record = Landing(
            source="events", ordinal=number, rows=micro_batch.ROWS, next_sequence=(number + 1) * micro_batch.ROWS
        )
        writer.append(write, record, ("land/events", number))
    table = DeltaTable(path)
    table.create_checkpoint()
    table.alter.set_table_properties({name: PROPERTIES[name] for name in rarely})


def main() -> None:
    """Land, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("logs", nargs="?")
    parser.add_argument("--rows", type=int, default=100)
    asked = parser.parse_args()
    count, logs, micro_batch.ROWS = asked.count, asked.logs, asked.rows
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        lake, sail = Lake(folder, logs=logs), Sail(memory=300)
        if not Path(lake.input(micro_batch.one.inputs[0])).exists():
            land(lake, count)
        sampled = Sampled(lake, sail, max(1, count // SAMPLES))
        run_unbounded(sail, micro_batch.one, lake, until_caught_up=True, files_per_batch=1, on_batch=sampled.told)
        assert sampled.done == count
        sail.close()
    print(f"{count} micro-batches, {sail.started} servers, the longest micro-batch {sampled.longest * 1000:.0f} ms")
    for name, slope in sampled.slopes().items():
        print(f"  {name}: {sampled.samples[-1][name]:.1f} {UNITS[name]}, {slope:+.3f} per 1,000 micro-batches")
    told = {"servers": sail.started, "rows": sampled.rows}
    print(
        json.dumps(
            {**told, "driver": [s["driver"] for s in sampled.samples], "server": [s["server"] for s in sampled.samples]}
        )
    )


if __name__ == "__main__":
    main()
