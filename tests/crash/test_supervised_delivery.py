"""A supervised delivery: started, seen and stopped as any stream; killed inside of its transaction it delivers each change once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
import supervised
from supervised import fleet_of, supervisors

from floodmark.control.health.judgement import judged
from floodmark.control.processes.holding import Holding
from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state.records import Driver
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.vitals import vitals
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded

CODE = '''
"""A source, its operator, and where the results go."""
from floodmark import Ascending, Contract, Env, EventTime, Files, Restart, Settings, Source, Stream, ToSql, Tumbling, Workspace
from floodmark import count, operator, operator_asset, sum

class Reading(Contract):
    """A number."""
    at: EventTime
    value: int

readings = Source("readings", contract=Reading, connector=Files("inbox", min_age="0 s"), watermark=Ascending())

@operator
def minutely(readings: Stream[Reading]) -> Stream:
    """Sums of a minute."""
    windowed = readings.with_columns(parity="value % 2").key_by("parity").window(Tumbling("1 minute"), allowed_lateness="1 hour")
    return windowed.aggregate(n=count(), total=sum("value"))

delivered = operator_asset(minutely, deliver=[ToSql(Env("SINK"), restart=Restart.fixed("0 s", budget=None))])

def workspace(environment: str = "dev") -> Workspace:
    """All of it."""
    return Workspace(sources=[readings], operators=[delivered], settings=Settings(lake="lake", engine="embedded"))
'''


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A workspace in files."""
    monkeypatch.setenv("SINK", f"sqlite:///{tmp_path}/sink.db")
    return fleet_of(tmp_path, CODE)


@pytest.fixture
def supervising(fleet: Fleet) -> Iterator[Callable[..., Supervisor]]:
    """Supervisors of the delivery."""
    with supervisors(fleet) as supervisor:
        yield supervisor


def until(supervisor: Supervisor, fleet: Fleet, seen: Callable[[Driver], object]) -> Driver:
    """Let a supervisor look until the newest driver is so."""
    return supervised.until(supervisor, fleet.stream("minutely_to_sql"), seen)


def put(fleet: Fleet, sail: Sail, number: int) -> None:
    """Three more minutes land, and their results are computed."""
    rows = "".join(f"2001-01-01T0{number}:{minute:02}:01,{number * 10 + minute}\n" for minute in range(3))
    (fleet.root / "inbox" / f"{number}.csv").write_text(f"at,value\n{rows}")
    land(lambda: sail, fleet.workspace.source("readings"), fleet.lake, workspace=fleet.root)
    run_unbounded(sail, fleet.workspace.operator("minutely"), fleet.lake, until_caught_up=True)


def totals(fleet: Fleet) -> list[int]:
    """What the sink has."""
    engine = sa.create_engine(f"sqlite:///{fleet.root}/sink.db")
    with engine.connect() as connection:
        found = [total for (total,) in connection.execute(sa.text("SELECT total FROM minutely ORDER BY window_start"))]
    engine.dispose()
    return found


@pytest.mark.feature("Z28")
def test_a_delivery_is_a_stream_that_is_killed_started_again_seen_and_stopped(
    fleet: Fleet, supervising: Callable[..., Supervisor], sail: Sail
) -> None:
    put(fleet, sail, 0)
    fleet.start([fleet.workspace.stream("minutely_to_sql")])
    supervisor = supervising(point="delivery.before_commit")
    until(supervisor, fleet, lambda driver: driver.epoch == 1 and driver.state == "running" and driver.batch == 0)
    assert totals(fleet) == [0, 1]
    put(fleet, sail, 1)
    until(supervisor, fleet, lambda driver: driver.batch == 1)
    assert totals(fleet) == [0, 1, 2, 10, 11]
    deployments = fleet.store.deployments()
    verdicts = judged(fleet.store, deployments, holding=Holding(), now=fleet.store.now(), supervised=True)
    (seen,) = vitals(fleet.store, deployments, judgements=verdicts)
    assert seen.health.condition in {"running", "crashed"}
    assert (seen.as_json()["kind"], seen.behind_input, seen.measured.totals.commits) == ("delivery", 0, 2)
    fleet.want("minutely_to_sql", "stopped")
    ended = until(supervisor, fleet, lambda driver: driver.ended_at is not None)
    assert (ended.state, ended.reason) == ("stopped", "stopped at a delivery boundary")


def test_a_delivery_whose_sink_is_away_says_so_and_goes_on(
    fleet: Fleet, supervising: Callable[..., Supervisor], sail: Sail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK", f"sqlite:///{fleet.root}/later/sink.db")
    put(fleet, sail, 0)
    fleet.start([fleet.workspace.stream("minutely_to_sql")])
    supervisor = supervising()
    until(supervisor, fleet, lambda driver: (driver.reason or "").startswith("waiting: "))
    deployments = fleet.store.deployments()
    verdicts = judged(fleet.store, deployments, holding=Holding(), now=fleet.store.now(), supervised=True)
    (seen,) = vitals(fleet.store, deployments, judgements=verdicts)
    assert "unable to open database file" in f"{seen.as_json()}"
    (fleet.root / "later").mkdir()
    driver = until(supervisor, fleet, lambda driver: driver.batch == 0 and not driver.reason)
    assert driver.epoch == 0, "it has waited, not crashed"
