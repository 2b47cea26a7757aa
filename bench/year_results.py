"""A workspace a year old gives the answers it gave when it was young: four results against DuckDB, after a year of commits and everybody's clean-up.

    python bench/year_results.py [--commits 100000] [--upkeep-every 10000]

A stream runs on Spark at the beginning and makes a savepoint. Then a year passes (``aged.py``), with floodmark's upkeep in between. Somebody sets the
tables' properties back, and Delta's own clean-up runs, by Spark and by delta-rs. Then: a new stream from the first row, a bounded run of the first
day, a rollback to the savepoint and what comes behind it, and a rebuild. DuckDB computes the same from the numbers of the rows alone.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from aged import EACH_MS, START_MS, Aged, Reading, minutes  # noqa: E402 - beside this file

DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def expected(commits: int, end: int | None = None) -> list[tuple[Any, ...]]:
    """Device, start of the minute, number and total of its readings, of minutes that have ended: from the numbers of the commits."""
    import duckdb

    last = START_MS + (commits - 1) * EACH_MS  # the watermark, at which a minute that ends has ended
    last = last if end is None else min(last, end - 1)
    return duckdb.sql(
        f"""
        SELECT device, moment - moment % 60000 AS minute, count(*), sum(value)::BIGINT
        FROM (SELECT unnest(['a', 'b']) AS device, {START_MS} + n * {EACH_MS} AS moment, n AS value FROM range({commits}) t(n))
        WHERE moment - moment % 60000 + 59999 <= {last} GROUP BY 1, 2 ORDER BY ALL
        """
    ).fetchall()


def found(path: str, before: int | None = None) -> list[tuple[Any, ...]]:
    """The same as an output has it."""
    import duckdb
    from deltalake import DeltaTable

    rows = DeltaTable(path).to_pyarrow_dataset()
    limit = "" if before is None else f"AND epoch_ms(window_start) < {before}"
    with duckdb.connect() as engine:
        engine.register("rows", rows)
        return engine.sql(
            f"SELECT device, epoch_ms(window_start), n, total::BIGINT FROM rows WHERE _kind = 0 {limit} ORDER BY ALL"
        ).fetchall()


def clean_up(spark: Any, path: str) -> None:
    """Let Delta remove what is older than a month, as it does where nobody has set a table's properties."""
    from deltalake import DeltaTable

    for interval in (1, 100):  # a checkpoint and a clean-up with this commit, and no others
        month = "'delta.logRetentionDuration' = 'interval 30 days'"
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({month}, 'delta.checkpointInterval' = '{interval}')")
    DeltaTable(path).create_checkpoint()
    DeltaTable(path).cleanup_metadata()


def entries_of(path: str) -> str:
    names = [int(file.stem) for file in Path(path, "_delta_log").glob("*[0-9].json")]
    return f"{len(names):,} entries, from version {min(names):,}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--upkeep-every", type=int, default=10_000)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="floodmark-year-") as place:
        from floodmark.engines.spark.session.builder import spark_session

        return run(Path(place), options.commits, options.upkeep_every, spark_session(memory="2g"))


def upkeep(root: str) -> list[str]:
    """Of a lake; the tables whose properties it has set again."""
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.maintenance.upkeep import maintain

    return [one.table for one in maintain(Lake(root), hours=0) if one.mended]


def run(root: Path, commits: int, every: int, spark: Any, upkeep: Callable[[str], list[str]] = upkeep) -> int:
    """Let a year pass; how many of the results are not those of DuckDB.

    Args:
        root: an empty folder.
        commits: of the log, and of the output.
        every: so many commits upkeep runs.
        spark: a session.
        upkeep: of a lake.
    """
    from functools import partial

    from floodmark import Stream, Tumbling, operator
    from floodmark.core.time import Interval
    from floodmark.engines.spark.bounded.run import run_bounded
    from floodmark.engines.spark.unbounded.run import run_unbounded
    from floodmark.engines.upgrading import rebuild
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.restore import savepoints
    from floodmark.lake.restore.rollback import roll_back
    from floodmark.spec.windowing.aggregates import count
    from floodmark.spec.windowing.aggregates import sum as total

    aged, wrong = Aged(root), 0
    lake, log, out = aged.lake, aged.lake.log("readings"), aged.lake.output("minutes")

    def timed(name: str, what: Callable[[], Any], rows: Callable[[], Any], truth: Any) -> None:
        nonlocal wrong
        began = time.perf_counter()
        what()
        seconds, got = time.perf_counter() - began, rows()
        same = got == truth
        wrong += not same
        print(
            f"{name}: {seconds:.1f} s, {len(got):,} rows, {'equal to DuckDB' if same else f'NOT EQUAL, {len(truth):,} expected'}",
            flush=True,
        )

    for _ in range(100):
        aged.land()
    run_unbounded(spark, minutes, lake, until_caught_up=True)
    oldest = savepoints.create("minutes", lake, why="the oldest")
    began = time.perf_counter()
    while aged.commits < commits:
        aged.age(min(commits, aged.commits + every))
        before = entries_of(log), entries_of(out)
        upkeep(lake.root)
        print(
            f"{aged.commits:,} commits: log {before[0]}, then {entries_of(log)}; output {before[1]}, then {entries_of(out)}",
            flush=True,
        )
        aged.move_checkpoints()
    print(f"a year in {time.perf_counter() - began:.0f} s", flush=True)
    for path in (log, out):
        clean_up(spark, path)
    mended = upkeep(lake.root)
    print(
        f"after Delta's own clean-up: log {entries_of(log)}; output {entries_of(out)}; mended: {', '.join(mended)}",
        flush=True,
    )

    truth = expected(commits)
    fresh = Lake(str(root / "fresh"), logs=lake.root)
    timed("new stream from the first row", lambda: run_unbounded(spark, minutes, fresh, until_caught_up=True),
          lambda: found(fresh.output("minutes")), truth)  # fmt: skip
    bounded = Lake(str(root / "bounded"), logs=lake.root)
    whole = DAY_MS if START_MS + commits * EACH_MS > (START_MS // DAY_MS + 1) * DAY_MS else HOUR_MS
    first = (START_MS // whole + 1) * whole
    day = Interval(start=first - whole, end=first)
    timed(f"bounded run of the first {'day' if whole == DAY_MS else 'hour'}", lambda: run_bounded(spark, minutes, bounded, day),
          lambda: found(bounded.output("minutes")), expected(commits, first))  # fmt: skip
    timed(
        "rollback to the oldest savepoint",
        lambda: roll_back(lake, oldest, alone=True),
        lambda: found(out),
        expected(100),
    )
    timed(
        "the stream behind it",
        lambda: run_unbounded(spark, minutes, lake, until_caught_up=True),
        lambda: found(out),
        truth,
    )

    @operator(name="minutes")  # other code, of the same meaning
    def changed(readings: Stream[Reading]) -> Stream:
        keyed = readings.filter("value >= 0").key_by("device")
        return keyed.window(Tumbling("1 minute")).aggregate(n=count(), total=total("value"))

    timed("rebuild", lambda: rebuild(partial(run_unbounded, spark), changed, lake), lambda: found(out), truth)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
