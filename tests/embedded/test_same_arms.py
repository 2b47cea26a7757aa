"""Arms of the same code are killed with SIGKILL at drawn points and instants, each on its own: what they find never differs."""

from __future__ import annotations

import os
import random

import pytest
from events import disorder
from seeds import seed_of
from streams import STREAMS, check

from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.testing.lakes import land

from .test_kills import Killed, Victim

_ROWS, _SHARED = 240, 60
"""Rows of the log, and those the stream has read before its arms part."""

REACHED = "embedded.before_files:1"
"""The point at which the first process dies: each micro-batch with rows comes there, while a drawn point or instant may be behind the end."""

SOAK = [
    pytest.param(name, 4, None, marks=pytest.mark.soak, id=f"{name}-{number}")
    for number in range(25)
    for name in ("windowed", "visits")
]


@pytest.mark.timeout(900)
@pytest.mark.feature("Z6")
@pytest.mark.parametrize(("name", "kills", "seed"), [("windowed", 1, 3), *SOAK])
def test_arms_of_the_same_code_do_not_differ_whatever_is_killed(
    embedded: Computing, lake: Lake, request: pytest.FixtureRequest, name: str, kills: int, seed: int | None
) -> None:
    """Looks while they run, at drawn moments, find nothing that differs either. ``make soak`` draws fifty schedules."""
    seed = int(os.environ.get("FLOODMARK_SEED", seed_of(request.node.name) if seed is None else seed))
    draw, code = random.Random(seed), STREAMS[name]
    log = disorder(code, seed, _ROWS)
    land(lake, code, log, 0, _SHARED)
    embedded.run_unbounded(code, lake, until_caught_up=True)
    made = _parted(lake, name, code.version)
    arms = [Killed(Lake(one.root), code, draw) for one in made.arms]
    told = f"replay {name} with FLOODMARK_SEED={seed}"
    read = _SHARED
    for number in range(kills):
        last = len(log.entries) - 1 if number == kills - 1 else min(read + _ROWS // (kills + 1), len(log.entries) - 1)
        land(lake, code, log, read, last)
        read = last
        for arm in draw.sample(arms, 2):
            victim: Victim = draw.choice(("point", "driver"))
            if any(one.told for one in arms):
                arm.run(victim)
            else:
                arm.run("point", REACHED)
            if draw.random() < 0.5:
                assert _unlike(lake, made) == 0, (told, [one.told for one in arms])
    land(lake, code, log, read)
    for arm in arms:
        there = Lake.forked(arm.lake.root)
        assert there is not None
        embedded.run_unbounded(code, there, until_caught_up=True)
        check(there, code, log)
    assert _unlike(lake, made) == 0, (told, [one.told for one in arms])
    assert sum(sum(arm.kills.values()) for arm in arms), (told, "nobody was killed")
    compared = compare_arms(lake, made, code, How())["b"]
    assert any(isinstance(one, Comparison) and one.counts.equal for one in compared.values()), (told, compared)


def _parted(lake: Lake, name: str, version: str) -> Experiment:
    began = savepoints.create(name, lake)
    arms = [
        Arm(name=arm, code="@current", package="", version=version, root=experiments.root_of(lake, "same", arm))
        for arm in ("a", "b")
    ]
    for arm in arms:
        fork(lake, began, arm.root)
    made = Experiment(
        name="same",
        operator=name,
        savepoint=began.manifest.id,
        arms=tuple(arms),
        state="running",
        who="",
        why="",
        began_at=0,
        since=began.manifest.watermark,
    )
    return experiments.keep(lake, made)


def _unlike(lake: Lake, made: Experiment) -> int:
    """Rows in which the arms differ so far."""
    code = STREAMS[made.operator]
    found = compare_arms(lake, made, code, How())["b"].values()
    refused = [one for one in found if isinstance(one, str)]
    assert not refused, refused
    return sum(one.counts.unlike for one in found if isinstance(one, Comparison))
