"""Online models as keyed state: predictions are those of a loop over all rows, however a stream is cut, killed, moved or rescaled."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import random
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import forked
import model_process
import pytest
from asked import asked
from events import START, Event, disorder
from example_workspaces import Row, both, disordered, example, shown
from learned import MODELS, learning, looped
from river import anomaly, compose, ensemble, forest, linear_model, preprocessing

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import DefinitionError, StateError, UserCodeError
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.plan import plan
from floodmark.spec.graph.operator import Operator
from floodmark.spec.keyed.model import ModelState
from floodmark.spec.values.schema import ROW
from floodmark.testing import IN_MEMORY
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

ROWS = 160


def predictions(lake: Lake, code: Operator) -> list[tuple[Any, ...]]:
    """What the stream or the bounded run has written, by the number of a row."""
    rows = final([outputs(lake, code)[""]])
    return sorted(((r["key"], r["value"], r["prediction"], r["learned"]) for r in rows), key=lambda row: row[1])


def expected(name: str, log: Log) -> list[tuple[Any, ...]]:
    """What a loop over the rows in the order of their arrival predicts."""
    rows = [entry for entry in log.entries if entry["_kind"] == ROW]
    return sorted(looped(name, rows), key=lambda row: row[1])


@pytest.mark.feature("M2")
@pytest.mark.parametrize(
    "name", [n if n in {"line", "outliers"} else pytest.param(n, marks=pytest.mark.soak) for n in MODELS]
)
def test_cuts_and_restarts_change_no_prediction_and_bounded_is_unbounded(
    embedded: Computing, tmp_path: Path, name: str
) -> None:
    code, draw = learning(name), random.Random(name)
    log = disorder(code, 3, ROWS)
    stream, bounded = (Lake(str(tmp_path / mode)) for mode in ("stream", "bounded"))
    cuts = [0, *sorted(draw.sample(range(1, ROWS), 4)), None]
    for start, stop in itertools.pairwise(cuts):
        land(stream, code, log, start, stop)
        embedded.run_unbounded(code, stream, until_caught_up=True)
    land(bounded, code, log)
    embedded.run_bounded(code, bounded, None)
    assert predictions(stream, code) == predictions(bounded, code) == expected(name, log)


@pytest.mark.feature("M2")
@pytest.mark.parametrize("name", MODELS)
def test_each_kind_of_model_predicts_as_it_does_alone(name: str) -> None:
    code = learning(name)
    rows = [{"at": START + timedelta(minutes=n), "key": "abc"[n * n % 3], "value": n} for n in range(90)]
    results = IN_MEMORY[1](code, {"events": rows})[""]
    made = sorted(((r["key"], r["value"], r["prediction"], r["learned"]) for r in results), key=lambda row: row[1])
    assert made == looped(name, rows)


@pytest.mark.feature("M2")
def test_a_process_that_is_killed_in_the_middle_changes_no_prediction(tmp_path: Path) -> None:
    code, lake = learning("forest"), Lake(str(tmp_path))
    log = disorder(code, 4, ROWS)
    command = [sys.executable, model_process.__file__, lake.root, "forest"]
    for start in (0, 30, 60):
        land(lake, code, log, start, start + 30)
    killed = forked.run(command, env={**os.environ, crash.VARIABLE: f"{crash.POINTS['embedded'][1]}:2"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    land(lake, code, log, 90)
    again = forked.run(command)
    assert again.returncode == 0, again.stderr
    assert predictions(lake, code) == expected("forest", log)


@pytest.mark.feature("M2")
def test_a_model_goes_through_savepoint_rollback_and_another_number_of_key_groups(
    embedded: Computing, tmp_path: Path
) -> None:
    code, lake = learning("tree"), Lake(str(tmp_path / "lake"))
    log = disorder(code, 5, ROWS)
    land(lake, code, log, 0, 60)
    embedded.run_unbounded(code, lake, until_caught_up=True)
    saved = savepoints.create(code.name, lake)
    land(lake, code, log, 60, 110)
    embedded.run_unbounded(code, lake, until_caught_up=True)
    roll_back(lake, saved)
    assert len(predictions(lake, code)) == 60
    assert embedded.regroup(code, lake, 7) is not None
    land(lake, code, log, 110)
    embedded.run_unbounded(code, lake, until_caught_up=True)
    assert predictions(lake, code) == expected("tree", log)


@pytest.mark.feature("M2")
def test_parameters_are_read_as_state(embedded: Computing, tmp_path: Path) -> None:
    code, lake = learning("line"), Lake(str(tmp_path / "lake"))
    log = disorder(code, 6, ROWS)
    land(lake, code, log, 0, ROWS)
    embedded.run_unbounded(code, lake, until_caught_up=True)
    source = fm.Source("events", contract=Event, connector=fm.Files("inbox"), watermark=fm.Ascending())
    settings = fm.Settings(lake=lake.root, engine="embedded")
    model, target = MODELS["line"][0].clone(), 0.0
    for row in (entry for entry in log.entries if entry.get("key") == "a" and entry["_kind"] == ROW):
        value = row["value"]
        if value % 13 != 5:
            target = float(value % 7 * 3 - value % 2)
            model.learn_one({"small": value % 7, "great": value**0.5}, target)
    with asked(fm.Workspace(sources=[source], operators=[code], settings=settings), lake, tmp_path / "copies") as ask:
        status, answer = ask.get("/v1/state/line", [("key.key", "a")])
    assert status == 200, answer
    state = answer["rows"][0]["state"]
    line = state["model"]["parameters"]["LinearRegression"]
    assert line["weights"] == model["LinearRegression"].weights
    assert line["intercept"] == model["LinearRegression"].intercept
    assert state["model"]["model"].startswith("model<StandardScaler | LinearRegression, river 0.")
    assert state["learned"] == model["LinearRegression"].optimizer.n_iterations


def stopped(embedded: Computing, lake: Lake, code: Operator, log: Log) -> Any:
    """The deployed definition of a stream that has read 60 rows."""
    land(lake, code, log, 0, 60)
    embedded.run_unbounded(code, lake, until_caught_up=True)
    return Timeline.current(lake, code.name).identity.deployed()


@pytest.mark.feature("M2")
def test_another_model_is_a_rebuild_unless_it_is_migrated(embedded: Computing, tmp_path: Path) -> None:
    code, lake = learning("line"), Lake(str(tmp_path))
    log = disorder(code, 7, ROWS)
    deployed = stopped(embedded, lake, code, log)
    slower = preprocessing.StandardScaler() | linear_model.LinearRegression(l2=0.5)
    changed = plan(deployed, learning("line", slower))
    assert changed.verdict == "rebuild"
    assert "state model: model of model<StandardScaler | LinearRegression, river" in changed.changes[0].before
    ridge = learning("line", ModelState(slower, version=2, migrate=to_ridge))
    assert plan(deployed, ridge).verdict == "compatible state"
    upgrade(ridge, lake)
    land(lake, ridge, log, 60)
    embedded.run_unbounded(ridge, lake, until_caught_up=True)
    learned_before = {row[1]: row[3] for row in expected("line", log)}
    made = predictions(lake, ridge)
    assert {row[1]: row[3] for row in made} == learned_before
    assert made != expected("line", log)


def to_ridge(model: Any) -> Any:
    """The same line with a penalty."""
    model["LinearRegression"].l2 = 0.5
    return model


@pytest.mark.feature("M2")
def test_another_release_of_the_library_is_a_rebuild_unless_it_is_accepted(
    embedded: Computing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lake = learning("line"), Lake(str(tmp_path))
    deployed = stopped(embedded, lake, code, disorder(code, 7, ROWS))
    monkeypatch.setattr("floodmark.spec.keyed.model.version", lambda name: "99.0")
    assert plan(deployed, learning("line")).verdict == "rebuild"
    accepted = ModelState(MODELS["line"][0], version=2, migrate=as_it_is)
    assert plan(deployed, learning("line", accepted)).verdict == "compatible state"


def as_it_is(model: Any) -> Any:
    """The model of before."""
    return model


class Measured(fm.Contract):
    """Two features and a target, any of which may be missing."""

    at: fm.EventTime
    x: float | None
    label: str | None
    y: float | None


def fitted(on_error: str = "stop", **settings: Any) -> Operator:
    """A model over rows that may lack a value."""

    @fm.operator
    def fit(rows: fm.Stream[Measured]) -> fm.Stream:
        """A line."""
        model = ModelState(linear_model.LinearRegression(), **settings)
        return rows.learn(model, features=("x",), target="y", on_error=on_error)

    return fit


def measured(*values: tuple[float | None, float | None]) -> list[dict[str, Any]]:
    """Rows of x and y, a minute after each other."""
    return [{"at": START + timedelta(minutes=n), "x": x, "y": y} for n, (x, y) in enumerate(values)]


@pytest.mark.feature("M2")
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ((math.nan, 1.0), "feature 'x' is nan"),
        ((None, 1.0), "feature 'x' is null"),
        ((math.inf, 1.0), "feature 'x' is inf"),
        ((1.0, math.nan), "target 'y' is nan"),
    ],
)
def test_a_row_that_no_model_can_learn_from_is_set_aside_or_stops_the_run(
    bad: tuple[float | None, float | None], reason: str
) -> None:
    good = [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]
    rows = measured(good[0], bad, *good[1:])
    without = [row for n, row in enumerate(rows) if n != 1]
    run = IN_MEMORY[1]
    results = run(fitted("quarantine"), {"rows": rows})
    assert results[""] == run(fitted(), {"rows": without})[""]
    assert reason in results["quarantine"][0]["reason"]
    with pytest.raises(UserCodeError, match=reason):
        run(fitted(), {"rows": rows})


@pytest.mark.feature("M2")
def test_a_target_that_is_not_known_yet_is_predicted_and_not_learned_from() -> None:
    rows = measured((1.0, 2.0), (2.0, None), (2.0, 4.0))
    assert [row["learned"] for row in IN_MEMORY[1](fitted(), {"rows": rows})[""]] == [0, 1, 1]


@pytest.mark.feature("M2")
def test_a_model_that_grows_too_large_stops_the_run() -> None:
    with pytest.raises(UserCodeError, match=r"USER-022 .*at most 100 bytes"):
        IN_MEMORY[1](fitted(most_bytes=100), {"rows": measured((1.0, 2.0))})


def test_what_a_stored_model_names_is_of_its_package() -> None:
    state = ModelState(linear_model.LinearRegression())
    for data, code in ((pickle.dumps(os.getcwd), "STATE-072"), (pickle.dumps([].append), "STATE-073")):
        with pytest.raises(StateError, match=code):
            state.migrated(data, 1)
    with pytest.raises(StateError, match="STATE-071"):
        state.migrated(b"no model", 1)


def test_a_package_that_is_missing_where_rows_are_processed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    state = ModelState(linear_model.LinearRegression())
    for name in [name for name in sys.modules if name.partition(".")[0] == "river"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(StateError, match=r"STATE-070 .*pip install river"):
        state.begun()


class Negated(preprocessing.StandardScaler):
    """A class of the user's in a pipeline."""


@pytest.mark.parametrize(
    ("model", "settings", "code"),
    [
        (3, {"features": ("x",), "target": "y"}, "DEFINITION-440"),
        (linear_model.LinearRegression, {"features": ("x",), "target": "y"}, "DEFINITION-440"),
        (
            compose.FuncTransformer(lambda x: x) | linear_model.LinearRegression(),
            {"features": ("x",), "target": "y"},
            "DEFINITION-441",
        ),
        (linear_model.LinearRegression(), {"features": ("x",)}, "DEFINITION-442"),
        (linear_model.LinearRegression(), {"features": ("x", "y"), "target": "y"}, "DEFINITION-452"),
        (
            preprocessing.StandardScaler() | ensemble.BaggingRegressor(linear_model.LinearRegression()),
            {"features": ("x",), "target": "y"},
            r"DEFINITION-451.*BaggingRegressor\(seed=None\)",
        ),
        (
            ensemble.EWARegressor([linear_model.LinearRegression(), forest.ARFRegressor()]),
            {"features": ("x",), "target": "y"},
            r"DEFINITION-451.*ARFRegressor\(seed=None\)",
        ),
        (anomaly.HalfSpaceTrees(seed=1), {"features": ("x",), "target": "y"}, "DEFINITION-442"),
        (preprocessing.StandardScaler(), {"features": ("x",)}, "DEFINITION-443"),
        (linear_model.LinearRegression(), {"features": ("z",), "target": "y"}, "DEFINITION-022"),
        (linear_model.LinearRegression(), {"features": ("at",), "target": "y"}, "DEFINITION-022"),
        (linear_model.LinearRegression(), {"features": (), "target": "y"}, "DEFINITION-056"),
        (linear_model.LinearRegression(), {"features": ("x",), "target": "y", "prediction": "x"}, "DEFINITION-050"),
        (linear_model.LinearRegression(), {"features": ("x",), "target": "y", "order": "any"}, "DEFINITION-055"),
    ],
)
def test_what_cannot_learn_is_refused_when_it_is_defined(model: Any, settings: dict[str, Any], code: str) -> None:
    def body(rows: fm.Stream[Measured]) -> fm.Stream:
        return rows.key_by("label").learn(model, **settings)

    with pytest.raises(DefinitionError, match=code):
        fm.operator(body, name="refused")


def test_models_in_a_list_that_have_seeds_are_taken() -> None:
    ModelState(ensemble.VotingClassifier([forest.ARFClassifier(seed=1), linear_model.LogisticRegression()]))


def test_code_of_a_class_in_a_pipeline_is_part_of_the_version() -> None:
    texts = {
        ModelState(scaler | linear_model.LinearRegression()).kind.text
        for scaler in (Negated(), preprocessing.StandardScaler())
    }
    assert len(texts) == 2


def predicted_in_a_loop(model: Any, rows: list[Row]) -> list[Row]:
    """Each flight, in order of arrival, with what a model of river of its airport predicts before it learns from the flight."""
    models, predictions = dict[str, Any](), list[Row]()
    for row in rows:
        own = models.setdefault(row["origin"], model.clone())
        features = {
            "wind": row["wind"],
            "evening": int(row["at"].hour >= 17),
            "late_carrier": int(row["carrier"] == "OO"),
        }
        predictions.append({"at": row["at"], "expected": own.predict_one(features)})
        if row["delay"] is not None:
            own.learn_one(features, row["delay"])
    return predictions


@pytest.mark.feature("M2")
def test_models_of_the_example_learn_the_delay_of_an_evening(tmp_path: Path) -> None:
    draw, rows, at = random.Random(8), list[Row](), datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(600):
        at += timedelta(minutes=draw.uniform(1, 60))
        wind, carrier, origin = draw.uniform(0, 30), draw.choice(["UA", "OO"]), draw.choice(["JFK", "LGA"])
        delay = 0.8 * wind + (25 if at.hour >= 17 else 0) + (10 if carrier == "OO" else 0) + draw.gauss(0, 2)
        row = {
            "at": at,
            "origin": origin,
            "carrier": carrier,
            "wind": wind,
            "delay": None if draw.random() < 0.03 else delay,
        }
        rows.append(row)
    delays = example("delays")
    arrived = disordered(rows, 9, draw)
    stream, bounded = both(delays.expected_delays, arrived, tmp_path)
    assert shown(stream, "at", "expected", "learned") == shown(bounded, "at", "expected", "learned")
    assert shown(stream, "at", "expected") == shown(predicted_in_a_loop(delays.MODEL, arrived), "at", "expected")
    errors = [row["error"] for row in sorted(stream, key=lambda row: row["at"]) if row["error"] is not None]
    first, last = (sum(part) / len(part) for part in (errors[:100], errors[-100:]))
    guess = sum(abs(row["delay"] - 12) for row in rows if row["delay"] is not None) / len(errors)
    assert last < first / 3
    assert last < guess / 3
