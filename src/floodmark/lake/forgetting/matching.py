"""Which rows of a log and of its quarantine have a key."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.core.errors import LifecycleError, closest
from floodmark.lake.folder.paths import Lake
from floodmark.lake.forgetting.keys import ForgottenKey
from floodmark.lake.table import entries
from floodmark.spec.rows.source import Source

Mask = Callable[[pa.RecordBatch], pa.Array]
"""Rows -> for each row, True if it has the key."""


@dataclass(frozen=True, slots=True)
class Matching:
    """The keys to forget in one source.

    Args:
        source: name of the source.
        keys: (column, value with the column's type in the log, value as text); a row has the key if one of them matches.
    """

    source: str
    keys: tuple[tuple[str, pa.Scalar, str], ...]

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """The mask of rows of the log."""
        masks = [pc.equal(batch[column], value) for column, value, _ in self.keys if column in batch.schema.names]
        return pc.fill_null(reduce(pc.or_, masks, pa.array([False] * batch.num_rows)), False)

    def refused(self, batch: pa.RecordBatch) -> pa.Array:
        """The mask of rows of the quarantine, whose text is read as the source's format; other texts match by whole words."""
        replays = batch["_replay"].to_pylist() if "_replay" in batch.schema.names else [None] * batch.num_rows
        pairs = zip(batch["raw"].to_pylist(), replays, strict=True)
        return pa.array([self._matches(raw or "", replay) for raw, replay in pairs], pa.bool_())

    def _matches(self, raw: str, replay: str | None) -> bool:
        values = _values(raw, replay)
        for column, _, text in self.keys:
            if values is None or column not in values:
                if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", raw):
                    return True
            elif str(values[column]) == text:
                return True
        return False


def _values(raw: str, replay: str | None) -> dict[str, object] | None:
    """Column -> value of a refused row; None if its text has no form of its own."""
    try:
        document = json.loads(raw)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    try:
        settings = json.loads(replay or "null")
    except ValueError:
        return None
    if not isinstance(settings, dict) or settings.get("format") != "csv" or "header" not in settings:
        return None
    cells = next(csv.reader([raw], delimiter=settings.get("delimiter") or ","), [])
    return dict(zip(settings["header"], cells, strict=False)) if len(cells) == len(settings["header"]) else None


def matchings(sources: Sequence[Source], lake: Lake, keys: Sequence[ForgottenKey]) -> list[Matching]:
    """The keys to forget in each source that has one of their columns.

    Args:
        sources: of the workspace.
        lake: lake of the logs. Sources without a log are left out.
        keys: the keys.

    Raises:
        LifecycleError: LIFECYCLE-292 no source of that name has the column, LIFECYCLE-293 the value has another type than the column.
    """
    by_source = dict[str, list[tuple[str, pa.Scalar, str]]]()
    for key in keys:
        owners = [source for source in sources if key.source in {"", source.name} and key.column in source.schema.names]
        if not owners:
            raise _no_column(key, sources)
        for source in owners:
            path = lake.log(source.name)
            if entries.is_table(path):
                by_source.setdefault(source.name, []).append((key.column, _typed(key, path), key.value))
    return [Matching(source, tuple(values)) for source, values in by_source.items()]


def _no_column(key: ForgottenKey, sources: Sequence[Source]) -> LifecycleError:
    known = {f"{source.name}.{column}" for source in sources for column in source.schema.names}
    names = known if key.source else {name.partition(".")[2] for name in known}
    fix = f"{closest(str(key), names)}The columns: {', '.join(sorted(known))}"
    return LifecycleError(f"key {key}", "a column of a source", "none of that name", fix, code="LIFECYCLE-292")


def _typed(key: ForgottenKey, path: str) -> pa.Scalar:
    kind = pa.schema(DeltaTable(path).schema().to_arrow()).field(key.column).type
    try:
        return pa.scalar(key.value).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        fix = "Give the value as it is in a CSV file: 42, alice@example.org, 2025-03-01"
        raise LifecycleError(
            f"key {key}", f"a value of type {kind}", "one of another type", fix, code="LIFECYCLE-293"
        ) from None
