"""Estimators of scikit-learn, stored by skops, without pickles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyarrow as pa

from floodmark.core.errors import DefinitionError, SetupError, shown
from floodmark.models.library import Fitted, Metrics


@dataclass(frozen=True, slots=True)
class Scikit:
    """scikit-learn, as ``Library``.

    Args:
        where: the model, for errors.
        clone: an estimator -> one that is set equally, not fitted.
        dumps: a fitted estimator -> its bytes.
    """

    where: str
    clone: Callable[[Any], Any]
    dumps: Callable[[Any], bytes]

    def check(self, estimator: Any) -> None:
        """As ``Library``."""
        if isinstance(estimator, type) or not all(
            hasattr(estimator, name) for name in ("fit", "predict", "get_params")
        ):
            fix = "For example make_pipeline(StandardScaler(), Ridge()) of scikit-learn."
            raise DefinitionError(
                self.where, "an estimator that fits and predicts", shown(estimator), fix, code="DEFINITION-444"
            )

    def form(self, estimator: Any) -> Any:
        """As ``Library``."""
        return repr(estimator)

    def called(self, estimator: Any) -> str:
        """As ``Library``."""
        return type(estimator).__name__

    def release(self, estimator: Any) -> str:
        """As ``Library``."""
        name = type(estimator).__module__.partition(".")[0]
        package = {"sklearn": "scikit-learn"}.get(name, name)
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:  # a class of the user's
            return package

    def metrics(self, estimator: Any) -> Metrics:
        """As ``Library``."""
        from sklearn.base import is_classifier  # noqa: PLC0415 - an extra
        from sklearn.metrics import accuracy_score, r2_score  # noqa: PLC0415 - likewise

        return {"accuracy": accuracy_score} if is_classifier(estimator) else {"r2": r2_score}

    def lenient(self, estimator: Any) -> tuple[frozenset[str], frozenset[str]]:  # noqa: ARG002 - the protocol's
        """As ``Library``: none, as one row is predicted at a time and its features are checked before."""
        return frozenset(), frozenset()

    def fit(
        self,
        estimator: Any,
        rows: pa.Table,
        split: int,
        features: tuple[str, ...],
        target: str,
        folder: str,  # noqa: ARG002 - the protocol's
    ) -> Fitted:
        """As ``Library``."""
        columns = [rows[name].to_pylist() for name in features]
        values, labels = [list(row) for row in zip(*columns, strict=True)], rows[target].to_pylist()
        fitted = self.clone(estimator).fit(values[:split], labels[:split])
        return Fitted(labels[split:], fitted.predict(values[split:]), self.dumps(fitted))


def library(where: str) -> Scikit:
    """scikit-learn, if it is installed.

    Raises:
        SetupError: SETUP-130, it is not.
    """
    try:
        from sklearn.base import clone  # noqa: PLC0415 - an extra
        from skops.io import dumps  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        fix = "Install them: pip install 'floodmark[models]'"
        raise SetupError(where, "scikit-learn and skops", f"no module {error.name}", fix, code="SETUP-130") from error
    return Scikit(where, clone, dumps)
