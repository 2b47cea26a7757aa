"""Views per campaign and ten seconds, as the texts vary it: from files, from the log, from rows made in the process; 100 to a million campaigns.

    python bench/variants.py [--rows 1000000] [--campaigns 100,1000,10000,100000,1000000] [--engines embedded,spark]

``files`` begins with files: they are checked and stamped into the log, and a stream reads it. ``log`` is the stream alone, its state inside the engine, its rows committed exactly once. ``made`` has
no files, no log and no table: rows are made, stamped and given to the kernel in this process, eight micro-batches of them, as a generator inside an engine does. ``made`` and
``log`` count a view once per campaign and window: both are compared with DuckDB's answer over the same rows. Processor seconds of the whole tree of processes, rows per second of wall clock, and
rows per second of processor time, which others on the machine disturb less. Asking for the results (queryable state against Redis) is ``bench/serve.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
FILES = 8


def made(rows: int, campaigns: int) -> tuple[dict[tuple[int, int], int], float, float]:
    """Counts, wall and processor seconds of rows that are made and counted in this process."""
    import data
    import numpy as np
    import pyarrow as pa
    from growth import cpu

    from floodmark.core.time import END
    from floodmark.engines.embedded.memory.run import MemoryRun
    from floodmark.semantics.encoding.columns import arrow_schema

    schema = arrow_schema(data.views_per_campaign.inputs[0].schema)
    rng, run, each = np.random.default_rng(campaigns), MemoryRun(data.views_per_campaign), rows // FILES
    results, reached, began, before = list[pa.Table](), -(2**62), time.perf_counter(), cpu()
    for number in range(FILES):
        table = data.batch(rng, number * each, each, campaigns)
        times = table["at"].cast("int64").to_numpy() // 1000
        watermarks = np.maximum(np.maximum.accumulate(times) - 5_001, reached)
        reached = int(watermarks[-1])
        stamps = {
            "_event_time": times,
            "_watermark": watermarks,
            "_progress": np.full(each, reached),
            "_sequence": np.arange(each) + number * each,
            "_kind": np.zeros(each, dtype=np.int32),
        }
        columns = {name: table[name].cast(schema.field(name).type) for name in schema.names}
        results.append(
            run.batch({"events": pa.table(columns | {name: pa.array(column) for name, column in stamps.items()})})[""]
        )
    end = pa.table(
        {
            **{name: pa.nulls(1, schema.field(name).type) for name in schema.names},
            **{n: pa.array([v], t) for n, v, t in _marker(rows, END)},
        }
    )
    results.append(run.batch({"events": end})[""])
    wall, spent = time.perf_counter() - began, cpu() - before
    table = pa.concat_tables(result.select(["campaign", "window_start", "views", "_kind"]) for result in results)
    found = table.filter(pa.compute.equal(table["_kind"], 0)).to_pydict()
    counts = {
        (campaign, int(start.timestamp() * 1000)): views
        for campaign, start, views in zip(found["campaign"], found["window_start"], found["views"], strict=True)
    }
    return counts, wall, spent


def _marker(rows: int, end: int) -> list[tuple[str, int, Any]]:
    import pyarrow as pa

    from floodmark.spec.values.schema import MARKER

    values = {"_event_time": end, "_watermark": end, "_progress": end, "_sequence": rows, "_kind": MARKER}
    return [(name, value, pa.int32() if name == "_kind" else pa.int64()) for name, value in values.items()]


def right(folder: Path) -> dict[tuple[int, int], int]:
    """DuckDB's answer: (campaign, start of the window, ms) -> views."""
    import duckdb

    rows = duckdb.sql(f"SELECT campaign, epoch_ms(window_start), views FROM '{folder}/answer.parquet'").fetchall()
    return {(campaign, start): views for campaign, start, views in rows}


def main() -> None:
    import data
    import growth
    from measurements import keep

    from floodmark.engines.embedded.landing.run import land
    from floodmark.engines.embedded.sail.session import Sail
    from floodmark.engines.embedded.unbounded.run import run_unbounded
    from floodmark.lake.folder.paths import Lake

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    some = [100, 1_000, 10_000, 100_000, 1_000_000]
    parser.add_argument("--campaigns", type=lambda text: [int(word) for word in text.split(",")], default=some)
    parser.add_argument("--engines", type=lambda text: text.split(","), default=["embedded"])
    asked, rows = parser.parse_args(), list[dict[str, Any]]()
    sail = Sail()
    engines: dict[str, tuple[Any, Any]] = {"embedded": (run_unbounded, sail)}
    if "spark" in asked.engines:
        import systems

        from floodmark.engines.spark.unbounded.run import run_unbounded as on_spark

        engines["spark"] = on_spark, systems.session()

    def add(variant: str, engine: str, keys: int, seconds: float, spent: float) -> None:
        speeds = {"rows/s": round(asked.rows / seconds), "rows per CPU s": round(asked.rows / spent)}
        rows.append(
            {
                "variant": variant,
                "engine": engine,
                "keys": keys,
                "rows": asked.rows,
                "seconds": round(seconds, 2),
                "cpu": round(spent, 2),
                **speeds,
                "equal": True,
            }
        )
        print(json.dumps(rows[-1]), flush=True)

    with TemporaryDirectory(prefix="floodmark-bench-") as place:
        warm = Path(place, "warm")
        growth.landed(sail, warm, 10_000, 100, 2)
        for engine, (run, session) in engines.items():
            growth.streamed(run, session, warm, Path(place, f"warm-{engine}"), 1)
        made(10_000, 100)
        for keys in asked.campaigns:
            folder = Path(place, f"events-{keys}")
            growth.landed(sail, folder, asked.rows, keys, FILES)
            began, before = time.perf_counter(), growth.cpu()
            land(lambda: sail, data.source(folder / "inbox"), Lake(str(folder / "again")), end=True)
            land_wall, landing = time.perf_counter() - began, growth.cpu() - before
            for engine, (run, session) in engines.items():
                told = growth.streamed(run, session, folder, folder / engine, 1)
                add("log", engine, keys, told["seconds"], told["cpu"])
                if engine == "embedded":
                    add("files", engine, keys, told["seconds"] + land_wall, told["cpu"] + landing)
            counts, wall, spent = made(asked.rows, keys)
            assert counts == right(folder), f"another answer than DuckDB's: {keys} campaigns"
            add("made", "embedded", keys, wall, spent)
    sail.close()
    keep("variants", rows, by=("variant", "engine", "keys"))


if __name__ == "__main__":
    main()
