"""The health of a stream, judged from records: each fault, its reason, and what mends it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import psutil
import pytest

from floodmark import (
    Ascending,
    Contract,
    EventTime,
    Files,
    Source,
    Stream,
    Workspace,
    operator,
    operator_asset,
    source_asset,
)
from floodmark.control.health.judgement import LAG_SECONDS, SILENT_SECONDS, START_SECONDS, Health, Observed
from floodmark.control.state.records import Deployment, Driver
from floodmark.core.errors import DefinitionError
from floodmark.core.host import birth
from floodmark.core.time import END, NEVER
from floodmark.observe.standing import Standing

NOW = 1_000_000.0
DEPLOYED = Deployment(
    operator="totals",
    root="/",
    lake="/lake",
    environment="dev",
    package="p",
    version="v",
    desired="running",
    changed_at=NOW - 5000,
)
RUNS = Driver(
    id=9,
    operator="totals",
    lake="/lake",
    version="v",
    epoch=9,
    state="running",
    pid=os.getpid(),
    born=birth(psutil.Process()),
    log="",
    started_at=NOW - 4000,
    heartbeat_at=NOW - 1,
    batch=7,
    progress=0,
    ended_at=None,
    reason=None,
)
CRASHED = replace(RUNS, id=8, state="crashed", ended_at=NOW - 4000, started_at=NOW - 4500, reason="killed by SIGKILL")
FRESH = Standing(progress=int((NOW - 30) * 1000), at=NOW - 5)
BEHIND = replace(FRESH, behind_since=NOW - LAG_SECONDS - 1)
DOWN = Health(name="orders", level="error", condition="failed", reason="it has crashed 5 times", mend="job restart")


def judged(drivers: list[Driver], **known: Any) -> Health:
    wanted = replace(DEPLOYED, desired=known.pop("desired", "running"))
    known = {"supervised": True, "standing": FRESH} | known
    return Observed(deployment=wanted, drivers=drivers, now=NOW, **known).judge()


@pytest.mark.feature("Z7")
@pytest.mark.parametrize(
    ("drivers", "known", "level", "condition", "reason", "mend"),
    [
        ([RUNS], {}, "ok", "running", "", ""),
        ([RUNS], {"desired": "stopped"}, "ok", "stopped", "", ""),
        ([], {}, "error", "waiting", "has no process, for 5000 s", "job restart with streams: [totals]"),
        ([RUNS], {"supervised": False}, "error", "unsupervised", "no supervisor", "floodmark supervise"),
        ([CRASHED], {}, "error", "crashed", "killed by SIGKILL", ""),
        ([replace(CRASHED, reason="STATE-003 other")], {}, "error", "failed", "cannot go on by itself", "job restart"),
        ([replace(CRASHED, id=n) for n in (5, 4, 3, 2, 1)], {}, "error", "failed", "5 times: killed by SIGKILL", "job restart"),
        ([replace(RUNS, pid=2**22 + 1)], {}, "error", "crashed", "ended without a word", ""),
        ([replace(RUNS, heartbeat_at=NOW - SILENT_SECONDS - 1)], {}, "error", "silent", "for 21 s", ""),
        ([RUNS, CRASHED], {"seen": 8}, "ok", "running", "", ""),
        ([RUNS, CRASHED], {"seen": 7}, "error", "crashed", "killed by SIGKILL; started again as process", ""),
        ([replace(RUNS, state="starting"), CRASHED], {"seen": 8}, "error", "crashed", "it is starting again", ""),
        ([replace(RUNS, state="starting", started_at=NOW - 9)], {}, "ok", "starting", "", ""),
        (
            [replace(RUNS, state="starting", reason="waiting for orders", started_at=NOW - START_SECONDS - 1)],
            {},
            "error",
            "waiting",
            "waiting for orders, for 181 s",
            "job restart",
        ),
        ([replace(RUNS, reason="waiting: the folder is gone")], {}, "error", "waiting", "the folder is gone", ""),
        ([replace(RUNS, ended_at=NOW - 1, state="stopped", read_to={})], {}, "ok", "asleep", "", ""),
        ([RUNS], {"inputs": [DOWN]}, "error", "starved", "its input orders is failed: it has crashed 5 times", "job restart"),
        ([RUNS], {"inputs": [Health(name="orders", level="ok", condition="stopped")]}, "warning", "starved", "orders is stopped", "job start"),
        ([RUNS], {"freshness": 60_000}, "ok", "running", "", ""),
        ([RUNS], {"freshness": 29_000}, "error", "stale", "is 30 seconds behind the clock, and freshness allows 29 seconds", ""),
        ([RUNS], {"freshness": 60_000, "standing": Standing(progress=NEVER)}, "error", "stale", "no rows yet", ""),
        ([RUNS], {"freshness": 1, "standing": Standing(progress=END)}, "ok", "running", "", ""),
        ([RUNS], {"freshness": 1, "desired": "stopped"}, "error", "stale", "it is stopped, and its watermark", "job start"),
        ([RUNS], {"standing": BEHIND}, "warning", "lagging", "unread for 121 s; it is catching up", ""),
        ([RUNS], {"standing": replace(BEHIND, at=NOW - 500)}, "error", "lagging", "it commits nothing for 500 s", "job restart"),
        ([RUNS], {"standing": replace(FRESH, behind_since=NOW - 100)}, "ok", "running", "", ""),
    ],
)  # fmt: skip
def test_a_fault_has_its_reason_and_what_mends_it(
    drivers: list[Driver], known: dict[str, Any], level: str, condition: str, reason: str, mend: str
) -> None:
    health = judged(drivers, **known)
    assert (health.level, health.condition) == (level, condition), health
    assert reason in health.reason
    assert mend in health.mend if mend else not health.mend


class Reading(Contract):
    """With the time at which it was taken."""

    at: EventTime
    value: int


class Unclocked(Contract, event_time="ingestion"):
    """Without."""

    value: int


def readings(contract: type[Contract]) -> Source:
    return Source("readings", contract=contract, connector=Files("inbox"), watermark=Ascending())


@operator
def passed(readings: Stream[Unclocked]) -> Stream:
    return readings.filter("value > 0")


@pytest.mark.parametrize(
    ("freshness", "code"),
    [
        ("soon", "DEFINITION-001"),
        ("59 seconds", "DEFINITION-296"),
        ("-1 hour", "DEFINITION-296"),
        (5, "DEFINITION-001"),
    ],
)
def test_a_freshness_that_cannot_be_is_refused_when_it_is_defined(freshness: Any, code: str) -> None:
    with pytest.raises(DefinitionError, match=code):
        source_asset(readings(Reading), freshness=freshness)
    with pytest.raises(DefinitionError, match=code):
        operator_asset(passed, freshness=freshness)


def test_rows_without_an_event_time_of_their_own_have_no_freshness() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-297 asset of source 'readings', freshness"):
        source_asset(readings(Unclocked), freshness="1 hour")
    asset = operator_asset(passed, freshness="1 hour")
    with pytest.raises(DefinitionError, match="DEFINITION-297 asset of operator 'passed', freshness"):
        Workspace(sources=[readings(Unclocked)], operators=[asset])
    assert source_asset(readings(Reading), freshness="1 hour").freshness == 3_600_000
