"""Rollouts of the shop on real drivers: each look is killed between any two steps and repeated, and all ends as if it had not been."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from rolled_shop import MEAN, OLD, OPERATOR, ROLLOUT, Shop, running, until

from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments

WRONG = 'cents=sum("cents"))\n        .with_columns(cents="cents + 1")'


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Its stream runs, supervised by one that looks at no rollout."""
    with running(tmp_path) as found:
        yield found


@pytest.fixture
def ramped(tmp_path: Path) -> Iterator[Shop]:
    """Another one, whose new version runs over some of the keys first."""
    with running(tmp_path, ROLLOUT.format(watch="2 s").replace("watch=", "ramp=(0.9,), watch=")) as found:
        yield found


@pytest.mark.feature("Z5", "Z6")
@pytest.mark.timeout(900)
def test_a_rollout_that_is_killed_between_any_two_steps(ramped: Shop) -> None:
    """So is its supervisor in each state."""
    assert ramped.said("rollout", "start", OPERATOR)["rollout"] is None, "nothing has changed"
    assert "LIFECYCLE-102" in ramped.program("rollout", "approve", OPERATOR).stderr
    ramped.change("operators/orders.py", OLD, MEAN)
    before, old = ramped.rows(), ramped.running
    assert ramped.said("rollout", "start", OPERATOR)["rollout"]["state"] == "waiting"
    assert "LIFECYCLE-100" in ramped.program("rollout", "start", OPERATOR).stderr
    ramped.killed("experiment.after_fork", "rollout.begun")
    ramped.again()
    (some,) = experiments.known(Lake(str(ramped.folder / "lake")))
    assert str(some.sample).startswith("115 of 128 key groups")
    refused = ramped.program("experiment", "promote", some.name, "--arm", "new")
    assert "LIFECYCLE-117" in refused.stderr
    ramped.order(range(12, 15))
    ramped.killed(
        "rollout.shadowed", "rollout.judged", "experiment.after_fork", "experiment.after_rule", "rollout.begun"
    )
    (whole,) = experiments.known(Lake(str(ramped.folder / "lake")))
    assert whole.sample is None
    assert [one.state for one in ramped.record.steps] == ["waiting", "shadowing", "judging", "waiting"]
    ramped.order(range(15, 17))
    assert "LIFECYCLE-103" in ramped.program("rollout", "approve", OPERATOR).stderr, "nothing waits for it"
    ramped.killed("rollout.shadowed", "rollout.asking")
    ramped.reaches("awaiting approval")
    ramped.again()
    assert ramped.running == old
    refused = ramped.program("rollout", "approve", OPERATOR, "--version", old)
    assert "LIFECYCLE-103" in refused.stderr, "something else"
    ramped.said("rollout", "approve", OPERATOR, "--version", ramped.record.version)
    ramped.killed("rollout.judged", "step.follow", "step.restore_state")
    ramped.again()
    ramped.killed("step.restore_table", "switch.after_journal", "rollout.promoted")
    ramped.again()
    ramped.killed("rollout.watched")
    ramped.reaches("done")
    assert [one.state for one in ramped.record.steps] == [
        *(2 * ["waiting", "shadowing", "judging"]),
        "awaiting approval",
        "promoting",
        "watching",
        "done",
    ]
    assert ramped.running == ramped.record.version != old
    assert set(before) < set(ramped.rows()), "no window is lost"
    assert len(set(ramped.rows())) == len(ramped.rows()), "or there twice"
    assert not experiments.known(Lake(str(ramped.folder / "lake")))
    assert [one.stream for one in ramped.store.deployments()] == [ramped.stream]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_rollout_that_differs_is_stopped_and_one_that_fails_is_taken_back_whoever_is_killed(shop: Shop) -> None:
    """In each state the supervisor is killed with SIGKILL too."""
    old = shop.running
    shop.change("operators/orders.py", OLD, WRONG)
    shop.said("rollout", "start", OPERATOR)
    shop.again()
    shop.reaches("shadowing")
    shop.again()
    shop.order(range(12, 15))
    shop.killed("rollout.stopping")
    shop.again()
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
    shop.again()
    shop.said("rollout", "approve", OPERATOR)
    shop.killed("rollout.judged", "step.follow")
    shop.again()
    shop.killed("step.restore_state")
    shop.again()
    shop.reaches("watching")
    assert shop.running == shop.record.version != old
    before = shop.rows()
    assert "LIFECYCLE-113" in shop.program("savepoint", "delete", shop.record.savepoint).stderr, "the way back"
    shop.again()
    shop.said("rollout", "abort", OPERATOR, "--note", "too slow")
    shop.killed("rollout.failed", "step.restore_table")
    shop.again()
    shop.killed("rollout.taken_back")
    shop.again()
    shop.reaches("taken back")
    assert "too slow" in shop.record.reason
    assert shop.running == shop.driver().version == old
    done = [one.step for one in shop.store.actions(shop.stream) if one.kind == "rollback"]
    assert done.count("done") == 1, done
    until(lambda: set(before) <= set(shop.rows()))
    assert len(set(shop.rows())) == len(shop.rows())
    assert "mean" not in {
        one.name for one in DeltaTable(str(shop.folder / "lake" / "outputs" / OPERATOR)).schema().fields
    }


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_supervisors_promote_an_arm_by_its_rule_once_it_is_approved(shop: Shop) -> None:
    """Real looks, started by supervisors, of which one is killed while it waits."""
    shop.unsupervised()
    shop.supervise(looks=True)
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
    assert {one["name"]: one["verdict"] for one in shown["guardrails"]} == {
        "arm": "holds",
        "rows": "holds",
        f"match of {OPERATOR}": "holds",
        f"columns of {OPERATOR}": "holds",
        "approval": "waits",
    }
    assert "LIFECYCLE-103" in shop.program("experiment", "approve", "mean", "--arm", "a").stderr
    shop.said("experiment", "approve", "mean", "--arm", "b")
    assert shop.running == old
    shop.supervise(looks=True)
    until(lambda: shop.record.state == "done", lambda: shop.record)
    assert shop.running == shop.record.version != old
    assert shop.said("experiment", "show", "mean")["promoted"] == "b"
