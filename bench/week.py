"""A week of Dagster beside a stream that commits every five seconds, and what follows when the streams of an operator have completed very many asset partitions at once.

    python bench/week.py [--days 7] [--every 60] [--partitions 10000]

Nothing sleeps: tables and clock move on by a minute, then the sensor ``streams`` looks, and what the daemon writes for a look is written to an instance of Dagster on disk: events,
keys of savepoints, and the look itself. Printed are the size of Dagster's event log and of its ticks, and the longest look at the beginning and at the end of the week. Then the sensor
``streams`` reports partitions, at most 200 a look and fewer where the daemon is slow to write them down, and the sensor ``automation`` judges the partitions of a second operator, which reads the first and is computed once they are complete.
The daemon looks every 15 seconds; nothing is reported more often than every five minutes, so a look a minute reports the same in a quarter of the time
(``--every 15`` for all of them). The size of the ticks is reckoned up. All is also in ``bench/results/week.json``.

The program ends with an error if the event log has 50 MB or more, or if a look or a judgement takes five seconds of this process's CPU time, which other processes hardly lengthen.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import psutil

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
TICK_SECONDS = 15
"""Between two looks of the daemon."""
EVERY_SECONDS = 60
"""Between two looks here."""
MEASURED_SECONDS = 600
"""Between two measures of the stream in the control store: numbers are reported no more often."""
DAY_SECONDS, HOUR_MS = 86_400, 3_600_000
MOST_MB, MOST_SECONDS = 50, 5
EDGE = 500
"""Looks at the beginning and at the end of the week that are compared."""


@dataclass
class Daemon:
    """What Dagster's daemon does with looks of a sensor, in this process.

    Args:
        definitions: with the sensors.
        instance: where it writes.
        now: seconds since 1970, as all see them.
        repository: of the definitions.
    """

    definitions: Any
    instance: Any
    now: float
    repository: Any = None
    cursor: str | None = None
    events: int = 0
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.repository = self.definitions.get_repository_def()

    @contextmanager
    def clock(self) -> Iterator[None]:
        """The clock of the simulation, for the sensor and the control store."""
        from floodmark.control.state.store import Store
        from floodmark.orchestration import automation

        class Clock:
            @staticmethod
            def time() -> float:
                return self.now

        with patch.object(Store, "_now", staticmethod(lambda _: self.now)), patch.object(automation, "time", Clock):
            yield

    def look(self) -> int:
        """One look of the sensor ``streams``, and what the daemon writes for it; returns the number of events."""
        import dagster as dg
        from dagster._core.definitions.run_request import InstigatorType
        from dagster._core.scheduler.instigation import TickData, TickStatus

        began, processor = time.perf_counter(), time.process_time()
        tick = self.instance.create_tick(
            TickData("streams", "streams", InstigatorType.SENSOR, TickStatus.STARTED, self.now, selector_id="streams")
        )
        found = self.definitions.resolve_sensor_def("streams")(
            dg.build_sensor_context(instance=self.instance, cursor=self.cursor, repository_def=self.repository)
        )
        assert isinstance(found, dg.SensorResult), found
        for request in found.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        ended = tick.with_status(TickStatus.SKIPPED, cursor=found.cursor, end_timestamp=self.now + 1)
        self.instance.update_tick(ended)
        self.cursor = found.cursor
        self.seconds.append(time.perf_counter() - began)
        self.processor.append(time.process_time() - processor)
        self.events += len(found.asset_events)
        return len(found.asset_events)


def megabytes(folder: Path, *parts: str) -> float:
    """Of databases whose paths contain a word."""
    files = [file for file in folder.rglob("*.db") if any(part in str(file.relative_to(folder)) for part in parts)]
    for file in files:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in files) / 1e6


def deployed(root: Path, partitions: Any, *more: Any) -> tuple[Any, Any, Any]:
    """(aged workspace, workspace whose stream ``minutes`` runs, its fleet)."""
    from aged import Aged, minutes
    from deltalake import DeltaTable

    from floodmark import Workspace, operator_asset
    from floodmark.control.processes.supervisor import LEASE
    from floodmark.control.streams.fleet import Fleet

    aged = Aged(root)
    for _ in range(5):
        aged.land()
        aged.batch()
    for path in (aged.lake.log("readings"), aged.lake.output("minutes")):
        DeltaTable(path).create_checkpoint()
    workspace = Workspace(
        sources=aged.workspace.source_assets,
        operators=[operator_asset(minutes, partitions=partitions), *more],
        settings=aged.workspace.settings,
    ).at(str(root))
    fleet = Fleet(workspace=workspace, root=root, say=lambda _: None)
    fleet.store.lease(LEASE, "bench", 1e9)
    return aged, workspace, fleet


def week(folder: Path, days: float, every: int) -> dict[str, Any]:
    """The looks of a week, every one of so many seconds."""
    import dagster as dg
    from aged import EACH_MS, START_MS

    from floodmark import Hourly
    from floodmark.control.state import measures
    from floodmark.core.host import birth
    from floodmark.observe.measure import Measure
    from floodmark.orchestration import build_definitions

    root, home = folder / "week", folder / "week-dagster"
    home.mkdir()
    aged, workspace, fleet = deployed(root, Hourly("2023-11-14T22:00"))
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        daemon = Daemon(build_definitions(workspace, root=root), instance, START_MS / 1000)
        with daemon.clock():
            (deployment,) = (one for one in fleet.here if one.operator == "minutes")
            driver = fleet.store.begin(deployment, str(root))
            process = psutil.Process()
            fleet.store.update(
                driver.id,
                heard=True,
                state="running",
                pid=os.getpid(),
                born=birth(process),
                log=str(root / "log"),
            )
            empty, looks, began = megabytes(home, "history"), int(days * DAY_SECONDS) // every, time.perf_counter()
            each = every * 1000 // EACH_MS
            for number in range(looks):
                daemon.now += every
                aged.grow(aged.commits + each, rows=False)
                fleet.store.update(driver.id, heard=True, batch=aged.commits)
                if number * every % MEASURED_SECONDS == 0:
                    measure = Measure(history="t", number=number, at=daemon.now, seconds=0.1, rows_in=2)
                    measures.record(fleet.store, driver.stream, measure)
                daemon.look()
                if number % (DAY_SECONDS // every // 4) == 0:
                    print(
                        f"day {number * every / DAY_SECONDS:.2f}: {daemon.events} events, {time.perf_counter() - began:.0f} s",
                        flush=True,
                    )
        log, ticks = megabytes(home, "history") - empty, megabytes(home, "schedules")
    edge = min(EDGE, looks // 2)
    first, last = (statistics.median(some) * 1000 for some in (daemon.processor[:edge], daemon.processor[-edge:]))
    return {
        "days": days,
        "every": every,
        "commits": aged.commits,
        "looks": looks,
        "events": daemon.events,
        "event log MB": round(log, 1),
        "ticks MB": round(ticks * every / TICK_SECONDS, 1),
        "cursor bytes": len(daemon.cursor or ""),
        "processor ms of a look, first": round(first, 1),
        "processor ms of a look, last": round(last, 1),
        "longest look s": round(max(daemon.seconds), 2),
        "processor s of a look": round(max(daemon.processor), 2),
    }


def partitions(folder: Path, count: int) -> dict[str, Any]:
    """Very many hourly partitions that a stream has completed at once, reported; and judged for an operator that reads them."""
    import dagster as dg
    from aged import START_MS, minutes

    from floodmark import Hourly, Stream, Tumbling, operator, operator_asset
    from floodmark import sum as total
    from floodmark.core.time import from_ms
    from floodmark.orchestration import build_definitions

    start = START_MS // HOUR_MS * HOUR_MS - count * HOUR_MS
    hourly = Hourly(
        from_ms(start).strftime("%Y-%m-%dT%H:%M"),
        end=from_ms(start + (count + 10) * HOUR_MS).strftime("%Y-%m-%dT%H:%M"),
    )

    @operator(inputs={"counted": minutes})
    def per_hour(counted: Stream) -> Stream:
        return counted.key_by("device").window(Tumbling("1 hour")).aggregate(n=total("n"))

    root, home = folder / "many", folder / "many-dagster"
    home.mkdir()
    _, workspace, _ = deployed(root, hourly, operator_asset(per_hour, partitions=hourly, automation="complete"))
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        definitions = build_definitions(workspace, root=root)
        daemon = Daemon(definitions, instance, START_MS / 1000)
        empty = megabytes(home, "history")
        while daemon.look() or len(daemon.seconds) == 1:
            daemon.now += TICK_SECONDS
        reported = len(instance.get_materialized_partitions(dg.AssetKey("minutes")))
        judged, evaluation = list[tuple[float, float]](), None
        for _ in range(3):
            began, processor = time.perf_counter(), time.process_time()
            evaluation = dg.evaluate_automation_conditions(
                definitions, instance, cursor=None if evaluation is None else evaluation.cursor
            )
            judged.append((time.perf_counter() - began, time.process_time() - processor))
        log = megabytes(home, "history") - empty
    return {
        "partitions": reported,
        "looks": len(daemon.seconds),
        "longest look s": round(max(daemon.seconds), 2),
        "processor s of a look": round(max(daemon.processor), 2),
        "event log MB": round(log, 1),
        "judged": evaluation.total_requested if evaluation else 0,
        "longest judgement s": round(max(seconds for seconds, _ in judged), 2),
        "processor s of a judgement": round(max(seconds for _, seconds in judged), 2),
    }


def main() -> None:
    """Both, as JSON."""
    from measurements import keep

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--every", type=int, default=EVERY_SECONDS, help="seconds between two looks")
    parser.add_argument("--partitions", type=int, default=10_000)
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        measured = list[dict[str, Any]]()
        if asked.days:
            measured.append(week(Path(folder), asked.days, asked.every))
            keep("week", measured, by=("days", "every", "partitions"))
            print(json.dumps(measured[-1]), flush=True)
        if asked.partitions:
            measured.append(partitions(Path(folder), asked.partitions))
            keep("week", measured, by=("days", "every", "partitions"))
            print(json.dumps(measured[-1]), flush=True)
    processor = ("processor s of a look", "processor s of a judgement")
    slow = [one for one in measured if max(one.get(name, 0) for name in processor) >= MOST_SECONDS]
    large = [one for one in measured if one["event log MB"] >= MOST_MB]
    sys.exit(1 if slow or large else 0)


if __name__ == "__main__":
    main()
