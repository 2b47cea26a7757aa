"""Bounded runs in SQL and by kernels: the cases of both engines, and what two runs of one operator must have alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import MARKER
from floodmark.testing.embedded import EmbeddedCase
from floodmark.testing.lakes import LakeCase
from floodmark.testing.spark import SparkCase

_OF_A_RUN = {"_ingest_time", "_sequence", "_progress", "_asset_partition"}
"""Stamps that differ from run to run."""


def case_on(engine: str, request: pytest.FixtureRequest, operator: Operator, folder: Path) -> LakeCase:
    """A case of ``"spark"`` or ``"embedded"``."""
    if engine == "spark":
        return SparkCase(request.getfixturevalue("spark"), operator, str(folder))
    return EmbeddedCase(operator, str(folder))


def stamped(tables: Mapping[str, pa.Table]) -> dict[str, Counter[str]]:
    """Output -> its rows with their stamps, and how often each is there."""
    return {
        name: Counter(
            repr([_plain(row[column]) for column in sorted({*row} - _OF_A_RUN)])
            for row in table.to_pylist()
            if row["_kind"] < MARKER
        )
        for name, table in tables.items()
    }


def _plain(value: Any) -> Any:
    return int(value.timestamp() * 1000) if hasattr(value, "timestamp") else value
