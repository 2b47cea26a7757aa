"""Fitted models in a stream: versions of a model come as rows of a second input, and each row is predicted by the version of its time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic import Field

from floodmark.core.errors import StateError, UserCodeError
from floodmark.core.fingerprint import form
from floodmark.spec.keyed.learning import finite
from floodmark.spec.keyed.pipelines import Pipeline, is_saved, read
from floodmark.spec.keyed.process import Context, Row, StatefulFunction
from floodmark.spec.keyed.state import BroadcastState
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.kinds import Kind

TRUSTED = frozenset({"numpy", "scipy", "sklearn"})
"""Packages whose types a stored model may name."""
_CURRENT = "current"


def _same(value: Any) -> Any:
    return value


def _number(value: Any) -> float:
    if isinstance(value, str):
        msg = f"a prediction is {value!r}, which is no number: score(..., type=str)"
        raise ValueError(msg)  # noqa: TRY004 - a value of the model's
    return float(value)


def _whole(value: Any) -> int:
    if _number(value) % 1:  # also of NaN and infinity
        msg = f"a prediction is {value}, which is no whole number: score(..., type='double')"
        raise ValueError(msg)
    return int(value)


def _true(value: Any) -> bool:
    if value not in {0, 1}:
        msg = f"a prediction is {value!r}, which is neither true nor false: score(..., type=...) names its type"
        raise ValueError(msg)
    return bool(value)


_AS: Mapping[str, Callable[[Any], Any]] = {
    "double": _number,
    "boolean": _true,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _whole),
}
"""Type of a prediction -> how it is made: a classifier of Spark ML predicts 1.0 for 1."""


class ModelVersion(Contract):
    """A version of a fitted model: a row of the table that ``floodmark.models.fit`` appends to."""

    at: EventTime = Field(description="event time from which on the version predicts")
    name: str
    version: int
    model: bytes = Field(description="the fitted estimator, as skops or Spark ML writes it")
    sha256: str = Field(description="of these bytes")
    features: list[str]
    estimator: str = Field(description="its class and the release of its package")
    trained_from: datetime
    trained_to: datetime
    trained_rows: int
    metrics: str = Field(description="of the rows that were left out of training, a JSON object")
    definition: str = Field(description="digest of all that decided the version")


class Scoring(StatefulFunction):
    """Predicts each row by the version of a model that is valid at its event time. Input is in order of event time, versions before rows of the same time."""

    versions = BroadcastState(str, Kind("version"))

    def __init__(self, name: str, features: tuple[str, ...], prediction: str, type_: str) -> None:
        self.name, self.features, self.prediction, self.type = name, features, prediction, type_

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        about = {"model": self.name, "features": form(self.features), "prediction": self.prediction, "type": self.type}
        return {"name": "score", "settings": about, "states": self.layout()}

    def on_broadcast(self, row: Row, ctx: Context) -> None:  # noqa: ARG002 - the protocol's
        """A version is valid from now on."""
        if row["name"] != self.name:
            return
        if tuple(row["features"]) != self.features:
            fix = "Score the columns that it was fitted on, in their order, or fit it on these."
            got = ", ".join(row["features"])
            where = f"version {row['version']} of model '{self.name}'"
            raise UserCodeError(where, f"features {', '.join(self.features)}", got, fix, code="USER-023")
        self.versions.put(_CURRENT, (row["version"], row["sha256"], row["model"]))

    def on_element(self, row: Row, ctx: Context) -> Iterator[Row]:  # noqa: ARG002 - the protocol's
        """The row with its prediction and the version that predicted; null before the first version."""
        current = self.versions.get(_CURRENT)
        if current is None:
            yield {**row, self.prediction: None, "model_version": None}
            return
        version, sha256, data = current
        model, values = opened(data, sha256, self.name), [row[name] for name in self.features]
        features = model.taken(values) if isinstance(model, Pipeline) else list(map(finite, self.features, values))
        made = model.predict([features])[0]
        made = made.item() if hasattr(made, "item") else made
        yield {**row, self.prediction: _AS.get(self.type, _same)(made), "model_version": version}


@lru_cache(maxsize=8)
def opened(data: bytes, sha256: str, name: str) -> Any:
    """The estimator of a stored model: of scikit-learn, or a pipeline of Spark ML.

    Raises:
        StateError: STATE-074 not the bytes that were stored, 075 types of another package, 076 no package, 077 and 078 a pipeline that is not read here.
    """
    where = f"model '{name}'"
    if hashlib.sha256(data).hexdigest() != sha256:
        fix = "Fit it again: floodmark.models.fit(...)."
        raise StateError(where, f"bytes of the digest {sha256[:12]}", "others", fix, code="STATE-074")
    return read(data, where) if is_saved(data) else _of_skops(data, where)


def _of_skops(data: bytes, where: str) -> Any:
    try:
        from skops.io import get_untrusted_types, loads  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        fix = f"Install it where rows are processed, on each worker: pip install 'floodmark[models]' (no module {error.name})"
        raise StateError(where, "scikit-learn and skops", "none here", fix, code="STATE-076") from error
    types = get_untrusted_types(data=data)
    foreign = [one for one in types if one.partition(".")[0] not in TRUSTED]
    if foreign:
        fix = "Use estimators of scikit-learn alone; a class of another package could run anything when it is read."
        raise StateError(where, f"types of {', '.join(sorted(TRUSTED))}", ", ".join(foreign), fix, code="STATE-075")
    return loads(data, trusted=types)
