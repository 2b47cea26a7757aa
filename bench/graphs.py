"""Page rank and connected components of a random graph on the embedded engine, killed with ``kill -9`` and resumed, beside NetworkX: seconds, peak memory, answers compared.

    python bench/graphs.py [--edges 1000000] [--vertices 200000] [--kill-after 2]

The graph has as many edges as are asked for, some of them the same, between vertices that are drawn. The process that computes is killed once a superstep of that number is there, and
another one goes on. Ranks may differ from NetworkX's by the tolerance, and components are the same parts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import networkx
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from watching import Watch

from floodmark.engines.embedded.sail.session import Sail, on_sail
from floodmark.graphs.algorithms import connected_components, page_rank
from floodmark.graphs.graph import Graph
from floodmark.graphs.supersteps import Supersteps
from floodmark.lake.folder.paths import Lake

ALGORITHMS = {"ranks": page_rank, "sites": connected_components}
TOLERANCE = 1e-9
PARTS = 100


def compute(folder: str, name: str) -> None:
    """The run of one algorithm, in a process of its own."""
    lake, sail = Lake(folder), Sail(1500)
    graph = Graph(lake=lake, edges=f"{folder}/edges", source="a", target="b")
    settings = {"tolerance": TOLERANCE} if name == "ranks" else {}
    began = time.monotonic()
    done = on_sail(sail, lambda connection: ALGORITHMS[name](connection.spark, graph, name, **settings))
    seconds = time.monotonic() - began
    sail.close()
    print(json.dumps({"seconds": seconds, "supersteps": done.supersteps, "resumed": done.resumed}))


def run(folder: str, name: str, kill_after: int | None) -> dict[str, float]:
    """Run a process to its end, or kill it once a superstep is there: what it has printed, and its peak memory in MB."""
    command = [sys.executable, str(Path(__file__)), "--folder", folder, "--name", name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    watch = Watch(process.pid)
    if kill_after is not None:
        while process.poll() is None and _newest(folder, name) < kill_after:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == (0 if kill_after is None else -signal.SIGKILL), process.returncode
    return {**(json.loads(output.splitlines()[-1]) if output else {}), "peak_mb": watch.end().peak_memory_mb}


def _newest(folder: str, name: str) -> int:
    """The newest superstep that is done; -1 for none."""
    last = Supersteps(Lake(folder), name).last()
    return -1 if last is None else last.number


def timed(compute: Callable[[], object]) -> tuple[object, float]:
    """(what it returns, seconds)."""
    began = time.monotonic()
    return compute(), time.monotonic() - began


def main() -> None:
    """Make the graph, run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--vertices", type=int, default=200_000)
    parser.add_argument("--kill-after", type=int, default=2)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        compute(options.folder, options.name)
        return
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        draw = np.random.default_rng(1)
        part = options.vertices // PARTS  # edges stay within a part, and lead to its first vertices more often
        offsets = part * draw.integers(0, PARTS, options.edges)
        ends = (
            np.stack([draw.integers(0, part, options.edges), (part * draw.random(options.edges) ** 3).astype(int)])
            + offsets
        )
        write_deltalake(f"{folder}/edges", pa.table({"a": ends[0], "b": ends[1]}))
        graph = networkx.DiGraph()
        graph.add_edges_from(ends.T.tolist())
        for name in ALGORITHMS:
            killed = run(folder, name, options.kill_after)
            done = run(folder, name, None)
            rows = DeltaTable(Supersteps(Lake(folder), name).result).to_pyarrow_table()
            assert done["resumed"] is not None, "the killed run has left no superstep"
            if name == "ranks":
                wanted, seconds = timed(lambda: networkx.pagerank(graph, tol=TOLERANCE, max_iter=200))
                got = dict(zip(rows["id"].to_pylist(), rows["rank"].to_pylist(), strict=True))
                assert got.keys() == wanted.keys()
                furthest = max(abs(got[one] - rank) for one, rank in wanted.items())
                assert furthest < TOLERANCE * 10, furthest
                equal = f"ranks within {furthest:.1e}"
            else:
                wanted, seconds = timed(lambda: [*networkx.weakly_connected_components(graph)])
                got = dict(zip(rows["id"].to_pylist(), rows["component"].to_pylist(), strict=True))
                assert got == {one: min(part) for part in wanted for one in part}
                equal = f"{len(wanted):,} components, equal"
            print(
                f"{name}: {options.edges:,} edges, {graph.number_of_nodes():,} vertices: killed, resumed behind superstep {done['resumed']} of {done['supersteps']}, "
                f"then {done['seconds']:,.1f} s, peak {max(killed['peak_mb'], done['peak_mb']):,.0f} MB; NetworkX {seconds:,.1f} s; {equal}"
            )


if __name__ == "__main__":
    main()
