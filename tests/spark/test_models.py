"""Models on Spark: the predictions of a loop in Python, and of the version that is valid."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import fit_process
import forked
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from events import START
from fitted import FEATURES, MONTH, expected_delays, fitted, flights, of_spark
from learned import learning, looped
from pipelines import CASES, kinds, rows_of
from pipelines import FEATURES as PIPELINE_FEATURES
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression as Unset
from pyspark.sql import SparkSession

from floodmark import models
from floodmark.core import crash
from floodmark.core.errors import DefinitionError, StateError
from floodmark.lake.folder.copies import files_of
from floodmark.lake.folder.paths import Lake
from floodmark.models.spark import library
from floodmark.models.versions import row_of
from floodmark.testing import IN_MEMORY, Run
from floodmark.testing.lakes import land
from floodmark.testing.log import Log
from floodmark.testing.runs import final
from floodmark.testing.spark import SparkCase

PREDICTIONS: dict[str, list[Any]] = json.loads((CASES / "predictions.json").read_text("utf-8"))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("M2")
def test_models_of_keys_predict_as_they_do_alone_through_a_restart() -> None:
    rows = [{"at": START + timedelta(minutes=n), "key": "ab"[n * n % 3 % 2], "value": n} for n in range(60)]
    results = Run("spark", "unbounded")(learning("line"), {"events": rows})[""]
    made = sorted(((r["key"], r["value"], r["prediction"], r["learned"]) for r in results), key=lambda row: row[1])
    assert made == looped("line", rows)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("M1")
@pytest.mark.parametrize("kind", ["scikit-learn", "Spark ML"])
def test_a_fitted_model_takes_over_at_its_event_time(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rows, root = flights(60), landed(tmp_path)
    version = fitted(root, estimator=of_spark(*FEATURES) if kind == "Spark ML" else None)
    inputs = {"flights": rows, "models": [row_of(version)]}
    check(Run("spark", "unbounded")(expected_delays, inputs, event_time="at")[""])


@pytest.mark.spark
@pytest.mark.feature("M1")
def test_a_pipeline_of_spark_is_fitted_once_and_applied_without_java(spark: SparkSession, tmp_path: Path) -> None:
    root = landed(tmp_path)
    version = fitted(root, estimator=of_spark(*FEATURES))
    assert version.metrics["r2"] > 0.999
    assert version.estimator == f"LinearRegression, pyspark {spark.version}"
    assert fitted(root, estimator=of_spark(*FEATURES)) == version, "names that Spark draws are no part of it"
    inputs = {"flights": flights(60), "models": [row_of(version)]}
    check(IN_MEMORY[1](expected_delays, inputs, event_time="at")[""])
    check(streamed(spark, tmp_path / "stream", inputs))
    assert list(files_of(Lake(root).fitting("delay"))) == []
    for wrong, error, code in (
        (of_spark("wind", "rain"), DefinitionError, "DEFINITION-446.*rain"),
        (of_spark("wind", "delay"), StateError, "STATE-079.*column 'delay', which is none of its features"),
        (Unset(featuresCol="wind"), DefinitionError, "DEFINITION-449.*labelCol='delay'"),
        (version, DefinitionError, "DEFINITION-444"),
        (VectorAssembler(inputCols=["wind"], outputCol="x"), DefinitionError, "DEFINITION-447"),
    ):
        with pytest.raises(error, match=code):
            fitted(root, estimator=wrong)
    assert models.versions(Lake(root), "delay") == (version,)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("M1")
@pytest.mark.parametrize("name", sorted(PREDICTIONS))
def test_pipelines_of_each_kind_predict_what_is_recorded(spark: SparkSession, tmp_path: Path, name: str) -> None:
    pipeline, target = kinds()[name]
    table = rows_of(name).select([*PIPELINE_FEATURES, target])
    fitted = library(name).fit(pipeline, table, 150, PIPELINE_FEATURES, target, str(tmp_path / "saved"))
    accuracy = library(name).metrics(pipeline).get("accuracy")
    assert accuracy is None or accuracy(fitted.values, fitted.predictions) > 0.65
    assert fitted.predictions == [
        one if isinstance(one, str) else pytest.approx(one, nan_ok=True) for one in PREDICTIONS[name]
    ]


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("M1")
def test_a_pipeline_that_would_predict_early_for_late_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pipeline, target = kinds()["worded"]
    table = rows_of("worded").select([*PIPELINE_FEATURES, target])
    late = table.filter(pc.equal(table["word"], "late"))
    table = pa.concat_tables([late, table])
    pipeline.getStages()[0].setStringOrderType("frequencyDesc")
    with pytest.raises(DefinitionError, match=r"DEFINITION-453.*late, early"):
        library("m").fit(pipeline, table, 150, PIPELINE_FEATURES, target, str(tmp_path / "saved"))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("M1")
def test_a_fit_that_is_killed_behind_what_spark_has_saved_leaves_nothing_to_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, point = landed(tmp_path), crash.POINTS["model"][2]
    command, environment = [sys.executable, fit_process.__file__, root, "spark"], os.environ | {crash.VARIABLE: point}
    killed = forked.run(command, env=environment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(files_of(Lake(root).fitting("delay"))) != []
    assert fitted(root, estimator=of_spark(*FEATURES)).version == 1
    assert list(files_of(Lake(root).fitting("delay"))) == []


def streamed(spark: SparkSession, folder: Path, inputs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What a stream of Spark makes of rows and versions of a model."""
    case = SparkCase(spark, expected_delays, str(folder))
    for name, rows in inputs.items():
        log = Log(next(given.schema for given in expected_delays.inputs if given.name == name))
        log.rows(rows, "at", 0)
        log.end()
        case.land(log, name=name)
    case.run_unbounded()
    return final([case.outputs()[""]])


def landed(folder: Path) -> str:
    """A lake with the log of flights."""
    log = Log(expected_delays.inputs[0].schema)
    log.rows(flights(60), "at", 0)
    log.end()
    land(Lake(str(folder)), expected_delays, log)
    return str(folder)


def check(results: list[dict[str, Any]]) -> None:
    """No prediction in the first month, that of its model afterwards."""
    start = min(row["at"] for row in results)
    assert len(results) == 60
    for row in results:
        known = row["wind"] + 20 * row["evening"] if row["at"] >= start + MONTH else None
        assert row["model_version"] == (known and 1)
        assert row["expected"] == (known and pytest.approx(known))
