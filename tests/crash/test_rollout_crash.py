"""Rollouts of the shop on real drivers: each look is killed between any two steps and repeated, and all ends as if it had not been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable
from processes import paths

from floodmark.control.rollout import Record, Rollouts
from floodmark.control.store import CONTROL, Store, StreamId
from floodmark.control.supervisor import LEASE
from floodmark.core import crash
from floodmark.lake import experiments
from floodmark.lake.paths import Lake

OPERATOR = "hourly_sales"
ROLLOUT = 'rollout=Rollout(shadow="1 s", watch="{watch}", promote=PromoteWhen(match=1, every="1 s", approve=True)),'
OLD = 'cents=sum("cents"))'
MEAN = 'cents=sum("cents"))\n        .with_columns(mean="cents / orders")'
WRONG = 'cents=sum("cents"))\n        .with_columns(cents="cents + 1")'


class Shop:
    """A workspace whose stream runs, and what the test does with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream = StreamId(OPERATOR, str(folder / "lake"))
        self.supervisor: subprocess.Popen[bytes] | None = None

    def supervise(self, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": paths()}
        self.supervisor = subprocess.Popen([sys.executable, *arguments], cwd=self.folder, env=environment)

    def unsupervised(self) -> None:
        """SIGKILL; its lease is over at once."""
        assert self.supervisor is not None
        self.supervisor.kill()
        self.supervisor.wait()
        self.store.release(LEASE, self.store.holder(LEASE) or "")

    @property
    def store(self) -> Store:
        return Store(f"sqlite:///{self.folder}/.floodmark/control/control.db")

    @property
    def record(self) -> Record:
        return Rollouts(self.store).of(self.stream, 1)[0]

    @property
    def running(self) -> str:
        deployment = self.store.deployment(self.stream)
        assert deployment is not None
        return deployment.version

    def rows(self, *more: str) -> list[tuple[Any, ...]]:
        table = DeltaTable(str(self.folder / "lake" / "outputs" / OPERATOR)).to_pyarrow_table().to_pylist()
        columns = ("country", "window_end", "orders", "cents", *more)
        return sorted(tuple(one[column] for column in columns) for one in table if one["_kind"] == 0)

    def program(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(self.folder, [sys.executable, "-m", "floodmark.cli.main", *arguments])

    def said(self, *arguments: str) -> dict[str, Any]:
        done = self.program(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def look(self, at: str = "") -> int:
        """One look at the newest rollout, killed at a point; the turn of an action it killed is over at once."""
        package = self.folder / ".floodmark" / "control" / "packages" / self.record.package
        command = [sys.executable, "-m", "floodmark.control.rollouts", str(self.record.id), str(package)]
        more = {CONTROL: self.store.url, crash.VARIABLE: at, "PYTHONPATH": f"{package}{os.pathsep}{paths()}"}
        done = _run(package, command, **more)
        assert done.returncode in {0, -signal.SIGKILL}, done.stdout + done.stderr
        for one in self.store.deployments() if done.returncode else []:
            self.store.release(one.stream.action, self.store.holder(one.stream.action) or "")
        return done.returncode

    def killed(self, *points: str) -> None:
        """Looks that are killed at each of these, in turn."""
        for point in points:
            until(
                lambda point=point: self.look(f"{point}:1") == -signal.SIGKILL, lambda point=point: (point, self.record)
            )

    def reaches(self, state: str) -> None:
        """Looks until the newest rollout is in a state."""

        def reached() -> bool:
            self.look()
            return self.record.state == state

        until(reached, lambda: self.record)

    def change(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def order(self, hours: range) -> None:
        lines = [
            f"2025-03-01T{hour}:{n:02}:00Z,{hour}{n:02},{'DE' if n % 2 else 'FR'},1,{n * 100},"
            for hour in hours
            for n in range(20)
        ]
        inbox = self.folder / "inbox" / "orders"
        first = sorted(inbox.iterdir())[0].read_text().splitlines()[0]
        (inbox / f"more-{hours.start}.csv").write_text("\n".join([first, *lines]) + "\n")
        self.said("land", "orders")


def _run(folder: Path, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": paths(), **more}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def until(what: Callable[[], object], *seen: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, [one() if callable(one) else one for one in seen]
        time.sleep(0.1)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Its stream runs, supervised by one that looks at no rollout; nothing of it is left afterwards."""
    made = Shop(tmp_path / "shop")
    _run(tmp_path, [sys.executable, "-m", "floodmark.cli.main", "init", "shop"])
    made.change(
        "assets/orders.py", "operator_asset, source_asset", "PromoteWhen, Rollout, operator_asset, source_asset"
    )
    made.change("assets/orders.py", "    expectations=", f"    {ROLLOUT.format(watch='2 s')}\n    expectations=")
    made.said("land", "orders")
    program = str(Path(__file__).parent / "rollout_process.py")
    made.supervise(program, str(made.folder / ".floodmark" / "control"), made.store.url)
    try:
        made.said("start", OPERATOR)
        until(lambda: DeltaTable.is_deltatable(str(made.folder / "lake" / "outputs" / OPERATOR)))
        yield made
    finally:
        made.unsupervised()
        for one in made.store.deployments():
            for driver in made.store.drivers(one.stream, 5):
                if driver.pid is not None and driver.ended_at is None and psutil.pid_exists(driver.pid):
                    os.killpg(driver.pid, signal.SIGKILL)


@pytest.mark.feature("Z6")
@pytest.mark.timeout(900)
def test_a_rollout_that_is_killed_between_any_two_steps(shop: Shop) -> None:
    assert shop.said("rollout", "start", OPERATOR)["rollout"] is None, "nothing has changed"
    assert "LIFECYCLE-102" in shop.program("rollout", "approve", OPERATOR).stderr
    shop.change("operators/orders.py", OLD, MEAN)
    before, old = shop.rows(), shop.running
    assert shop.said("rollout", "start", OPERATOR)["rollout"]["state"] == "waiting"
    assert "LIFECYCLE-100" in shop.program("rollout", "start", OPERATOR).stderr
    shop.killed("experiment.after_fork", "experiment.after_rule", "rollout.begun")
    shop.order(range(12, 15))
    assert "LIFECYCLE-103" in shop.program("rollout", "approve", OPERATOR).stderr, "nothing waits for it"
    shop.killed("rollout.shadowed", "rollout.asking")
    shop.reaches("awaiting approval")
    assert shop.running == old
    refused = shop.program("rollout", "approve", OPERATOR, "--version", old)
    assert "LIFECYCLE-103" in refused.stderr, "something else"
    shop.said("rollout", "approve", OPERATOR, "--version", shop.record.version)
    shop.killed("rollout.judged", "step.follow", "step.restore_state", "step.restore_table", "switch.after_journal")
    shop.killed("rollout.promoted", "rollout.watched")
    shop.reaches("done")
    assert [one.state for one in shop.record.steps] == [
        "waiting",
        "shadowing",
        "judging",
        "awaiting approval",
        "promoting",
        "watching",
        "done",
    ]
    assert shop.running == shop.record.version != old
    assert set(before) < set(shop.rows()), "no window is lost"
    assert len(set(shop.rows())) == len(shop.rows()), "or there twice"
    assert not experiments.known(Lake(str(shop.folder / "lake")))
    assert [one.stream for one in shop.store.deployments()] == [shop.stream]


@pytest.mark.timeout(900)
def test_a_rollout_that_differs_is_stopped_and_one_that_fails_is_taken_back(shop: Shop) -> None:
    old = shop.running
    shop.change("operators/orders.py", OLD, WRONG)
    shop.said("rollout", "start", OPERATOR)
    shop.reaches("shadowing")
    shop.order(range(12, 15))
    shop.killed("rollout.stopping")
    shop.reaches("stopped")
    assert "match of hourly_sales: wants 100% of the rows the same, sees" in shop.record.reason
    assert shop.running == old
    assert [one.state for one in experiments.known(Lake(str(shop.folder / "lake")))] == ["stopped"]

    shop.change("operators/orders.py", WRONG, MEAN)
    shop.change("assets/orders.py", 'watch="2 s"', 'watch="1 day"')
    shop.said("rollout", "start", OPERATOR)
    shop.reaches("shadowing")
    shop.order(range(16, 19))
    shop.reaches("awaiting approval")
    shop.said("rollout", "approve", OPERATOR)
    shop.reaches("watching")
    assert shop.running == shop.record.version != old
    before = shop.rows()
    shop.said("rollout", "abort", OPERATOR, "--note", "too slow")
    shop.killed("rollout.failed", "rollout.taken_back")
    shop.reaches("taken back")
    assert "too slow" in shop.record.reason
    assert shop.running == old
    assert [one.kind for one in shop.store.actions(shop.stream)].count("rollback") == 1
    until(lambda: set(before) <= set(shop.rows()))
    assert "mean" not in {
        one.name for one in DeltaTable(str(shop.folder / "lake" / "outputs" / OPERATOR)).schema().fields
    }


@pytest.mark.timeout(900)
def test_supervisors_promote_an_arm_by_its_rule_once_it_is_approved(shop: Shop) -> None:
    """Real looks, started by supervisors, of which one is killed while it waits."""
    shop.unsupervised()
    shop.supervise("-m", "floodmark.cli.main", "supervise")
    shop.change("operators/orders.py", OLD, MEAN)
    rule = ("--promote-when", "match>=100%", "--promote-when", "every=1 s", "--promote-when", "approve")
    refused = shop.program("experiment", "start", "mean", "--of", OPERATOR, "--promote-when", "cent within 1")
    assert "DEFINITION-162" in refused.stderr
    assert "Did you mean 'cents'?" in refused.stderr
    old = shop.running
    shop.said("experiment", "start", "mean", "--of", OPERATOR, *rule)
    assert "LIFECYCLE-100" in shop.program("rollout", "start", OPERATOR).stderr, "the rule is its rollout"
    shop.order(range(12, 15))
    until(lambda: shop.record.state == "awaiting approval", lambda: shop.record)
    shop.unsupervised()
    shown = shop.said("experiment", "show", "mean")["rule"]
    assert {one["name"]: one["verdict"] for one in shown["gates"]} == {
        "arm": "holds",
        "rows": "holds",
        f"match of {OPERATOR}": "holds",
        f"columns of {OPERATOR}": "holds",
        "approval": "waits",
    }
    assert "LIFECYCLE-103" in shop.program("experiment", "approve", "mean", "--arm", "a").stderr
    shop.said("experiment", "approve", "mean", "--arm", "b")
    assert shop.running == old
    shop.supervise("-m", "floodmark.cli.main", "supervise")
    until(lambda: shop.record.state == "done", lambda: shop.record)
    assert shop.running == shop.record.version != old
    assert shop.said("experiment", "show", "mean")["promoted"] == "b"
