"""Statistics of value ranges in a table's log.

A range of floats excludes NaN, which Spark orders above all numbers. delta-rs writes bounds of decimals as 64-bit numbers: of many digits they are not
the bounds, and a reader that trusts them leaves out files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.transaction import AddAction, create_table_with_add_actions

from floodmark.core.errors import CapabilityError
from floodmark.lake.folder.bucket import is_bucket, together
from floodmark.lake.folder.copies import copy
from floodmark.lake.table.files import described

_FILES = "files"
"""Name of the link to the original table's folder, or of the folder of fetched files, in a copy."""
_PLAIN = frozenset(("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"))
"""Reader features of Delta that do not change how data files are read."""
EXACT_DIGITS = 15
"""Most digits of a decimal that a double holds as they are."""
_NO_BOUND = 1 << 63
"""Greater than any number."""
_OF_COLUMN_MAPPING = 2
"""Reader version of Delta's protocol that introduced column mapping."""


def unmeasured(schema: pa.Schema) -> WriterProperties:
    """Writer properties with which delta-rs writes no ranges of floats and of decimals of many digits, neither into files nor into the log."""
    inexact = [field.name for field in schema if _is_inexact(field.type)]
    return WriterProperties(column_properties=dict.fromkeys(inexact, ColumnProperties(statistics_enabled="NONE")))


def _is_inexact(kind: pa.DataType) -> bool:
    """Whether a range of values of a type may leave values out."""
    return bool(pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS))


def largest(path: str, columns: Sequence[str]) -> tuple[int, int]:
    """(path of a table, columns of numbers with exact ranges) -> its rows, and the least whole number that is not less than any of these columns whatever its sign, by its log; 2^63 where that does not say it."""
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    counts, most = actions["num_records"].to_pylist(), 1
    nothing = [None] * actions.num_rows
    for column in columns:
        least, greatest, nulls = (
            actions[name].to_pylist() if (name := f"{side}.{column}") in actions.column_names else nothing
            for side in ("min", "max", "null_count")
        )
        for low, high, null, count in zip(least, greatest, nulls, counts, strict=True):
            if null is None or null != count:
                most = max(most, _NO_BOUND if low is None or high is None else math.ceil(max(abs(low), abs(high))))
    return (_NO_BOUND if None in counts else sum(counts)), most


def without_inexact(path: str, version: int, folder: Path) -> tuple[str, int]:
    """A table version without ranges of floats and of decimals of many digits in its log, for an engine that trusts them although they leave values out.

    Logs written by floodmark have no such ranges; delta-rs and Spark write them.

    Args:
        path: path of the table, or its URI in a bucket, whose files are fetched into ``folder``.
        version: version of the table.
        folder: folder to create for a table of the same files with its own log. Not created if the log has no such ranges.

    Returns:
        (path, version) of the table itself, or of the copy in ``folder``.

    Raises:
        CapabilityError: CAPABILITY-038, a reader feature such as deletion vectors changes which rows the files hold.
    """
    table = DeltaTable(path, version=version)
    actions = pa.table(table.get_add_actions())
    if not any(_has_inexact(actions[side]) for side in ("min", "max") if side in actions.column_names):
        return path, version
    protocol = table.protocol()
    features = sorted(set(protocol.reader_features or ()) - _PLAIN)
    if features or protocol.min_reader_version == _OF_COLUMN_MAPPING:
        got, fix = (
            ", ".join(features) or "columnMapping",
            "Run it on Spark: --engine spark. Or write the table anew without.",
        )
        raise CapabilityError(f"table {path}", "plain files of a Delta table", got, fix, code="CAPABILITY-038")
    folder.mkdir()
    if is_bucket(path):  # Sail reads the files of a table from one store
        names = [unquote(name) for name in actions["path"].to_pylist()]
        together(lambda name: copy(f"{path}/{name}", f"{folder / _FILES}/{name}"), names)
    else:
        (folder / _FILES).symlink_to(Path(path).absolute(), target_is_directory=True)
    create_table_with_add_actions(
        str(folder),
        table.schema(),
        [_added(action) for action in actions.to_pylist()],
        mode="error",
        partition_by=table.metadata().partition_columns,
    )
    return str(folder), 0


def _has_inexact(ranges: pa.ChunkedArray) -> bool:
    """True if a range of a type that is not exact, nested or not, is present."""
    kind = ranges.type
    if pa.types.is_struct(kind):
        values = ranges.combine_chunks()
        return any(_has_inexact(pa.chunked_array([values.field(place)])) for place in range(kind.num_fields))
    return _is_inexact(kind) and ranges.null_count < len(ranges)


def _added(action: dict[str, Any]) -> AddAction:
    """The add action of a table's file in the copy."""
    low, high = action.get("min") or {}, action.get("max") or {}
    ranges = {name: (low[name], high.get(name)) for name in low}
    nulls = {name: count for name, count in (action.get("null_count") or {}).items() if isinstance(count, int)}
    values = {name: _text(value) for name, value in (action.get("partition") or {}).items()}
    stats = described(action["num_records"], nulls, ranges)
    name = f"{_FILES}/{unquote(action['path'])}"
    return AddAction(name, action["size_bytes"], values, action["modification_time"], False, stats)


def _text(value: Any) -> str | None:
    """A partition value in Delta's text form."""
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S.%f}"
        case date():
            return value.isoformat()
        case _:
            return str(value)
