"""What fitting needs of a library of estimators: how one is told from another, fitted, and stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from floodmark.lake.folder.paths import Lake

Metrics = Mapping[str, Callable[[Sequence[Any], Sequence[Any]], float]]
"""Name -> function of (values, predictions)."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted estimator.

    Args:
        predictions: of the rows that it was not fitted to.
        data: the estimator as it is stored.
    """

    predictions: Sequence[Any]
    data: bytes


class Library(Protocol):
    """A library of estimators."""

    def check(self, estimator: Any) -> None:
        """Raises ``DefinitionError`` for what is no estimator that fits and predicts."""

    def form(self, estimator: Any) -> Any:
        """What tells an estimator from one that is set otherwise, as a JSON value."""

    def called(self, estimator: Any) -> str:
        """Name of its class."""

    def release(self, estimator: Any) -> str:
        """Package and release."""

    def metrics(self, estimator: Any) -> Metrics:
        """The metrics of an estimator of its kind."""

    def fit(
        self, estimator: Any, rows: pa.Table, split: int, features: tuple[str, ...], target: str, lake: Lake
    ) -> Fitted:
        """Fit a clone to the rows before ``split``, and predict the others."""
