"""What fitting needs of a library of estimators: how one is told from another, fitted, and stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

Metrics = Mapping[str, Callable[[Sequence[Any], Sequence[Any]], float]]
"""Name -> function of (values, predictions)."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted estimator.

    Args:
        values: of the target in these rows, as the predictions have them: Spark ML predicts 1.0 for the second of two texts.
        predictions: of the rows that it was not fitted to.
        data: the estimator as it is stored.
    """

    values: Sequence[Any]
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

    def lenient(self, estimator: Any) -> tuple[frozenset[str], frozenset[str]]:
        """Columns of whose nulls, and of whose NaN, the estimator learns."""

    def fit(
        self, estimator: Any, rows: pa.Table, split: int, features: tuple[str, ...], target: str, folder: str
    ) -> Fitted:
        """Fit a clone to the rows before ``split``, and predict the others; ``folder`` is for its files meanwhile."""
