"""Gates: what a failed blocking check closes stays closed for readers until it is released, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import forked
import pytest

from floodmark import Restart
from floodmark.control.health.judgement import Observed
from floodmark.control.processes.holding import Holding
from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state.records import Deployment, Driver, StreamId, Watch
from floodmark.control.state.store import Store
from floodmark.core import crash
from floodmark.core.time import Interval, iso
from floodmark.lake.results import gates, verdicts

DAY, SECONDS = 86_400_000, 300
HERE = StreamId("totals", "/lake")
FAKE = Path(__file__).parent.parent / "support" / "fake_driver.py"
GATE = gates.gate("hourly", "1970-01-02", Interval(start=DAY, end=2 * DAY), "many", "unexpected_count: 3")
ACT = """
import json, sys
from floodmark.lake.results import gates
path, act, fields = sys.argv[1:]
gate = gates.Gate(**json.loads(fields))
if act == "close":
    gates.close(path, gate)
else:
    gates.release(path, [gate], who="me", why="known")
"""


def until(supervisor: Supervisor, seen: Callable[[Driver], bool]) -> Driver:
    """Let it look until the newest driver is so."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        assert supervisor.tick()
        newest = next(iter(supervisor.store.drivers(HERE)), None)
        if newest is not None and seen(newest):
            return newest
        time.sleep(0.02)
    raise AssertionError(supervisor.store.drivers(HERE))


def act(path: Path, what: str, point: str = "") -> int:
    command = [sys.executable, "-c", ACT, str(path), what, json.dumps(asdict(GATE))]
    return forked.run(command, env=os.environ | {crash.VARIABLE: point}).returncode


@pytest.mark.feature("Z8")
@pytest.mark.parametrize("point", crash.POINTS["gate"])
def test_a_killed_process_leaves_a_gate_open_or_closed_and_can_be_repeated(tmp_path: Path, point: str) -> None:
    path = tmp_path / "outputs" / "hourly"
    what = "close" if point.endswith("close") else "release"
    if what == "release":
        gates.close(str(path), GATE)
    assert act(path, what, point) == -signal.SIGKILL
    expected = {"gate.before_close": [], "gate.after_release": []}.get(point, [GATE])
    assert gates.closed(str(path)) == expected
    assert act(path, what) == 0
    assert gates.closed(str(path)) == ([GATE] if what == "close" else [])


def test_a_check_that_passes_releases_its_own_gates_inside_what_it_has_seen(tmp_path: Path) -> None:
    path = str(tmp_path / "hourly")
    other = gates.gate("hourly", "1970-01-02", GATE.interval, "few", "none")
    later = gates.gate("hourly", "1970-01-03", Interval(start=2 * DAY, end=3 * DAY), "many", "1")
    for one in (later, other, GATE):
        gates.close(path, one)
    assert gates.closed(path) == [other, GATE, later]
    assert gates.passed(path, "many", Interval(start=DAY, end=DAY + 1)) == []
    assert gates.passed(path, "many", Interval(start=0, end=2 * DAY)) == [GATE]
    assert gates.closed(path) == [other, later]
    assert gates.passed(path, "many", Interval()) == [later]
    gates.close(path, other)
    assert gates.closed(path) == [other], "closed again, it is one gate"


RECORD = """
import sys
from floodmark.core.time import Interval, iso
from floodmark.lake.results import verdicts
path, start, end = sys.argv[1:]
verdicts.record(path, "many", Interval(start=int(start), end=int(end)))
"""


@pytest.mark.feature("Z8")
@pytest.mark.parametrize("point", crash.POINTS["verdict"])
def test_a_killed_process_leaves_a_verdict_or_none_and_can_be_repeated(tmp_path: Path, point: str) -> None:
    path, days = str(tmp_path / "hourly"), [(DAY, 2 * DAY), (3 * DAY, 4 * DAY), (2 * DAY, 3 * DAY)]

    def record(day: tuple[int, int], point: str = "") -> int:
        command = [sys.executable, "-c", RECORD, path, *map(str, day)]
        return forked.run(command, env=os.environ | {crash.VARIABLE: point}).returncode

    def unjudged() -> list[bool]:
        return [bool(verdicts.unjudged(path, ["many"], Interval(start=start, end=end))) for start, end in days]

    assert record(days[0]) == 0
    assert record(days[1], point) == -signal.SIGKILL
    assert unjudged() == [False, point.endswith("before_write"), True]
    assert [record(day) for day in days] == [0, 0, 0]
    assert unjudged() == [False] * 3
    assert verdicts.unjudged(path, ["many", "few"], Interval(start=DAY, end=4 * DAY)) == ["few"]
    verdicts.cut(path, 3 * DAY - 1)
    assert unjudged() == [False, True, False], "a table that was restored has passed nothing behind its progress"
    verdicts.forget(path)
    assert unjudged() == [True] * 3


def test_a_stream_that_waits_for_a_verdict_is_gated_and_at_fault_once_nobody_judges(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/control.db")
    about = {"root": "/", "lake": "/lake", "environment": "dev", "package": "p", "version": "totals@1"}
    store.deploy(Deployment(operator="totals", desired="running", **about))
    (deployment,) = store.deployments()
    driver, now = store.begin(deployment, "/logs"), store.now()

    def health(reason: str) -> tuple[str, str, str]:
        store.update(driver.id, state="running", reason=reason)
        observed = Observed(deployment=deployment, drivers=store.drivers(HERE), supervised=True, now=now)
        verdict = observed.judge()
        return verdict.level, verdict.condition, verdict.mend

    incomplete = f"{verdicts.HELD}partition 1970-01-02 of 'hourly', which is not complete yet"
    assert health(incomplete) == ("ok", "gated", "")
    judged = f"{verdicts.HELD}partition 1970-01-02 of 'hourly', which is complete, and not judged since "
    assert health(judged + iso(int(now * 1000) - 10_000)) == ("ok", "gated", "")
    level, condition, mend = health(judged + iso(int(now * 1000) - 300_000))
    assert (level, condition) == ("warning", "gated")
    assert "floodmark gate release hourly --partition" in mend


@pytest.mark.feature("Z8")
@pytest.mark.clock
def test_a_stream_waits_for_a_gate_of_its_input_and_goes_on_when_it_is_released(tmp_path: Path) -> None:
    store, path = Store(f"sqlite:///{tmp_path}/control.db"), str(tmp_path / "outputs" / "hourly")
    store.deploy(
        Deployment(
            operator="totals",
            root="/",
            lake="/lake",
            environment="dev",
            package="p",
            version="totals@1",
            desired="running",
            watch=Watch(table=str(tmp_path / "outputs" / "totals"), inputs=(("hourly", path),)),
        )
    )
    assert store.deployments()[0].watch == Watch(table=str(tmp_path / "outputs" / "totals"), inputs=(("hourly", path),))

    def command(driver: Driver) -> list[str]:
        return [sys.executable, str(FAKE), store.url, str(driver.id), "runs"]

    said: list[str] = []
    supervisor = Supervisor(
        store=store, home=tmp_path, holder="a", command=command, say=said.append, restart=Restart.exponential("50 ms")
    )
    first = until(supervisor, lambda driver: driver.state == "running")
    assert store.unwanted([first.id]) == {}
    gates.close(path, GATE)
    supervisor.tick()
    assert store.unwanted([first.id]) == {first.id: ""}, "one that shares its process, or is elsewhere, asks"
    ended = until(supervisor, lambda driver: driver.ended_at is not None)
    assert (ended.id, ended.reason) == (first.id, "stopped at a micro-batch boundary")
    for _ in range(3):
        supervisor.tick()
    assert len(store.drivers(HERE)) == 1, "none is started"
    assert [line for line in said if "waits for a gate: partition 1970-01-02 of 'hourly'" in line] == [said[1]]
    (deployment,) = store.deployments()
    observed = Observed(
        deployment=deployment,
        drivers=store.drivers(HERE),
        supervised=True,
        now=store.now(),
        gate=Holding().gate_of(deployment.watch),
    )
    health = observed.judge()
    assert (health.level, health.condition) == ("warning", "gated")
    assert "check 'many' failed: unexpected_count: 3" in health.reason
    assert "floodmark gate release hourly --partition 1970-01-02 --reason ..., or job release_gate" in health.mend
    gates.release(path, [GATE], who="me", why="known")
    again = until(supervisor, lambda driver: driver.state == "running")
    assert again.id != first.id
    store.want(HERE, "stopped")
    until(supervisor, lambda driver: driver.ended_at is not None)
