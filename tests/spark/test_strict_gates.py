"""Strict expectations: readers of an output read an asset partition once it was judged, and find what an undisturbed reader finds."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from events import START, Event, source

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.control.streams.gating import release, strict, unjudged
from floodmark.core.errors import DefinitionError, FloodmarkError, LifecycleError
from floodmark.core.time import Interval, to_ms
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import verdicts
from floodmark.lake.results.parts import complete
from floodmark.spec.values.run import RunResult
from floodmark.testing.lakes import Log, land

HOURS, HOUR = fm.Hourly("2020-01-01T00:00"), 3_600_000
CHECKS = ("enough", "few")


@fm.operator
def minutes(events: fm.Stream[Event]) -> fm.Stream:
    """Windows that are much shorter than a partition: a micro-batch has rows of several."""
    return events.key_by("key").window(fm.Tumbling("10 minutes")).aggregate(n=fm.count(), total=fm.sum("value"))


@fm.operator(inputs={"of": minutes})
def hours(of: fm.Stream) -> fm.Stream:
    """Its reader, with state."""
    return of.key_by("key").window(fm.Tumbling("1 hour")).aggregate(n=fm.count(), total=fm.sum("total"))


class KilledError(Exception):
    """A driver dies."""


class Shop:
    """A lake with both, of which the first is judged by hand.

    Args:
        engine: of both, or of the reader alone.
        root: of the lake.
        writer: engine of the first operator.
    """

    def __init__(self, engine: Computing, root: Path, *, judged: bool = True, writer: Computing | None = None) -> None:
        expected = [
            fm.Expectation("column_values_to_be_between", column="n", name=name, blocking=True, strict=judged)
            for name in CHECKS
        ]
        self.workspace = fm.Workspace(
            sources=[source([])],
            operators=[
                fm.operator_asset(minutes, partitions=HOURS, expectations=expected),
                fm.operator_asset(hours, partitions=HOURS),
            ],
            settings=fm.Settings(lake=str(root / "lake")),
        )
        self.engine, self.writer, self.lake, self.log, self.landed = (
            engine,
            writer or engine,
            Lake(str(root / "lake")),
            Log(minutes.inputs[0].schema),
            0,
        )
        events = [{"at": START + timedelta(minutes=n), "key": "ab"[n % 2], "value": n} for n in range(330)]
        self.log.rows(events, "at", 60_000)
        self.log.end()

    def land(self, upto: int) -> None:
        """Land events, and let the first operator read them."""
        upto = min(upto, len(self.log.entries))
        if upto > self.landed:
            land(self.lake, minutes, self.log, self.landed, upto)
        self.landed = max(self.landed, upto)
        self.writer.run_unbounded(self.workspace.operator("minutes"), self.lake, until_caught_up=True)

    def judge(self, *numbers: int, checks: tuple[str, ...] = CHECKS) -> None:
        for number in numbers:
            for check in checks:
                verdicts.record(self.lake.output("minutes"), check, hour(number))

    def read(self, **options: Any) -> RunResult:
        return self.engine.run_unbounded(self.workspace.operator("hours"), self.lake, until_caught_up=True, **options)

    def rows(self, table: str = "hours") -> list[tuple[Any, ...]]:
        path = self.lake.output(table)
        read = DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []
        names = ("key", "window_start", "n", "total")
        return sorted(tuple(one[name] for name in names) for one in read if one["_kind"] == 0)

    def hours(self) -> list[int]:
        return sorted({one[1].hour for one in self.rows()})


def hour(number: int) -> Interval:
    start = to_ms(START) + number * HOUR
    return Interval(start=start, end=start + HOUR)


def undisturbed(engine: Computing, root: Path) -> list[tuple[Any, ...]]:
    shop = Shop(engine, root, judged=False)
    shop.land(1000)
    shop.read()
    return shop.rows()


@pytest.mark.feature("Z8")
def test_a_reader_reads_a_partition_once_it_was_judged(engine: Computing, embedded: Computing, tmp_path: Path) -> None:
    shop, told = Shop(engine, tmp_path, writer=embedded), list[str]()
    plain = Shop(engine, tmp_path / "plain", judged=False).workspace.operator("hours")
    assert shop.workspace.operator("hours").version == plain.version, "when rows are read is no part of the version"
    for upto in range(50, 400, 50):
        shop.land(upto)
    reads, asset = shop.workspace.operator("hours"), shop.workspace.asset("minutes")
    (audit,) = (audit for _, audit in strict(asset, shop.lake).values())
    assert audit == reads.audits["minutes"]

    with pytest.raises(
        LifecycleError, match="LIFECYCLE-207 operator 'hours' over .*checks of partition 2020-01-01T0200Z"
    ):
        engine.run_bounded(reads, shop.lake, hour(2))
    result = shop.read(on_wait=told.append)
    assert shop.rows() == []
    assert result.waits_for.startswith(
        "waits for the checks of partition 2020-01-01T0000Z of 'minutes', which is complete, and not judged since "
    )
    assert told[-1] == result.waits_for
    shop.judge(0, 1, checks=CHECKS[:1])
    shop.read()
    assert shop.rows() == [], "each of its checks counts"
    shop.judge(0, 1)
    shop.read()
    early = shop.hours()
    assert early == ([0, 1] if engine.name == "embedded" else []), "Spark fires with the next micro-batch"
    waiting = verdicts.waiting(shop.lake.output("minutes"), audit)
    assert [name for name, _, check in waiting if check == "few"] == [f"2020-01-01T0{n}00Z" for n in (2, 3, 4, 5)]
    assert [one for one in unjudged(asset, shop.lake) if one[2] == "few"] == [
        ("minutes", name, check) for name, _, check in waiting if check == "few"
    ]
    assert complete(shop.workspace.operator("minutes"), HOURS, shop.lake, hour(2))
    assert [one.check for one in release(asset, shop.lake, "2020-01-01T0200Z", "known")] == list(CHECKS)
    shop.read()
    assert early < shop.hours() <= [0, 1, 2]
    shop.judge(3, 4, 5)
    assert shop.read().waits_for == ""
    assert shop.rows() == undisturbed(embedded, tmp_path / "other")


@pytest.mark.feature("Z8")
def test_whatever_is_judged_when_and_whoever_dies_the_rows_are_those_of_an_undisturbed_reader(
    embedded: Computing, tmp_path: Path
) -> None:
    disturbed(embedded, tmp_path)


@pytest.mark.soak
@pytest.mark.engines("spark")
def test_rows_are_those_of_an_undisturbed_reader_on_spark(engine: Computing, tmp_path: Path) -> None:
    disturbed(engine, tmp_path)


def disturbed(engine: Computing, tmp_path: Path) -> None:
    """Partitions are judged in any order while rows land, and readers die."""
    expected, chance = undisturbed(engine, tmp_path / "plain"), random.Random(7)
    slow = engine.name == "spark"
    for seed in range(1 if slow else 4):
        shop, judged = Shop(engine, tmp_path / f"{seed}"), set[int]()
        shop.land(40)
        while shop.landed < len(shop.log.entries) or len(judged) < 6:
            shop.land(shop.landed + (150 if slow else chance.choice((0, 30, 90))))
            for number in chance.sample(range(6), 3 if slow else chance.randrange(3)):
                shop.judge(number)
                judged.add(number)
            stop = threading.Event()
            dies = chance.random() < 0.3

            def die(_: object, stop: threading.Event = stop, *, dies: bool = dies) -> None:
                stop.set()
                if dies:
                    raise KilledError

            try:
                shop.read(files_per_batch=chance.choice((1, 2, None)), stop=stop, on_batch=die)
            except (KilledError, FloodmarkError):
                assert dies
            assert set(shop.hours()) <= judged
        shop.read()
        assert shop.rows() == expected


def test_strict_needs_blocking_and_partitions() -> None:
    with pytest.raises(DefinitionError, match=r"DEFINITION-303 expectation 'column_to_exist': expected blocking=True"):
        fm.Expectation("column_to_exist", column="n", strict=True)
    strictly = fm.Expectation("column_to_exist", column="n", strict=True, blocking=True)
    assert strictly.named("other").strict
    with pytest.raises(DefinitionError, match="DEFINITION-304 asset of operator 'minutes'"):
        fm.operator_asset(minutes, expectations=[strictly])
