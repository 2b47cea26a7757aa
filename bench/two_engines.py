"""The two engines, Spark and embedded, on the same files and the same log: landing, whole processes, first and later queries, steady micro-batches.

``seconds`` of these systems begin with their process; imports and the start of Java or of the server are part of them.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import data
import duckdb
import psutil
import systems
from deltalake import DeltaTable

from floodmark.lake.folder.paths import Lake

AGAIN = 3
"""Bounded runs after the first one."""
SMALL = 200
"""Micro-batches of 1,000 rows."""


def _since_start() -> float:
    return time.time() - psutil.Process().create_time()


def _sail() -> Any:
    """A server of its own, which starts while modules are imported."""
    from floodmark.engines.embedded.sail.session import Sail

    sail = Sail()
    sail.begin()
    return sail


def _run(engine: str, mode: str) -> Callable[..., Any]:
    """The run of an engine in a mode."""
    module = import_module(f"floodmark.engines.{engine}.{mode}.run")
    run: Callable[..., Any] = getattr(module, f"run_{mode}")
    return run


def bounded(engine: str, folder: Path, out: Path, **_: Any) -> dict[str, Any]:
    """A bounded run of all of it, then again."""
    lake = Lake(str(out), logs=str(folder / "lake"))
    session = systems.session() if engine == "spark" else _sail()
    run = partial(_run(engine, "bounded"), session)
    ready = time.perf_counter()
    run(data.views_per_campaign, lake)
    first, whole = time.perf_counter() - ready, _since_start()
    again = []
    for _ in range(AGAIN):
        began = time.perf_counter()
        run(data.views_per_campaign, lake, force=True)
        again.append(time.perf_counter() - began)
    return {"seconds": whole, "first_query_seconds": first, "steady_batch_seconds": statistics.median(again)}


def unbounded(engine: str, folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
    """A stream until it has caught up."""
    each = files // micro_batches
    if engine == "spark":
        told = systems.unbounded(data.views_per_campaign, folder, out, each)
        return {**told, "seconds": _since_start()}
    return {**caught_up(data.views_per_campaign, folder, out, each), "seconds": _since_start()}


def caught_up(operator: Any, folder: Path, out: Path, each: int) -> dict[str, Any]:
    """A stream of the embedded engine until it has caught up, on a server that is there; seconds of all of it and of micro-batches."""
    seconds: list[float] = []
    sail, run = _sail(), _run("embedded", "unbounded")
    with sail.lent() as connection:
        connection.spark.sql("SELECT 1").toArrow()
    last = [began := time.perf_counter()]

    def on_batch(info: Any) -> None:
        now = time.perf_counter()
        if info.rows_in >= systems.MANY:
            seconds.append(now - last[0])
        last[0] = now

    lake = Lake(str(out), logs=str(folder / "lake"))
    run(sail, operator, lake, until_caught_up=True, files_per_batch=each, on_batch=on_batch)
    steady = statistics.median(seconds[1:]) if seconds[1:] else None
    told = {"seconds": time.perf_counter() - began, "steady_batch_seconds": steady}
    if len(seconds) > 100:
        told["p99_batch_seconds"] = statistics.quantiles(seconds[1:], n=100)[-1]
    return told


def landing(engine: str, folder: Path, out: Path, **_: Any) -> dict[str, Any]:
    """A landing of all files, a commit for each."""
    session = systems.session() if engine == "spark" else _sail
    land: Callable[..., Any] = import_module(f"floodmark.engines.{engine}.landing.run").land
    seconds: list[float] = []
    land(session, data.source(folder / "inbox"), Lake(str(out)), on_commit=lambda done: seconds.append(done.seconds))
    return {"seconds": _since_start(), "steady_batch_seconds": statistics.median(seconds[1:])}


def equal(system: str, folder: Path, out: Path) -> bool | None:
    """Whether an answer is DuckDB's; a log has the rows of the files."""
    if "landing" in system:
        return _landed(folder, out)
    return systems.equal("floodmark bounded" if "bounded" in system else system, folder, out)


def _landed(folder: Path, out: Path) -> bool:
    with duckdb.connect() as connection:
        log = connection.register("log", DeltaTable(str(out / "logs" / "events")).to_pyarrow_dataset())
        sums = 'count(*), sum(epoch_us("at")), sum(ad), sum("user"), sum(length(kind))'
        landed = log.table("log").filter("_kind = 0").aggregate(sums).fetchall()
        return bool(landed == connection.read_parquet(str(folder / "inbox" / "*.parquet")).aggregate(sums).fetchall())


SYSTEMS: dict[str, Callable[..., dict[str, Any]]] = {
    f"{engine}, {mode}": partial(run, engine)
    for mode, run in (("landing", landing), ("bounded", bounded), ("unbounded", unbounded))
    for engine in ("spark", "embedded")
}


def engines(results: Any, place: Path, measured: Callable[..., dict[str, Any]], rows: int, keys: list[int]) -> None:
    """Both engines: bounded, landing and a stream in 32 commits, and both in commits of 1,000 rows."""
    shapes = [(number, rows, 32) for number in keys] + [(100, SMALL * 1000, SMALL)]
    for number, events, files in shapes:
        folder = place / f"engines-{number}-{files}"
        measured("generate", folder, place / "none", rows=events, campaigns=number, files=files)
        measured("duckdb", folder, place / "out")
        measured("floodmark landing", folder, place / "out")
        for system in SYSTEMS:
            mode = system.split(", ")[1]
            if mode == "bounded" and files == SMALL:
                continue
            told = measured(system, folder, place / "out", micro_batches=files, files=files)
            batches = 1 if mode == "bounded" else files
            base = f"spark, {mode}"
            results.add("engines", system, mode, told, keys=number, micro_batches=batches, rows=events, raw=base)
        shutil.rmtree(folder)
