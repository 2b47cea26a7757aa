"""Pipelines of Spark ML of each kind over flights, fitted by Spark and recorded with its predictions: python tests/support/pipelines.py [NAME ...]

writes them, or some of them, anew to ``tests/cases/pipelines``: an archive each, and ``predictions.json``.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

CASES = Path(__file__).parents[1] / "cases" / "pipelines"
FEATURES = ("wind", "evening", "origin")
GAPS: dict[int, dict[str, Any]] = {
    1: {"origin": "new"},
    3: {"wind": math.nan},
    5: {"origin": None},
    6: {"wind": math.inf},
    7: {"wind": None},
    8: {"wind": None, "origin": None},
    9: {"wind": math.nan, "origin": None},
}
"""Last digit of a row's number -> what it lacks."""


def rows(count: int = 200) -> pa.Table:
    """Flights with four targets: a number, two classes, also as texts, and three."""
    draw, made = random.Random(5), []
    for _ in range(count):
        wind, evening, origin = draw.uniform(-5, 30), draw.random() < 0.5, draw.choice(["a", "b", "ä"])
        delay = 2 * wind + 20 * evening + (7 if origin == "a" else 0) + draw.gauss(0, 3)
        about = {"wind": wind, "evening": evening, "origin": origin, "delay": delay}
        about |= {"late": delay > 30, "word": ["early", "late"][delay > 30]}
        made.append(about | {"grade": int(delay > 10) + int(delay > 40)})
    return pa.Table.from_pylist(made)


def rows_of(name: str) -> pa.Table:
    """The rows of a pipeline: those of ``kept`` and ``gaps`` have nulls and NaN; rows without wind are none of the 150 that train, as nothing learns of them."""
    if name not in {"kept", "gaps"}:
        return rows()
    gaps = [row | GAPS.get(n % 10 if n >= 150 else n % 7, {}) for n, row in enumerate(rows().to_pylist())]
    return pa.Table.from_pylist(gaps, schema=rows().schema)


def kinds() -> dict[str, tuple[Any, str]]:
    """Name -> pipeline and target. Needs a session."""
    from pyspark.ml import Pipeline
    from pyspark.ml.classification import (
        DecisionTreeClassifier,
        GBTClassifier,
        LinearSVC,
        LogisticRegression,
        RandomForestClassifier,
    )
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.feature import (
        Bucketizer,
        IndexToString,
        MaxAbsScaler,
        MinMaxScaler,
        OneHotEncoder,
        StandardScaler,
        StringIndexer,
        VectorAssembler,
    )
    from pyspark.ml.regression import DecisionTreeRegressor, GBTRegressor, LinearRegression, RandomForestRegressor

    def whole(*stages: Any) -> Any:
        index = StringIndexer(inputCol="origin", outputCol="index", handleInvalid="keep")
        one_hot = OneHotEncoder(inputCols=["index"], outputCols=["hot"])
        return Pipeline(stages=[index, one_hot, *stages])

    def bucketed(**settings: str) -> Any:
        splits = [-float("inf"), 0.0, 10.0, 20.0, float("inf")]
        return Bucketizer(inputCol="wind", outputCol="bucket", splits=splits, **settings)

    all_of = VectorAssembler(inputCols=["wind", "evening", "hot"], outputCol="features")
    scaled = StandardScaler(inputCol="features", outputCol="scaled", withMean=True)
    plain = VectorAssembler(inputCols=["wind", "index"], outputCol="features")
    of_late: Any = {"labelCol": "late"}
    seeded: Any = {"seed": 4}
    return {
        "line": (whole(all_of, scaled, LinearRegression(featuresCol="scaled", labelCol="delay")), "delay"),
        "ranged": (
            whole(
                all_of,
                MinMaxScaler(inputCol="features", outputCol="ranged", min=-1.0),
                LinearRegression(featuresCol="ranged", labelCol="delay", regParam=0.1, elasticNetParam=1.0),
            ),
            "delay",
        ),
        "buckets": (
            whole(
                bucketed(),
                VectorAssembler(inputCols=["bucket", "evening"], outputCol="features"),
                MaxAbsScaler(inputCol="features", outputCol="scaled"),
                DecisionTreeRegressor(featuresCol="scaled", labelCol="delay", maxDepth=3),
            ),
            "delay",
        ),
        "logistic": (whole(all_of, LogisticRegression(**of_late, threshold=0.4)), "late"),
        "three_classes": (whole(all_of, LogisticRegression(labelCol="grade")), "grade"),
        "margin": (whole(all_of, LinearSVC(**of_late, maxIter=20)), "late"),
        "named": (
            whole(
                plain,
                DecisionTreeClassifier(**of_late, maxDepth=4, **seeded),
                IndexToString(inputCol="prediction", outputCol="word", labels=["early", "late"]),
            ),
            "late",
        ),
        "forest": (whole(plain, RandomForestClassifier(labelCol="grade", numTrees=4, maxDepth=4, **seeded)), "grade"),
        "forest_of_numbers": (
            whole(all_of, RandomForestRegressor(labelCol="delay", numTrees=4, maxDepth=3, **seeded)),
            "delay",
        ),
        "boosted": (whole(all_of, GBTRegressor(labelCol="delay", maxIter=4, maxDepth=3, **seeded)), "delay"),
        "boosted_classes": (whole(plain, GBTClassifier(**of_late, maxIter=3, maxDepth=3, **seeded)), "late"),
        "worded": (
            Pipeline(
                stages=[
                    StringIndexer(inputCol="word", outputCol="label", stringOrderType="alphabetAsc"),
                    whole(plain, DecisionTreeClassifier(labelCol="label", maxDepth=3)),
                    IndexToString(inputCol="prediction", outputCol="expected", labels=["early", "late"]),
                ]
            ),
            "word",
        ),
        "kept": (
            whole(
                bucketed(handleInvalid="keep"),
                VectorAssembler(inputCols=["bucket", "hot", "evening"], outputCol="features", handleInvalid="keep"),
                LinearRegression(labelCol="delay", regParam=0.1),
            ),
            "delay",
        ),
        "gaps": (
            whole(
                bucketed(handleInvalid="keep"),
                OneHotEncoder(inputCols=["bucket"], outputCols=["winds"], handleInvalid="keep"),
                VectorAssembler(inputCols=["winds", "index", "evening"], outputCol="features", handleInvalid="keep"),
                DecisionTreeRegressor(labelCol="delay", maxDepth=5),
            ),
            "delay",
        ),
        "clusters": (whole(all_of, KMeans(k=3, **seeded)), "delay"),
    }


def main() -> None:
    """Record kinds."""
    from floodmark.engines.spark.session.builder import spark_session
    from floodmark.models.spark import library

    session = spark_session(app="pipelines", shuffle_partitions=1)
    CASES.mkdir(parents=True, exist_ok=True)
    predictions = json.loads((CASES / "predictions.json").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for name, (pipeline, target) in kinds().items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            table = rows_of(name).select([*FEATURES, target])
            fitted = library(name).fit(pipeline, table, 150, FEATURES, target, f"{folder}/{name}")
            (CASES / f"{name}.zip").write_bytes(fitted.data)
            predictions[name] = list(fitted.predictions)
    (CASES / "predictions.json").write_text(json.dumps(predictions, indent=1, ensure_ascii=False) + "\n")
    session.stop()


if __name__ == "__main__":
    main()
