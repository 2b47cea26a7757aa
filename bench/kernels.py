"""Kernels alone, without an engine: CPU seconds per micro-batch of sessions and of deduplication, and a digest of rows and state.

    python bench/kernels.py [sessions once] [--micro-batches 8] [--rows 125000]

Two versions that print one digest emit equal rows and write equal state. To compare versions on a busy machine, run them in turn.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

import data
import keyed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import windows

from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore

GROUPS, BEHIND = 24, 5_000
OPERATORS = {"sessions": (windows.sessions, 100_000), "once": (keyed.once, 1_000_000)}
"""Operator, and how many users it sees."""


def batches(name: str, users: int, number: int, rows: int) -> Any:
    """(packed rows, progress behind them) of each micro-batch, as a landed log stamps them."""
    rng, watermark = np.random.default_rng(100), -(1 << 50)
    for batch in range(number):
        events = data.batch(rng, batch * rows, rows, 100, users)
        times = events["at"].cast(pa.int64()).to_numpy() // 1000
        reached = np.maximum.accumulate(np.maximum(times - BEHIND, watermark))
        groups = pa.array((events["user"].to_numpy() % GROUPS).astype("int32"))
        columns = {"group": groups, "k0": events["user"].cast(pa.int64()), "t": pa.array(times)}
        columns |= {"w": pa.array(np.r_[watermark, reached[:-1]]), "s": pa.array(np.arange(rows) + batch * rows)}
        columns["kind"] = pa.array(np.zeros(rows, "int32"))
        watermark = int(reached[-1])
        if name == "sessions":
            columns["v0"] = events["ad"].cast(pa.int64())
            yield pa.table(columns).filter(pc.equal(events["kind"], "view")), watermark
        else:
            own = ("user", "at", "ad")
            columns["row"] = pa.StructArray.from_arrays([events[n].combine_chunks() for n in own], names=list(own))
            yield pa.table(columns), watermark


def measure(name: str, number: int, rows: int) -> None:
    """One operator, micro-batch by micro-batch."""
    operator, users = OPERATORS[name]
    stage: Any = stage_of(operator)
    stores, digest = {group: MemoryStore() for group in range(GROUPS)}, hashlib.sha256()
    seconds, emitted = [], 0
    for table, progress in batches(name, users, number, rows):
        packed = stage.pack(table.to_batches())
        began, results = time.process_time(), []
        for group, store in stores.items():
            parts = [packed[group]] if group in packed else []
            results.append(kernel_of(stage, store).advance(parts, progress).results)
        seconds.append(time.process_time() - began)
        for result, store in zip(results, stores.values(), strict=True):
            emitted += result.num_rows
            digest.update(repr((result.to_pydict(), store.head, sorted(store.chunks.items()))).encode())
    told = ", ".join(f"{second:.2f}" for second in seconds)
    print(f"{name}: {sum(seconds):.2f} s of CPU ({told}), {emitted:,} rows, digest {digest.hexdigest()[:16]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(OPERATORS))
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--rows", type=int, default=125_000)
    options = parser.parse_args()
    for name in options.names:
        measure(name, options.micro_batches, options.rows)


if __name__ == "__main__":
    main()
