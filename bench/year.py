"""What a year does to a workspace: the time of each operation after 100, 10,000 and 100,000 commits of a log and of an output.

    python bench/year.py [--commits 100,1000,10000] [--upkeep-every 1000] [--spark] [--limits]

Commits are written without Spark (``aged.py``), as one every five seconds, from 400 days ago on; Delta's own clean-up and checkpoints
run by delta-rs, floodmark's upkeep runs in between. Then each operation runs several times on a copy of each workspace, in a process of its own and in
turn, and the median of their CPU time is printed: other work of the machine counts little. What Spark does for a commit is not in it. ``--spark`` measures that instead: a stream of
Spark over the log of each age, which has gone through it from its first row, starts for the next commit, computes it and stops; CPU of its process, Java and workers, in one session.
``--limits`` prints the second table: many units, source partitions, savepoints, asset partitions.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
TIMES, ROUNDS = 7, 3
"""Of each operation in a process, and of processes for each number of commits."""
WORST = 1.3
"""Times the first measurement that an operation may take."""
BEHIND = 100
"""Commits since the last upkeep at each measurement."""
FLOOR_MS = 5.0
"""Differences below this are the machine's."""


def operations(root: Path) -> Iterator[tuple[str, Callable[[], Any]]]:  # noqa: PLR0915 - one after the other
    """Each operation, under its name, on an aged workspace."""
    import dagster as dg
    from aged import Aged, hours, minutes

    from floodmark.core.time import Interval
    from floodmark.engines.landing.lander import reader_of
    from floodmark.engines.landing.run import check_start as check_landing
    from floodmark.engines.spark.unbounded.run import check_start
    from floodmark.lake.logs import log
    from floodmark.lake.logs.landed import LandedUnits
    from floodmark.lake.restore import savepoints
    from floodmark.lake.results import readiness
    from floodmark.lake.stream.batch_state import check_inputs
    from floodmark.lake.stream.timeline import Timeline, inputs_at
    from floodmark.lake.table.history import progress
    from floodmark.lake.writing.writer import Writer
    from floodmark.lifecycle.plan import plan
    from floodmark.observe.status import status
    from floodmark.orchestration import build_definitions

    aged = Aged(root)
    lake, path = aged.lake, aged.lake.log("readings")

    def open_landing() -> LandedUnits:
        check_landing(aged.source, lake, root)
        units = LandedUnits.load(lake, next(log.landings(path)))
        Writer(path).committed("land/readings")
        return units

    def start() -> None:
        for code in (minutes, hours):
            check_start(code, lake)
            timeline = Timeline.current(lake, code.name)
            last = timeline.checkpoint.last_committed()
            inputs = inputs_at(timeline, last)
            check_inputs(lake, code.name, inputs)
            for given in code.inputs:
                progress(lake.input(given), inputs[given.name].version)
            Writer(lake.output(code.outputs[0].table)).committed(timeline.app(code.outputs[0].table))

    units = open_landing()
    units.flush()
    for _ in range(19):  # the most commits that a start finds behind the list of what has landed, at each age
        aged.land(units)
    yield "start of a landing", open_landing
    yield "start of two streams", start
    yield "status", lambda: status(aged.workspace, lake)
    definitions = build_definitions(aged.workspace, root=root)
    instance, cursor = dg.DagsterInstance.ephemeral(), [""]

    def look() -> None:
        found = definitions.resolve_sensor_def("streams")(
            dg.build_sensor_context(instance=instance, cursor=cursor[0] or None)
        )
        assert isinstance(found, dg.SensorResult), found
        for request in found.dynamic_partitions_requests or ():
            instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        cursor[0] = found.cursor or ""

    for _ in range(3):  # the first looks report what there is
        look()
    yield "look of the sensor", look
    yield (
        "plan",
        lambda: [plan(Timeline.current(lake, code.name).identity.deployed(), code) for code in (minutes, hours)],
    )
    day = 86_400_000
    newest = progress(lake.output("minutes")) or 0
    done = Interval(start=newest // day * day - day, end=newest // day * day)
    yield "check of a bounded run", lambda: readiness.readiness(minutes, lake, done)
    made: list[Any] = []
    yield "savepoint", lambda: made.append(savepoints.create("minutes", lake))
    for savepoint in made:
        savepoints.delete(savepoint)
    reader = reader_of(aged.source, root)
    yield "look for new files", lambda: reader.pending(units)
    yield "landing commit", lambda: aged.land(units)
    units.flush()
    first = aged.commits - TIMES - 1
    numbers = iter(range(first, aged.commits))
    yield "micro-batch", lambda: aged.batch(next(numbers))
    aged.move_checkpoints()


def child(root: Path) -> None:
    """Measure all operations; the answer is the last line."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    times = {}
    for name, operation in operations(root):
        operation()
        spent = []
        for _ in range(TIMES):
            began = time.process_time()
            operation()
            spent.append(time.process_time() - began)
        times[name] = statistics.median(spent) * 1000
    print(json.dumps({"ms": times, "memory MB": psutil.Process().memory_info().rss / 1e6}))


def child_on_spark(root: Path) -> None:
    """Measure a stream of Spark that starts for one more commit; the answer is the last line."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from aged import Aged, Reading

    from floodmark import Settings, Stream, Tumbling, count, operator
    from floodmark import sum as total_of
    from floodmark.control.processes.engine import computing

    @operator
    def of_spark(readings: Stream[Reading]) -> Stream:
        """As ``minutes``, by a stream that was never aged."""
        return readings.key_by("device").window(Tumbling("1 minute")).aggregate(n=count(), total=total_of("value"))

    aged, process = Aged(root), psutil.Process()
    engine = computing(Settings(engine="spark"), app="year")
    engine.start()

    def used() -> float:
        return sum(sum(one.cpu_times()[:2]) for one in (process, *process.children(recursive=True)))

    began = used()
    engine.run_unbounded(of_spark, aged.lake, until_caught_up=True)
    print(f"{aged.commits:,} commits from the first row: {used() - began:.1f} s of CPU", file=sys.stderr)
    spent, seconds = list[float](), list[float]()
    for number in range(TIMES + 3):
        aged.land()
        began, clock = used(), time.perf_counter()
        engine.run_unbounded(of_spark, aged.lake, until_caught_up=True)
        if number > 2:  # the first ones warm up Java
            spent.append(used() - began)
            seconds.append(time.perf_counter() - clock)
    told = {
        "start and micro-batch of Spark": statistics.median(spent) * 1000,
        "the same, by the clock": statistics.median(seconds) * 1000,
    }
    print(json.dumps({"ms": told, "memory MB": process.memory_info().rss / 1e6}))


def in_process(*arguments: str) -> Any:
    """What a process of this script says last."""
    command = [sys.executable, str(HERE / "year.py"), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(workspaces: dict[int, Path], place: Path, child: str, rounds: int) -> dict[int, dict[str, float]]:
    """What each operation takes at each number of commits, in turn, so that what else the machine does counts for all of them.

    Args:
        workspaces: number of commits -> a workspace of that age, which stays as it is.
        place: for a copy of one.
        child: option of this script that measures one.
        rounds: how often.
    """
    found: dict[int, list[dict[str, float]]] = {commits: [] for commits in workspaces}
    for _ in range(rounds):
        for commits, folder in workspaces.items():
            shutil.copytree(folder, place)
            told = in_process(child, str(place))
            found[commits].append(told["ms"] | {"memory MB": told["memory MB"]})
            shutil.rmtree(place)
    return {
        commits: {name: statistics.median(one[name] for one in every) for name in every[0]}
        for commits, every in found.items()
    }


def sizes(table: str) -> tuple[int, float, int, float]:
    """Files and MB of a table's log folder, and of all below the table."""
    log_folder = Path(table) / "_delta_log"
    entries = [entry.stat().st_size for entry in log_folder.iterdir()]
    files = [entry.stat().st_size for entry in Path(table).rglob("*.parquet") if entry.parent != log_folder]
    return len(entries), sum(entries) / 1e6, len(files), sum(files) / 1e6


def age(root: Path, commits: int, every: int) -> None:
    """In a process of its own: bring a workspace to that many commits, with upkeep in between."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from aged import Aged, check_form
    from deltalake import DeltaTable

    from floodmark.lake.maintenance.upkeep import maintain

    aged = Aged(root)
    for _ in range(5 if aged.commits == 0 else 0):  # by the writer
        aged.land()
        aged.batch()
    paths = aged.lake.log("readings"), aged.lake.output("minutes")
    began, upkeep = time.perf_counter(), 0.0
    while aged.commits < commits:
        straight = aged.commits
        last = commits - BEHIND  # upkeep has run so many commits before the measurement
        goal = commits if last <= aged.commits else min(last, aged.commits + every)
        aged.age(goal)
        for path in paths:
            if straight == 5:
                check_form(path, 3, 8)
            DeltaTable(path).create_checkpoint()
            DeltaTable(path).cleanup_metadata()
        if goal < commits:
            before, now = [sizes(path) for path in paths], time.perf_counter()
            maintain(aged.lake, hours=0)
            upkeep += time.perf_counter() - now
            after = [sizes(path) for path in paths]
            if aged.commits == last:
                for path, was, is_now in zip(paths, before, after, strict=True):
                    print(_sized(Path(path).name, aged.commits, was, is_now), file=sys.stderr)
            aged.move_checkpoints()
    spent = time.perf_counter() - began - upkeep
    print(json.dumps({"commits": aged.commits, "seconds": round(spent, 1), "upkeep seconds": round(upkeep, 1)}))


def _sized(name: str, commits: int, before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    words = (
        f"{entries:,} files, {size:.1f} MB in its log, {files:,} files, {data:.1f} MB of rows"
        for entries, size, files, data in (before, after)
    )
    return f"{name} at {commits:,} commits: before upkeep {next(words)}; after {next(words)}"


def table(columns: dict[int, dict[str, float]]) -> str:
    """Operations by rows, numbers of commits by columns; ms, and the ratio of the last to the first."""
    counts = list(columns)
    lines = ["| " + " | ".join(["operation", *(f"{count:,} commits" for count in counts), "x first"]) + " |"]
    lines.append("| " + " | ".join(["---"] * (len(counts) + 2)) + " |")
    for name in columns[counts[0]]:
        values = [columns[count][name] for count in counts]
        unit = "" if name.endswith("MB") else " ms"
        cells = [name, *(f"{value:,.1f}{unit}" for value in values), f"{values[-1] / values[0]:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def grown(columns: dict[int, dict[str, float]]) -> list[str]:
    """Operations that take more than ``WORST`` times the first measurement, and notably so."""
    first = next(iter(columns.values()))
    return sorted(
        {
            name
            for column in columns.values()
            for name, value in column.items()
            if value > WORST * first[name] and value - first[name] > FLOOR_MS
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=lambda text: [int(n) for n in text.split(",")], default=[100, 1000, 10_000])
    parser.add_argument("--upkeep-every", type=int, default=1000, help="commits between two runs of upkeep")
    parser.add_argument("--folder", type=Path, help="where the workspace lies, and stays")
    parser.add_argument("--limits", action="store_true", help="print the second table")
    parser.add_argument("--spark", action="store_true", help="measure a stream of Spark")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child-on-spark", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--age", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.age:
        age(options.folder, options.age, options.upkeep_every)
        return
    if options.child:
        child(options.child)
        return
    if options.child_on_spark:
        child_on_spark(options.child_on_spark)
        return
    with TemporaryDirectory(prefix="floodmark-year-") as place:
        if options.limits:
            sys.path[:0] = [str(HERE), str(HERE.parent)]
            import limits

            text, slow = limits.table(Path(place))
            print(text)
            sys.exit(bool(slow))
        root = options.folder or Path(place, "workspace")
        workspaces: dict[int, Path] = {}
        for commits in options.commits:
            arguments = ("--folder", str(root), "--age", str(commits), "--upkeep-every", str(options.upkeep_every))
            print(in_process(*arguments), file=sys.stderr)
            workspaces[commits] = Path(place, str(commits))
            shutil.copytree(root, workspaces[commits])
        measuring = ("--child-on-spark", 1) if options.spark else ("--child", ROUNDS)
        columns = measured(workspaces, Path(place, "copy"), *measuring)
        print(table(columns))
        for name in grown(columns):
            print(f"grows: {name}")
        sys.exit(bool(grown(columns)))


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    main()
