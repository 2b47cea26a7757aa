"""A promoted version that turns out to be no good is taken back, with the reason: each in a shop whose drivers are real."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rolled_shop import MEAN, OLD, OPERATOR, Shop, running, until

from floodmark.spec.assets.restart import BUDGET

ROLLOUT = 'rollout=Rollout(shadow="0 s", watch="1 day", forward_only=True, catch_up="{catch_up}", promote=PromoteWhen(lag="30 s", every="1 s")),'
EXPECTED = '[Expectation("column_values_to_be_between", column="orders", min_value=1)]'
FAILING = f"""{OLD}
        .with_columns(mean="1 / (cents - 7777)", on_error="quarantine")"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Being behind for a moment, as on a busy machine, takes nothing back."""
    with running(tmp_path, ROLLOUT.format(catch_up="10 minutes")) as found:
        yield found


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Shop]:
    """Being behind for two seconds does."""
    with running(tmp_path, ROLLOUT.format(catch_up="2 s")) as found:
        yield found


def promoted(shop: Shop, code: str) -> str:
    """Let a version be promoted; the one before."""
    old = shop.running
    shop.change("operators/orders.py", OLD, code)
    shop.said("rollout", "start", OPERATOR)
    shop.reaches("shadowing")
    shop.order(range(12, 15))
    shop.reaches("watching")
    assert shop.record.version != old
    return old


def taken_back(shop: Shop, old: str, *reason: str) -> None:
    shop.reaches("taken back")
    status = shop.said("rollout", "status", OPERATOR)["rollouts"][0]
    assert all(text in status["reason"] for text in reason), status["reason"]
    assert status["reason"] == next(one["why"] for one in status["steps"] if one["state"] == "taking back")
    assert shop.running == old
    assert shop.driver().version == old


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_rows_that_do_not_meet_a_blocking_expectation(shop: Shop) -> None:
    unmet = 'Expectation("column_values_to_be_between", column="mean", max_value=990, blocking=True)'
    shop.change("assets/orders.py", EXPECTED, f"{EXPECTED[:-1]}, {unmet}]")
    old = promoted(shop, MEAN)
    taken_back(shop, old, "watch: expectations", "column_values_to_be_between_mean of 'hourly_sales' is not met")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_far_more_rows_that_are_set_aside(shop: Shop) -> None:
    old = promoted(shop, FAILING)
    shop.look()
    assert shop.record.state == "watching"
    assert shop.running == shop.record.version
    shop.order(range(16, 17), tuple(f"A{n:c}" for n in range(65, 85)), 7777)
    shop.order(range(18, 20))
    taken_back(shop, old, "watch: rows set aside: wants at most 0.1% of the rows read; before it were 0%", "sees 20 of")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_version_whose_driver_is_killed_again_and_again(shop: Shop) -> None:
    old = promoted(shop, MEAN)
    before = set(shop.rows())
    for number in range(1, BUDGET + 1):
        driver = shop.driver()
        assert driver.pid is not None
        os.killpg(driver.pid, signal.SIGKILL)
        until(lambda driver=driver: shop.store.driver(driver.id).state == "crashed", shop.record)
        shop.look()
        assert (shop.record.state == "watching") == (number < BUDGET), shop.record
    taken_back(shop, old, f"watch: stream: wants a stream that runs, sees it has crashed {BUDGET} times", "SIGKILL")
    until(lambda: before <= set(shop.rows()), shop.rows)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_version_that_stays_behind_its_input(impatient: Shop) -> None:
    """Its driver hangs, and nobody is there to end it, until the watch has seen that for long enough."""
    shop = impatient
    old = promoted(shop, MEAN)
    driver = shop.driver()
    assert driver.pid is not None
    shop.unsupervised()
    shop.freeze(driver)
    shop.order(range(16, 19))
    shop.reaches("taking back")
    assert shop.record.state == "taking back", "it waits for a supervisor"
    assert "LIFECYCLE-053" in shop.record.waits
    assert shop.running == shop.record.version != old
    os.killpg(driver.pid, signal.SIGCONT)
    shop.supervise()
    taken_back(shop, old, "watch: lag: wants at most 30 seconds behind its input", "more than that for")
