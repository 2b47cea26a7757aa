"""Fitted models: versions in a table of the lake, applied by event time, the same bounded and unbounded and through kills."""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import fit_process
import forked
import pytest
from deltalake import DeltaTable
from fitted import FEATURES, MONTH, START, expected_delays, fitted, flights
from sklearn.linear_model import LinearRegression, LogisticRegression

from floodmark import models
from floodmark.control.processes.engine import Computing
from floodmark.control.processes.upkeep import keep_up
from floodmark.core import crash
from floodmark.core.errors import DefinitionError, LifecycleError, StateError, UserCodeError
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import folders
from floodmark.lake.maintenance import retention
from floodmark.models.versions import row_of
from floodmark.spec.keyed.fitted import ModelVersion
from floodmark.spec.rows.contract import schema as contract_schema
from floodmark.testing import Case
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

ROWS = 240


def logged(rows: list[dict[str, Any]]) -> Log:
    """The ended log of flights."""
    log = Log(expected_delays.inputs[0].schema)
    log.rows(rows, "at", 0)
    log.end()
    return log


def expected(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """No model in the first month, that of the first in the second, that of the second in the third."""
    scored = []
    for row in rows:
        month = int((row["at"] - START) / MONTH)
        known = (None, row["wind"] + 20 * row["evening"], 2 * row["wind"] + 20 * row["evening"])[month]
        scored.append((row["at"], month or None, known if known is None else round(known, 6)))
    return scored


def scored(lake: Lake) -> list[tuple[Any, ...]]:
    """Event time, version and prediction of each row."""
    rows = final([outputs(lake, expected_delays)[""]])
    rounded = (
        (r["at"], r["model_version"], r["expected"] if r["expected"] is None else round(r["expected"], 6)) for r in rows
    )
    return sorted(rounded, key=lambda row: row[0])


@pytest.mark.feature("M1")
def test_a_new_version_takes_over_at_its_event_time_without_a_stop(embedded: Computing, tmp_path: Path) -> None:
    rows = flights(ROWS)
    log, lakes = logged(rows), [Lake(str(tmp_path / mode)) for mode in ("stream", "bounded")]
    stream, bounded = lakes
    cuts = [0, ROWS // 2, ROWS * 3 // 4, None]
    land(stream, expected_delays, log, 0, ROWS // 2)
    first = fitted(stream.root)
    assert (first.version, first.rows, first.valid_from) == (1, ROWS // 3, first.interval.end)
    assert first.metrics["r2"] > 0.999
    second_log = Log(contract_schema(ModelVersion))
    second_log.rows([row_of(first)], "at", 0)
    second_log.move(second_log.watermark + 29 * 86_400_000)
    land(stream, expected_delays, second_log, name="models")
    embedded.run_unbounded(expected_delays, stream, until_caught_up=True)
    for start, stop in itertools.pairwise(cuts[1:]):
        land(stream, expected_delays, log, start, stop)
    second = fitted(stream.root, 1)
    assert second.version == 2
    begun = len(second_log.entries)
    second_log.rows([row_of(second)], "at", 0)
    second_log.end()
    land(stream, expected_delays, second_log, begun, name="models")
    embedded.run_unbounded(expected_delays, stream, until_caught_up=True)
    land(bounded, expected_delays, log)
    land(bounded, expected_delays, second_log, name="models")
    embedded.run_bounded(expected_delays, bounded, None)
    assert scored(stream) == scored(bounded) == expected(rows)


@pytest.mark.feature("M1")
@pytest.mark.parametrize(
    ("point", "known"),
    [pytest.param(crash.POINTS["model"][0], 0, marks=pytest.mark.soak), (crash.POINTS["model"][1], 1)],
)
def test_a_fit_that_is_killed_and_begun_again_publishes_one_version(tmp_path: Path, point: str, known: int) -> None:
    lake = Lake(str(tmp_path))
    land(lake, expected_delays, logged(flights(90)))
    killed = forked.run([sys.executable, fit_process.__file__, lake.root], env={**os.environ, crash.VARIABLE: point})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(models.versions(lake, "delay")) == known
    version = fitted(lake.root)
    assert models.versions(lake, "delay") == (version,)
    assert fitted(lake.root, test_share=0.3).version == 2


@pytest.mark.feature("M1")
def test_what_a_killed_fit_has_left_goes_with_the_next_one_or_with_upkeep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path))
    land(lake, expected_delays, logged(flights(90)))
    left = Path(lake.fitting("delay"), "x", "metadata", "part-00000")

    def leave() -> None:
        left.parent.mkdir(parents=True)
        left.write_text("{}")

    leave()
    with monkeypatch.context() as patch:  # a fit in a bucket may end between two listings
        patch.setattr(
            retention, "folders", lambda home: [*folders(home), "ended"] if home.endswith("delay") else folders(home)
        )
        assert [one.kind for one in retention.tidy_fits(lake, dry_run=True)] == ["unfinished fit"]
    with exclusive(lake, "models", "delay", "fit"):
        keep_up([lake])
        assert left.exists(), "the fit may be at work"
    assert [one for one in keep_up([lake], dry_run=True).removed if one.name == "delay"] != []
    assert left.exists()
    done = [(one.kind, one.files, one.size) for one in keep_up([lake]).removed if one.name == "delay"]
    assert (done, left.exists()) == ([("unfinished fit", 1, 2)], False)
    leave()
    fitted(lake.root)
    assert not left.exists()


@pytest.mark.feature("M1")
def test_versions_land_with_their_bytes(embedded: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    land(lake, expected_delays, logged(flights(90)))
    version = fitted(lake.root)
    source = models.source("models", lake.model("delay"))
    embedded.land(source, lake, until_caught_up=True, end=True)
    landed = [row for row in DeltaTable(lake.log("models")).to_pyarrow_table().to_pylist() if row["version"]]
    assert [(row["version"], row["model"], row["features"]) for row in landed] == [(1, version.data, list(FEATURES))]


def case(version: models.Version, **changed: Any) -> Case:
    """Two flights of the second month, scored by a version."""
    rows = [
        {"at": START + MONTH + timedelta(minutes=n), "origin": "a", "wind": wind, "evening": 0, "delay": None}
        for n, wind in enumerate([10.0, math.nan])
    ]
    return (
        Case(expected_delays).feed("models", [row_of(version) | changed], event_time="at").feed("flights", rows).end()
    )


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> models.Version:
    """The model of the first month."""
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    land(lake, expected_delays, logged(flights(90)))
    return fitted(lake.root)


@pytest.mark.feature("M1")
def test_a_feature_that_is_no_number_is_set_aside(version: models.Version) -> None:
    ran = case(version)
    assert [round(row["expected"], 6) for row in ran.results()] == [10]
    assert "feature 'wind' is nan" in ran.results("quarantine")[0]["reason"]


@pytest.mark.feature("M1")
def test_a_version_that_was_changed_or_does_not_fit_stops_the_run(version: models.Version) -> None:
    with pytest.raises(StateError, match="STATE-074"):
        case(version, model=version.data[:-1] + b"x").results()
    with pytest.raises(UserCodeError, match="USER-023"):
        case(version, features=["wind"]).results()
    ran = case(version, name="another")
    assert [row["model_version"] for row in ran.results()] == [None, None]


class Own(LinearRegression):
    """An estimator of the user's."""


@pytest.mark.feature("M1")
@pytest.mark.parametrize(
    ("settings", "error", "code"),
    [
        ({"interval": (START, START + 4 * MONTH)}, LifecycleError, "LIFECYCLE-280"),
        ({"interval": (START - MONTH, START)}, LifecycleError, "LIFECYCLE-281"),
        ({"table": "logs/nothing"}, LifecycleError, "LIFECYCLE-282"),
        ({"features": ("rain",)}, LifecycleError, "LIFECYCLE-283"),
        ({"most_rows": 20}, LifecycleError, "LIFECYCLE-285.*20 rows or fewer.*got 30 in table 'logs/flights'"),
        ({"most_rows": 1}, DefinitionError, "DEFINITION-445"),
        ({"estimator": LinearRegression}, DefinitionError, "DEFINITION-444"),
        ({"test_share": 1.0}, DefinitionError, "DEFINITION-445"),
        (
            {"features": ("origin", "wind")},
            DefinitionError,
            "DEFINITION-446.*learns 'delay' from origin, wind, got ValueError",
        ),
        ({"features": ("wind", "delay")}, DefinitionError, "DEFINITION-448"),
        ({"features": "wind"}, DefinitionError, "DEFINITION-448.*got 'wind'"),
        ({"features": ()}, DefinitionError, "DEFINITION-448"),
        ({"metrics": {"odd": lambda *_: 1 / 0}}, UserCodeError, "USER-001 model 'delay', metric 'odd'"),
        ({"estimator": Own()}, StateError, "STATE-075"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    tmp_path: Path, settings: dict[str, Any], error: type[Exception], code: str
) -> None:
    lake, log = Lake(str(tmp_path)), Log(expected_delays.inputs[0].schema)
    log.rows(flights(90), "at", 0)
    land(lake, expected_delays, log)
    about = {"table": "logs/flights", "features": FEATURES, "target": "delay", "interval": (START, START + MONTH)}
    given = about | settings
    with pytest.raises(error, match=code):
        models.fit(lake, "delay", given.pop("estimator", LinearRegression()), **given)
    assert models.versions(lake, "delay") == ()


@pytest.mark.feature("M1")
def test_a_classifier_is_measured_by_its_accuracy(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    land(lake, expected_delays, logged(flights(300)))
    settings: dict[str, Any] = {"features": ("wind", "delay"), "target": "evening", "interval": (START, START + MONTH)}
    version = models.fit(lake, "evening", LogisticRegression(max_iter=500), table="logs/flights", **settings)
    assert version.metrics == {"accuracy": pytest.approx(1, abs=0.2)}
    assert version.estimator.startswith("LogisticRegression, scikit-learn ")


@pytest.mark.feature("M1")
def test_a_fit_in_a_fork_reads_the_log_and_publishes_into_the_fork_alone(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(lake, expected_delays, logged(flights(90)))
    first, fork = fitted(lake.root), lake.fork(str(tmp_path / "fork"))
    metrics = {"nothing": lambda *_: math.nan, "least": lambda *_: -math.inf}
    interval = (START, START + MONTH)
    version = models.fit(
        fork,
        "delay",
        LinearRegression(),
        table="logs/flights",
        features=FEATURES,
        target="delay",
        interval=interval,
        metrics=metrics,
    )
    assert models.versions(lake, "delay") == (first,)
    (read,) = models.versions(fork, "delay")
    assert (read.version, read.sha256) == (1, version.sha256)
    assert math.isnan(read.metrics["nothing"])
    assert read.metrics["least"] == -math.inf
    assert row_of(version)["metrics"] == '{"least": "-Infinity", "nothing": "NaN"}'
