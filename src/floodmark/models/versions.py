"""Versions of a fitted model: a Delta table of the lake with a row each, bytes included, and the source that reads it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from floodmark.core import crash
from floodmark.core.time import Interval, from_ms, to_ms
from floodmark.lake.folder.paths import Lake
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.keyed.fitted import ModelVersion
from floodmark.spec.rows.connector import DeltaTable as Connector
from floodmark.spec.rows.contract import schema
from floodmark.spec.rows.source import BoundedOutOfOrderness, Source

_SCHEMA: pa.Schema = arrow_schema(schema(ModelVersion))


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a fitted model.

    Args:
        name: of the model.
        version: 1, 2, 3 in the order in which they were fitted.
        valid_from: event time from which on it predicts, ms UTC.
        interval: event times of the rows that it was fitted to.
        rows: number of them, those that measured it included.
        features: columns that it was fitted on.
        metrics: name -> value, on the rows that were left out of training.
        estimator: class of the estimator and release of its package.
        definition: digest of all that decided it: fitting again with the same finds it.
        data: the bytes of the estimator.
        sha256: of these bytes.
    """

    name: str
    version: int
    valid_from: int
    interval: Interval
    rows: int
    features: tuple[str, ...]
    metrics: Mapping[str, float]
    estimator: str
    definition: str
    data: bytes
    sha256: str


def versions(lake: Lake, name: str) -> tuple[Version, ...]:
    """The versions of a model in the order in which they were fitted; none for a model that was never fitted."""
    path = lake.model(name)
    if not DeltaTable.is_deltatable(path):
        return ()
    rows = DeltaTable(path).to_pyarrow_table().sort_by("version").to_pylist()
    return tuple(map(_version, rows))


def publish(lake: Lake, version: Version) -> Version:
    """Append a version to the table of its model, in one commit: readers find all of it or nothing."""
    rows = pa.Table.from_pylist([row_of(version)], schema=_SCHEMA)
    crash.point("model.before_commit")
    write_deltalake(lake.model(version.name), rows, mode="append")
    crash.point("model.after_commit")
    return version


def row_of(version: Version) -> dict[str, Any]:
    """A version as a row of the table of its model, which is a row of ``ModelVersion``."""
    return {
        "at": from_ms(version.valid_from),
        "name": version.name,
        "version": version.version,
        "model": version.data,
        "sha256": version.sha256,
        "features": list(version.features),
        "estimator": version.estimator,
        "trained_from": from_ms(version.interval.start),
        "trained_to": from_ms(version.interval.end),
        "trained_rows": version.rows,
        "metrics": json.dumps({title: _in_json(value) for title, value in version.metrics.items()}, sort_keys=True),
        "definition": version.definition,
    }


def source(name: str, path: str, *, idle_timeout: str | timedelta = "10 seconds") -> Source:
    """The source of a model's versions, for ``Stream[ModelVersion]``.

    Args:
        name: of the source.
        path: of the table: ``lake/models/NAME``.
        idle_timeout: time without a new version after which progress of this input follows the clock, so that rows do not wait for a version.
    """
    return Source(
        name,
        contract=ModelVersion,
        connector=Connector(path),
        watermark=BoundedOutOfOrderness("0 s"),
        idle_timeout=idle_timeout,
        when_idle="clock",
    )


def _version(row: Mapping[str, Any]) -> Version:
    return Version(
        name=row["name"],
        version=row["version"],
        valid_from=to_ms(row["at"]),
        interval=Interval(start=to_ms(row["trained_from"]), end=to_ms(row["trained_to"])),
        rows=row["trained_rows"],
        features=tuple(row["features"]),
        metrics={title: float(value) for title, value in json.loads(row["metrics"]).items()},
        estimator=row["estimator"],
        definition=row["definition"],
        data=row["model"],
        sha256=row["sha256"],
    )


def _in_json(value: float) -> float | str:
    """A number as JSON has it: NaN and infinities are texts, ``"NaN"``, ``"Infinity"``, as in what Spark writes."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
