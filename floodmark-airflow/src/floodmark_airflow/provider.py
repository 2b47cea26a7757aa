"""What Airflow lists of this package among its providers."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def info() -> dict[str, Any]:
    """The provider's description, in Airflow's form."""
    return {
        "package-name": "floodmark-airflow",
        "name": "floodmark",
        "description": "floodmark's verbs as operators, its finished asset partitions as asset events.",
        "versions": [version("floodmark-airflow")],
    }
