"""The function of ``learn``: each row is predicted by the model of its key, which then learns from the row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from numbers import Real
from typing import Any

from floodmark.core.fingerprint import form
from floodmark.spec.keyed.model import ModelState
from floodmark.spec.keyed.process import Context, Row, StatefulFunction
from floodmark.spec.keyed.state import State, ValueState

MODEL = "model"
LEARNED = "learned"


class Learning(StatefulFunction):
    """Predicts, then learns. Source: prequential evaluation, as of river's ``evaluate.progressive_val_score``.

    Args:
        model: the state that holds the model of a key.
        method: the model's method that predicts: ``predict_one`` or ``score_one``.
        features: columns that the model is given.
        target: column that it learns to predict; None for a model that learns without one.
        prediction: column of the result.
        converts: type of the prediction.
    """

    def __init__(
        self, model: ModelState, method: str, features: tuple[str, ...], target: str | None, prediction: str, type_: str
    ) -> None:
        self.of, self.method, self.features = model, method, features
        self.target, self.prediction, self.type = target, prediction, type_

    def states(self) -> dict[str, State]:  # type: ignore[override]  # the model is this instance's, not its class's
        """The model, and from how many rows it has learned."""
        learned = ValueState(int)
        self.of.name, learned.name = MODEL, LEARNED
        return {MODEL: self.of, LEARNED: learned}

    def layout(self) -> dict[str, object]:
        """See ``StatefulFunction.layout``."""
        return {name: state.canonical() for name, state in self.states().items()}

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        about = {"features": form(self.features), "target": self.target, "prediction": self.prediction}
        about |= {"method": self.method, "type": self.type}
        return {"name": "learn", "settings": about, "states": self.layout()}

    def on_element(self, row: Row, ctx: Context) -> Iterator[Row]:  # noqa: ARG002 - the protocol's
        """The row with its prediction; then the model learns, if the target is known."""
        state, learned = (vars(self)[f"_state_{name}"] for name in (MODEL, LEARNED))
        features = {name: finite(name, row[name]) for name in self.features}
        target = None if self.target is None else _label(self.target, row[self.target])
        model, rows = state.get(), learned.get(0)
        made = getattr(model, self.method)(features)
        yield {**row, self.prediction: self._converted(made), LEARNED: rows}
        if self.target is None:
            model.learn_one(features)
        elif target is not None:
            model.learn_one(features, target)
        else:
            return
        learned.update(rows + 1)

    def _converted(self, made: Any) -> Any:
        """A prediction as a value of the column: numbers of numpy as Python's."""
        made = made.item() if hasattr(made, "item") else made
        return float(made) if self.type == "double" and made is not None else made


def finite(name: str, value: Any) -> Any:
    """A feature: a finite number, a boolean or a text.

    Raises:
        ValueError: null, NaN or infinite.
    """
    if value is None:
        msg = f"feature '{name}' is null; a model learns from values: fill it before, with_columns({name}='coalesce({name}, 0)')"
        raise ValueError(msg)
    if isinstance(value, Mapping):
        msg = f"feature '{name}' is a row; name its fields by with_columns"
        raise TypeError(msg)
    if isinstance(value, (bool, str)):
        return value
    number = float(value) if not isinstance(value, (int, float)) else value
    if isinstance(number, Real) and not isfinite(number):
        msg = f"feature '{name}' is {number}; a model that learns from it would be lost: filter it, or quarantine the row by on_error"
        raise ValueError(msg)
    return number


def _label(name: str, value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        msg = f"target '{name}' is {value}; a model that learns from it would be lost: filter it, or quarantine the row by on_error"
        raise ValueError(msg)
    return float(value) if hasattr(value, "as_tuple") else value
