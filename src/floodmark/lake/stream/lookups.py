"""Answers of lookup tables: the current rows of a Delta table or of a file, by key, with the version that they are of."""

from __future__ import annotations

import hashlib
import io
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from deltalake import DeltaTable

from floodmark.core.errors import ConnectorError, described
from floodmark.lake.folder.storage import read
from floodmark.lake.table import entries
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.semantics.kernels.calls import answer_schema
from floodmark.semantics.kernels.requests import Question
from floodmark.spec.graph.steps import Call
from floodmark.spec.rows.lookup import FILES, VERSION, Lookup, LookupTable

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Current:
    """The rows of a version of a table.

    Args:
        version: of a Delta table its number, of a file the begin of the SHA-256 of its bytes.
        rows: as the contract has them.
    """

    version: str
    rows: pa.Table


class _Tables:
    """The tables that this process has read last, one version each."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.current: dict[LookupTable, Current] = {}
        self.indices: dict[tuple[LookupTable, tuple[str, ...]], tuple[str, dict[Key, list[int]]]] = {}


@cache
def _tables() -> _Tables:
    return _Tables()


def answers_of(step: Call, questions: Sequence[Question]) -> pa.Table:
    """(step of a lookup, its questions) -> their answers by the rows that the table has now.

    Raises:
        ConnectorError: CONNECTOR-290 no such table or file; CONNECTOR-291 one that is not as its contract.
    """
    lookup = step.function
    assert isinstance(lookup, Lookup)
    current, index = _indexed(lookup.table, lookup.keys)
    taken, offsets = list[int | None](), [0]
    for question in questions:
        key = tuple(question.row.values())
        places: Sequence[int | None] = index.get(key, ()) if None not in key else ()
        taken += places or ([None] if lookup.kind == "left" else [])
        offsets.append(len(taken))
    rows = current.rows.take(pa.array(taken, pa.int64()))
    version = pa.repeat(pa.scalar(current.version, pa.string()), len(taken))
    columns = [version if name == VERSION else rows[name].combine_chunks() for name, _ in lookup.columns]
    schema = answer_schema(step)
    fields = list(schema.field("rows").type.value_type)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(columns, fields=fields))
    return pa.table(
        {
            "key": pa.array([question.key for question in questions], schema.field("key").type),
            "time": pa.array([question.timestamp for question in questions], pa.int64()),
            "rows": lists,
            "reason": pa.nulls(len(questions), pa.string()),
        },
        schema=schema,
    )


def _indexed(table: LookupTable, keys: tuple[str, ...]) -> tuple[Current, dict[Key, list[int]]]:
    """The rows that a table has now, and where those of each key are."""
    tables = _tables()
    with tables.lock:
        current = current_of(table, tables.current.get(table))
        tables.current[table] = current
        version, index = tables.indices.get((table, keys), ("", {}))
        if version != current.version:
            rows = defaultdict[Key, list[int]](list)
            for number, key in enumerate(zip(*(current.rows[name].to_pylist() for name in keys), strict=True)):
                rows[key].append(number)
            index = dict(rows)
            tables.indices[table, keys] = (current.version, index)
        return current, index


def current_of(table: LookupTable, known: Current | None) -> Current:
    """(table, its rows as they were known) -> its rows now."""
    where = f"lookup table '{table.name}'"
    if table.path.endswith(FILES):
        content = read(table.path)
        if content is None:
            raise _missing(where, "a file", table.path)
        version, rows = hashlib.sha256(content).hexdigest()[:16], lambda: _of_file(content, table)
    else:
        if not entries.is_table(table.path):
            raise _missing(where, "a Delta table", table.path)
        number = entries.version_of(table.path)
        version, rows = str(number), lambda: _of_version(table, number)
    if known is not None and known.version == version:
        return known
    return Current(version, _as_contract(table, rows, where))


def _missing(where: str, what: str, path: str) -> ConnectorError:
    fix = "Correct the path of the LookupTable, or write the table first."
    return ConnectorError(where, f"{what} at {path}", "none", fix, code="CONNECTOR-290")


def _of_version(table: LookupTable, version: int) -> pa.Table:
    names = list(table.schema.names)
    return DeltaTable(table.path, version=version).to_pyarrow_dataset().to_table(columns=names)


def _of_file(content: bytes, table: LookupTable) -> pa.Table:
    wanted, file = arrow_schema(table.schema), io.BytesIO(content)
    if table.path.endswith(".parquet"):
        return pq.read_table(file, columns=wanted.names)
    if table.path.endswith(".csv"):
        options = pyarrow.csv.ConvertOptions(
            column_types=wanted, include_columns=wanted.names, strings_can_be_null=True, null_values=[""]
        )
        return pyarrow.csv.read_csv(file, convert_options=options)
    options = pyarrow.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
    return pyarrow.json.read_json(file, parse_options=options)


def _as_contract(table: LookupTable, rows: Callable[[], pa.Table], where: str) -> pa.Table:
    """Rows of the columns and types of the contract."""
    wanted = arrow_schema(table.schema)
    try:
        made = rows().select(wanted.names).cast(wanted)
        empty = next((c.name for c in table.schema.columns if not c.nullable and made[c.name].null_count), None)
    except (KeyError, pa.ArrowException) as error:
        got, fix = described(error), "Correct the contract of the LookupTable, or the table."
        raise ConnectorError(where, table.schema.describe(), got, fix, code="CONNECTOR-291") from error
    if empty is not None:
        fix = f"Declare it {empty}: ... | None, or correct the table."
        raise ConnectorError(where, f"a value of '{empty}' in every row", "null", fix, code="CONNECTOR-292")
    return made
