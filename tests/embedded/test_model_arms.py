"""Two online models as arms of an experiment: both go on from one savepoint, and the one that errs less becomes the stream."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from events import START, Event
from river import linear_model, optim

from floodmark import ModelState, Operator, PromoteWhen, Stream, operator
from floodmark.control.processes.engine import Computing
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints, switch
from floodmark.lake.restore.fork import fork
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.lifecycle.guardrails import Evidence, judge
from floodmark.lifecycle.plan import plan
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

NAME = "expected"
RULE = PromoteWhen(match=0, means={"error": 0.5}, rows=100)
SLOW, FAST = 0.001, 0.3


def faster(model: Any) -> Any:
    """What the slow model has learned, and a greater step from now on."""
    model.optimizer.lr.learning_rate = model.intercept_lr.learning_rate = FAST
    return model


def predictor(state: ModelState) -> Operator:
    """A stream of predictions with their errors."""

    def body(events: Stream[Event]) -> Stream:
        features = events.with_columns(x="(value % 10) / 10.0D", target="3.0D * (value % 10)")
        learned = features.key_by("key").learn(state, features=("x",), target="target")
        return learned.with_columns(error="abs(target - prediction)")

    body.__doc__ = "What is expected of a value."
    return operator(body, name=NAME)


def line(step: float) -> Any:
    """A line that is learned by steps of this size."""
    return linear_model.LinearRegression(optimizer=optim.SGD(step), intercept_lr=step)


SLOWLY, QUICKLY = predictor(ModelState(line(SLOW))), predictor(ModelState(line(FAST), version=2, migrate=faster))


def arm_of(lake: Lake, name: str, code: Operator, origin: savepoints.Savepoint) -> Arm:
    """A fork of the stream in this code."""
    forked = fork(lake, origin, experiments.root_of(lake, "models", name))
    changes = plan(origin.manifest.deployed, code)
    assert changes.verdict in {"no-op", "compatible state"}
    if changes.changes:
        upgrade(code, forked)
    return Arm(name=name, code=code.version, package="", version=code.version, root=forked.root, differs=())


def errors(lake: Lake) -> list[float]:
    """The errors in the order of the values."""
    rows = sorted(final([outputs(lake, SLOWLY)[""]]), key=lambda row: row["value"])
    return [row["error"] for row in rows]


@pytest.mark.feature("M2")
def test_a_rollout_judges_two_models_and_the_better_one_becomes_the_stream(embedded: Computing, tmp_path: Path) -> None:
    lake, log, draw = Lake(str(tmp_path / "lake")), Log(SLOWLY.inputs[0].schema), random.Random(9)
    rows = [{"at": START + timedelta(minutes=n), "key": draw.choice("ab"), "value": n} for n in range(600)]
    log.rows(rows, "at", 60_000)
    log.end()
    land(lake, SLOWLY, log, 0, 100)
    embedded.run_unbounded(SLOWLY, lake, until_caught_up=True)
    origin = savepoints.create(NAME, lake, why="experiment")
    arms = [arm_of(lake, name, code, origin) for name, code in (("slow", SLOWLY), ("fast", QUICKLY))]
    land(lake, SLOWLY, log, 100)
    for arm, code in zip(arms, (SLOWLY, QUICKLY), strict=True):
        forked = Lake.forked(arm.root)
        assert forked is not None
        embedded.run_unbounded(code, forked, until_caught_up=True)
    about: dict[str, Any] = {"state": "running", "who": "test", "why": "", "promote": RULE, "candidate": "fast"}
    about |= {"began_at": origin.manifest.at, "since": origin.manifest.watermark}
    made = Experiment(name="models", operator=NAME, savepoint=origin.manifest.id, arms=tuple(arms), **about)
    experiments.keep(lake, made)
    compared = compare_arms(lake, made, QUICKLY, How(grain=("key", "value")))["fast"]
    seen = Evidence(
        comparisons=compared, state="has read everything", runs=True, given_up=False, behind=0, now=made.began_at
    )
    assert judge(RULE, seen).holds
    (lower,) = judge(replace(RULE, means={"error": 0.01}), seen).failing
    assert lower.name == "mean of error"
    with switch.stopped(lake, [NAME]), switch.stopped(Lake(arms[1].root), [NAME]):
        switch.become(lake, NAME, Lake(arms[1].root), again="test", back=origin.manifest.id, why="promotion")
    embedded.run_unbounded(QUICKLY, lake, until_caught_up=True)
    assert len(errors(lake)) == 600
    assert sum(errors(lake)[-100:]) < sum(errors(lake)[:100]) / 20
