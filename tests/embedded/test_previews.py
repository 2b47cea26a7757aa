"""What the preview of a bounded run says, against what the run then does and DuckDB counts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from histories import DAY_MS, DAYS, START, day, hourly, partitioned, rows, sources
from seeds import seed_of

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval, from_ms, to_ms
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import costs, gates
from floodmark.lake.results import preview as previewed
from floodmark.lake.results.extent import Extent
from floodmark.lake.results.needs import scans
from floodmark.lake.results.preview import chain, preview
from floodmark.lifecycle.rate import Rate

HOURLY = partitioned(hourly)


@fm.operator(name="busiest", inputs={"hours": HOURLY})
def _busiest(hours: fm.Stream) -> fm.Stream:
    """The greatest hour of each day."""
    return hours.key_by("key").window(fm.Tumbling("1 day")).aggregate(most=fm.max("value"))


busiest = partitioned(_busiest)


def land(engine: Computing, lake: Lake, *parts: float) -> None:
    """Land more and more of the rows: one file a time, whose ranges of event time overlap."""
    events, _ = rows(7, late=0.1)
    for part in parts:
        engine.land(sources(events[: int(part * len(events))], [])["events"], lake, end=part == 1)


def files_of(path: str) -> list[str]:
    return [uri.removeprefix("file://") for uri in DeltaTable(path).file_uris()] if Path(path).exists() else []


def counted(path: str, interval: Interval, *, opened: bool = True) -> Extent:
    """By DuckDB, which reads all rows: the files whose range of event time meets the interval, or that hold rows of it, and the rows in it."""
    files = files_of(path)
    if not files:
        return Extent()
    low, high = (from_ms(ms).isoformat() for ms in (interval.start, interval.end))
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        found_files = engine.execute(
            f"SELECT filename, count(*) FILTER (WHERE _event_time >= '{low}' AND _event_time < '{high}') FROM "
            f"read_parquet({files}, filename = true, hive_partitioning = false) WHERE _event_time IS NOT NULL GROUP BY 1 "
            f"HAVING max(_event_time) >= '{low}' AND min(_event_time) < '{high}'"
        ).fetchall()
    sizes = [Path(name).stat().st_size for name, held in found_files if held or opened]
    return Extent(files=len(sizes), rows=sum(count for _, count in found_files), size=sum(sizes))


def intervals(count: int) -> Sequence[Interval]:
    """Ranges of whole days and of odd milliseconds."""
    rng, drawn = random.Random(seed_of("previews")), []
    for _ in range(count):
        if rng.random() < 0.5:
            drawn.append(day(rng.randrange(-1, DAYS), rng.randrange(1, 4)))
        else:
            start = to_ms(START) + rng.randrange(DAYS * DAY_MS)
            drawn.append(Interval(start=start, end=start + rng.randrange(1, 2 * DAY_MS)))
    return drawn


@pytest.mark.feature("Z2")
@pytest.mark.parametrize("count", [6, pytest.param(20, marks=pytest.mark.soak)])
def test_rows_and_files_of_a_preview_are_those_of_the_run(engine: Computing, tmp_path: Path, count: int) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.3, 0.5, 0.9, 1)
    path = lake.output("hourly")
    for number, interval in enumerate(intervals(count), 1):
        made = preview(HOURLY, lake, interval, engine=engine.name, force=True)
        assert made.missing == (interval,)
        assert made.reads == counted(lake.log("events"), scans(HOURLY, interval))
        assert made.replaces == counted(path, interval, opened=False)
        before = set(files_of(path))
        result = engine.run_bounded(HOURLY, lake, interval, force=True)
        gone = before - set(files_of(path))
        sizes = [Path(name).stat().st_size for name in gone]
        assert (len(sizes), sum(sizes)) == (made.replaces.files, made.replaces.size)
        cost = costs.past(lake, "hourly")[-1]
        assert (cost.files, cost.rows, cost.size) == (made.reads.files, made.reads.rows, made.reads.size)
        assert cost.rows_written >= result.rows["hourly"]
        assert len(costs.past(lake, "hourly")) == number
        assert preview(HOURLY, lake, interval, engine=engine.name).missing == ()
    rate = Rate.of(costs.past(lake, "hourly"))
    again = preview(HOURLY, lake, day(0, 2), engine=engine.name, force=True)
    assert rate is not None
    assert again.seconds == rate.seconds(again.reads.rows)
    assert preview(HOURLY, lake, day(0), engine="another", force=True).seconds is None, "no run on that engine"


def test_a_chain_says_what_is_computed_first_and_what_becomes_stale_behind_it(
    engine: Computing, tmp_path: Path
) -> None:
    lake, three = Lake(str(tmp_path / "lake")), day(0, 3)
    land(engine, lake, 0.5, 1)
    both = [(HOURLY, three), (busiest, three)]
    first, second = chain(both, lake, engine=engine.name, operators=[HOURLY, busiest])
    assert first.partitions == {"missing": 3}
    assert first.seconds is None
    assert (second.missing, second.unknown) == ((three,), ("hourly",))
    for operator, interval in both:
        engine.run_bounded(operator, lake, interval)

    first, second = chain(both, lake, engine=engine.name)
    assert (first.missing, second.missing) == ((), ())
    assert first.partitions == second.partitions == {"covered": 3}
    first, second = chain([(HOURLY, day(1)), (busiest, three)], lake, engine=engine.name, force=False)
    assert (first.missing, second.missing) == ((), ())
    alone = preview(HOURLY, lake, day(1), engine=engine.name, operators=[HOURLY, busiest], force=True)
    assert [(reader.operator, reader.partitions, reader.stream) for reader in alone.readers] == [("busiest", 1, False)]
    engine.run_bounded(HOURLY, lake, day(1), force=True)
    stale = preview(busiest, lake, three, engine=engine.name)
    assert stale.missing == (day(1),)
    assert stale.partitions == {"stale": 1, "covered": 2}
    assert "1 stale, 2 covered already" in stale.lines()[0]


def test_what_is_computed_first_counts_in_the_expectations_of_what_reads_it(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.5, 1)
    for number in range(2):
        for operator in (HOURLY, busiest):
            engine.run_bounded(operator, lake, day(number))
    both = [(HOURLY, day(2, 2)), (busiest, day(2, 2))]
    first, second = chain(both, lake, engine=engine.name)
    rate = Rate.of(costs.past(lake, "busiest"))
    assert rate is not None
    assert first.rows_added == first.rows_written
    assert first.rows_added
    assert second.reads.rows == 0, "there is nothing yet"
    assert second.seconds == rate.seconds(first.rows_added)
    engine.run_bounded(HOURLY, lake, day(2, 2))
    alone = preview(busiest, lake, day(2, 2), engine=engine.name)
    assert first.rows_added is not None
    assert first.rows_added / 1.5 < alone.reads.rows < first.rows_added * 1.5


def test_an_upstream_of_two_outputs_counts_once_and_one_without_a_run_leaves_the_time_unknown(
    engine: Computing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, wanted = Lake(str(tmp_path)), day(2)
    land(engine, lake, 1)
    for operator in (HOURLY, busiest):
        engine.run_bounded(operator, lake, day(0))
    made = preview(HOURLY, lake, wanted, engine=engine.name)
    rate = Rate.of(costs.past(lake, "busiest"))
    assert rate is not None
    assert made.rows_added
    both = ["hourly", "hourly__late"]
    monkeypatch.setattr(previewed, "_behind", lambda *_: ([wanted], both))
    again = preview(busiest, lake, wanted, engine=engine.name, first=dict.fromkeys(both, made))
    assert again.seconds == rate.seconds(made.rows_added)
    unrecorded = replace(made, rows_written=None)
    unknown = preview(
        busiest, lake, wanted, engine=engine.name, first={"hourly": unrecorded, "hourly__late": unrecorded}
    )
    assert (unknown.seconds, unknown.rows_written) == (None, None)
    assert "duration not known, as no run of what is computed first is recorded" in unknown.lines()[0]


def test_partitions_of_a_stream_and_beyond_it_are_told_apart(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.5)
    engine.run_unbounded(HOURLY, lake, until_caught_up=True)
    engine.run_bounded(HOURLY, lake, day(0))
    land(engine, lake, 1)
    made = preview(HOURLY, lake, day(0, 2), engine=engine.name)
    assert made.partitions == {"stream": 1, "covered": 1}
    with pytest.raises(LifecycleError, match="LIFECYCLE-005"):
        preview(HOURLY, lake, day(0, 5), engine=engine.name)


def test_a_partition_that_a_gate_holds_is_a_state_of_its_own(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 1)
    engine.run_bounded(HOURLY, lake, day(0, 3))
    gates.close(lake.output("hourly"), gates.gate("hourly", "2020-01-02", day(1), "many", "5 of 3"))
    made = preview(busiest, lake, day(0, 3), engine=engine.name)
    assert made.partitions == {"missing": 2, "gated": 1}
    assert made.missing == (day(0), day(2))
    assert "1 held by a gate" in made.lines()[0]
