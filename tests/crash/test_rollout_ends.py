"""A rollout of the shop from its start to its end, on real drivers and real looks: whoever is killed, wherever the control store is."""

from __future__ import annotations

from pathlib import Path

import postgres
import pytest
from rolled_shop import MEAN, OLD, OPERATOR, Shop, running, until

ROLLOUT = 'rollout=Rollout(shadow="5 s", watch="{watch}", promote=PromoteWhen(match=1, every="1 s", lag="1 hour", approve=True)),'
COMMENTED = f"{OLD}  # the same"
EQUAL = f'{OLD}\n        .with_columns(cents="cents + 0")'


def reached(shop: Shop, state: str) -> None:
    """A supervisor looks; the newest rollout comes to a state."""
    until(lambda: state in {one.state for one in shop.record.steps}, lambda: shop.record, seconds=300)


def promoted(shop: Shop) -> tuple[str, set[tuple[object, ...]]]:
    """The version before, and its rows."""
    before, old = set(shop.rows()), shop.running
    shop.said("rollout", "start", OPERATOR)
    reached(shop, "shadowing")
    shop.order(range(12, 15))
    reached(shop, "awaiting approval")
    shop.said("rollout", "approve", OPERATOR, "--version", shop.record.version)
    return old, before


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_code_that_finds_the_same_is_promoted_and_the_same_code_is_not_whoever_is_killed(tmp_path: Path) -> None:
    """Supervisor and looks are killed with SIGKILL in each state."""
    with running(tmp_path, ROLLOUT.format(watch="15 s"), looks=True) as shop:
        shop.change("operators/orders.py", OLD, COMMENTED)
        assert shop.said("rollout", "start", OPERATOR)["rollout"] is None, "a comment changes nothing"
        shop.change("operators/orders.py", COMMENTED, EQUAL)
        before, old = set(shop.rows()), shop.running
        shop.said("rollout", "start", OPERATOR)
        shop.again(looks=True)
        reached(shop, "shadowing")
        shop.again(looks=True)
        shop.order(range(12, 15))
        reached(shop, "awaiting approval")
        shop.again(looks=True)
        shop.said("rollout", "approve", OPERATOR, "--version", shop.record.version)
        reached(shop, "promoting")
        shop.again(looks=True)
        reached(shop, "watching")
        shop.again(looks=True)
        reached(shop, "done")
        assert shop.running == shop.record.version != old
        assert before < set(shop.rows()), "no window is lost"
        assert len(set(shop.rows())) == len(shop.rows()), "or there twice"
        assert {one.verdict for one in shop.record.guardrails} == {"holds"}
        assert [one.stream for one in shop.store.deployments()] == [shop.stream], "no arm is left"


def taken_back(shop: Shop) -> None:
    shop.change("operators/orders.py", OLD, MEAN)
    old, before = promoted(shop)
    reached(shop, "watching")
    assert shop.running == shop.record.version != old
    shop.said("rollout", "abort", OPERATOR, "--note", "too slow")
    reached(shop, "taken back")
    assert "too slow" in shop.record.reason
    assert shop.driver().version == shop.running == old
    until(lambda: before < set(shop.rows()), shop.rows)
    assert len(set(shop.rows())) == len(shop.rows())


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_a_rollout_in_postgresql_is_promoted_and_taken_back(tmp_path: Path) -> None:
    with (
        postgres.data_folder() as folder,
        postgres.serving(folder) as server,
        running(
            tmp_path, ROLLOUT.format(watch="1 day"), looks=True, store=postgres.database(server, "control")
        ) as shop,
    ):
        taken_back(shop)
