"""A stream whose keys have online models, over keyed numbers (``events``), and what a loop in Python predicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from events import Event
from river import anomaly, cluster, forest, linear_model, naive_bayes, preprocessing, tree

from floodmark import Operator, Stream, operator
from floodmark.spec.keyed.model import last_part

FEATURES = ("small", "great")
MODELS: Mapping[str, tuple[Any, str | None]] = {
    "line": (preprocessing.StandardScaler() | linear_model.LinearRegression(), "target"),
    "bayes": (linear_model.BayesianLinearRegression(), "target"),
    "classes": (naive_bayes.GaussianNB(), "odd"),
    "tree": (tree.HoeffdingTreeRegressor(grace_period=20), "target"),
    "forest": (forest.ARFRegressor(n_models=3, seed=1), "target"),
    "outliers": (
        preprocessing.MinMaxScaler() | anomaly.HalfSpaceTrees(n_trees=5, height=4, window_size=20, seed=1),
        None,
    ),
    "groups": (cluster.KMeans(n_clusters=3, seed=1), None),
}
"""Name -> model and its target."""


def learning(name: str, model: Any = None) -> Operator:
    """An operator of this name whose keys have a model."""
    known, target = MODELS[name]

    def body(events: Stream[Event]) -> Stream:
        columns = {"small": "value % 7", "great": "sqrt(value)", "odd": "value % 2 = 1"}
        columns["target"] = "CASE WHEN value % 13 <> 5 THEN CAST(value % 7 * 3 - value % 2 AS double) END"
        return events.with_columns(**columns).key_by("key").learn(model or known, features=FEATURES, target=target)

    body.__doc__ = f"Predictions of {name}."
    return operator(body, name=name)


def looped(name: str, rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """(model, rows in their order) -> (key, value, prediction, learned) by river alone, without a stop."""
    template, target = MODELS[name]
    models: dict[str, Any] = {}
    counts: dict[str, int] = {}
    predicted = []
    for row in rows:
        key, value = row["key"], row["value"]
        model = models.setdefault(key, template.clone())
        features = {"small": value % 7, "great": value**0.5}
        score = hasattr(last_part(model), "score_one")
        made = model.score_one(features) if score else model.predict_one(features)
        predicted.append((key, value, made, counts.setdefault(key, 0)))
        labels = {"odd": value % 2 == 1, "target": None if value % 13 == 5 else float(value % 7 * 3 - value % 2)}
        if target is None:
            model.learn_one(features)
        elif labels[target] is not None:
            model.learn_one(features, labels[target])
        counts[key] += target is None or labels[target] is not None
    return predicted
