"""Restart strategies: when a stream that has crashed is started again, by a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import Event, row, source

from floodmark import Restart, Stream, Tumbling, Workspace, count, operator, operator_asset, source_asset
from floodmark.control.processes.supervisor import Supervisor, given_up
from floodmark.control.state.records import Deployment, Driver
from floodmark.control.state.store import Store
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import DefinitionError
from floodmark.spec.workspace import Settings


@pytest.mark.parametrize(
    ("strategy", "pauses"),
    [
        (Restart.exponential(), [1, 2, 4, 8, None]),
        (Restart.exponential("100 ms", longest="250 ms", budget=None), [0.1, 0.2, 0.25, 0.25, 0.25]),
        (Restart.fixed("10 seconds", budget=3), [10, 10, None]),
        (Restart.fixed("0 s", budget=None), [0] * 30),
        (Restart.never(), [None]),
    ],
)
def test_a_strategy_says_when_a_stream_starts_again_after_each_crash(strategy, pauses):
    assert [strategy.pause_seconds(crash) for crash in range(1, len(pauses) + 1)] == pauses
    assert Restart.parse(strategy.as_json()) == strategy


def test_no_pause_is_longer_than_the_longest_however_many_crashes():
    assert Restart.exponential(longest="30 days", budget=None).pause_seconds(10_000) == 30 * 86_400


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Restart.exponential(budget=0),
        lambda: Restart.fixed(budget=21),
        lambda: Restart.fixed(budget=True),
        lambda: Restart.fixed("-1 s"),
        lambda: Restart.exponential(within="-1 minute"),
        lambda: operator_asset(tallied, restart="never"),
        lambda: source_asset(source([row(1)]), restart="never"),
        lambda: source_asset(source([row(1)]), poll="1 ms"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused_where_it_is_written(wrong):
    with pytest.raises(DefinitionError, match="DEFINITION-097"):
        wrong()


@operator
def tallied(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Of a source and an operator with strategies of their own."""
    (tmp_path / "pyproject.toml").write_text("")
    workspace = Workspace(
        sources=[source_asset(source([row(1)]), restart=Restart.never())],
        operators=[operator_asset(tallied, restart=Restart.fixed("10 seconds", budget=3, within="1 minute"))],
        settings=Settings(lake="lake"),
    ).at(str(tmp_path))
    return Fleet(workspace=workspace, root=tmp_path, say=lambda _: None)


def crash(store: Store, deployment: Deployment, at: float) -> Driver:
    """Let the newest driver crash, or a new one."""
    newest = next(iter(store.drivers(deployment.stream)), None)
    if newest is None or newest.ended_at is not None:
        newest = store.begin(deployment, "/log")
    store.end(newest.id, "crashed", "EXECUTION-004 something is missing")
    store.update(newest.id, started_at=at - 1, ended_at=at)
    return store.driver(newest.id)


def supervisor(fleet: Fleet, clock: list[float]) -> Supervisor:
    return Supervisor(
        store=fleet.store,
        home=fleet.home,
        holder="one",
        command=lambda _: ["sleep", "0"],
        say=lambda _: None,
        clock=lambda: clock[0],
    )


@pytest.mark.feature("Z14")
def test_a_supervisor_follows_the_strategy_that_the_asset_declares(fleet: Fleet) -> None:
    """Three crashes within a minute end the stream; one that is longer ago does not count."""
    fleet.deploy("tallied", "package", "tallied@1", "running")
    stream, store, clock = fleet.stream("tallied"), fleet.store, [0.0]
    deployment = store.deployment(stream)
    assert deployment is not None
    assert deployment.restart == Restart.fixed("10 seconds", budget=3, within="1 minute")
    one, began = supervisor(fleet, clock), deployment.changed_at + 100
    crashes = ((began, True), (began + 70, True), (began + 90, True), (began + 120, False))
    for begun, (at, starts) in enumerate(crashes, 1):
        crash(store, deployment, at)
        for later, there in ((9.9, begun), (10.1, begun + starts)):
            clock[0] = at + later
            one.tick()
            assert len(store.drivers(stream)) == there, (at, later)
    newest = store.deployment(stream)
    assert newest is not None
    assert len(given_up(newest, store.drivers(stream))) == 3


def test_a_stream_that_is_never_restarted_is_left_after_its_first_crash(fleet: Fleet) -> None:
    fleet.deploy("events", "package", "events@1", "running")
    stream, store, clock = fleet.stream("events"), fleet.store, [0.0]
    deployment = store.deployment(stream)
    assert deployment is not None
    assert (deployment.kind, deployment.restart) == ("source", Restart.never())
    crash(store, deployment, deployment.changed_at + 100)
    clock[0] = deployment.changed_at + 1e6
    supervisor(fleet, clock).tick()
    assert [driver.state for driver in store.drivers(stream)] == ["crashed"]
