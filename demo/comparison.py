"""Comparing two tables row by row: integers, strings and instants bit-equal, floats within 1e-9 relative."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

RELATIVE = 1e-9
"""Floating sums and means depend on the order of addition, which no engine fixes; nothing else has a tolerance."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What comparing two tables gave.

    Args:
        left: name of one.
        right: name of the other.
        rows: of the left one.
        differences: rows missing, rows too many, and rows with another value.
        examples: the first few, in words.
    """

    left: str
    right: str
    rows: int
    differences: int
    examples: tuple[str, ...] = ()


def compare(
    left: pa.Table, right: pa.Table, *, keys: Sequence[str] = (), names: tuple[str, str] = ("left", "right")
) -> Comparison:
    """Compare two tables whatever the order of their rows.

    Args:
        left: one table.
        right: the other; columns may come in another order.
        keys: columns that identify a row, each combination once; without them rows are compared as multisets.
        names: of the two, for the examples.
    """
    wrong = _columns_differ(left.schema, right.schema, names)
    if wrong:
        rows = max(left.num_rows, right.num_rows, 1)
        return Comparison(left=names[0], right=names[1], rows=left.num_rows, differences=rows, examples=wrong)
    columns = left.column_names
    inexact = [field.name for field in left.schema if _inexact(field.type)]
    if _agree(left, right, keys, inexact):
        return Comparison(left=names[0], right=names[1], rows=left.num_rows, differences=0)
    identity = [c for c in columns if c in keys] if keys else [c for c in columns if c not in inexact]
    rest = [c for c in columns if c not in identity]
    here, there = _grouped(left, identity, rest), _grouped(right, identity, rest)
    found = list(_differences(here, there, identity, rest, names, single=bool(keys)))
    return Comparison(
        left=names[0], right=names[1], rows=left.num_rows, differences=len(found), examples=tuple(found[:_SHOWN])
    )


def _agree(left: pa.Table, right: pa.Table, keys: Sequence[str], inexact: Sequence[str]) -> bool:
    """The short way for large tables: True if they agree, sorted. False where they do not, or where the order of rows is not sure."""
    exact = [name for name in left.column_names if name not in inexact]
    identity = list(keys) or exact
    if not set(identity) <= set(exact):
        return False
    if left.num_rows != right.num_rows or any(pa.types.is_nested(field.type) for field in left.schema):
        return False
    if (keys or inexact) and left.group_by(identity).aggregate([]).num_rows != left.num_rows:
        return False
    plain = pa.schema(
        [field.with_type(_plain(field.type)).with_nullable(True).remove_metadata() for field in left.schema]
    )
    order = [(name, "ascending") for name in identity]
    mine, theirs = (table.select(left.column_names).cast(plain).sort_by(order) for table in (left, right))
    same = bool(mine.select(exact).equals(theirs.select(exact)))
    return same and all(_close(mine[name], theirs[name]) for name in inexact)


def _close(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    """Whether floats are equal within the tolerance, one after the other."""
    if not left.is_null().equals(right.is_null()):
        return False
    mine, theirs = (column.drop_null().to_numpy() for column in (left, right))
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        near = abs(mine - theirs) <= RELATIVE * np.maximum(abs(mine), abs(theirs))
    both_infinite = np.isinf(mine) | np.isinf(theirs)
    return bool(np.all((mine == theirs) | (near & ~both_infinite) | (np.isnan(mine) & np.isnan(theirs))))


def _columns_differ(left: pa.Schema, right: pa.Schema, names: tuple[str, str]) -> tuple[str, ...]:
    mine, theirs = ({field.name: _plain(field.type) for field in schema} for schema in (left, right))
    return tuple(
        f"column {name}: {names[0]} {mine.get(name, 'has none')}, {names[1]} {theirs.get(name, 'has none')}"
        for name in sorted(mine.keys() | theirs.keys())
        if mine.get(name) != theirs.get(name)
    )


def _inexact(kind: pa.DataType) -> bool:
    """Whether there are floats in it."""
    fields = (kind.field(i).type for i in range(kind.num_fields)) if pa.types.is_nested(kind) else ()
    return pa.types.is_floating(kind) or any(map(_inexact, fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Large and small strings hold the same values, in lists too."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


Rows = dict[tuple[Any, ...], list[tuple[Any, ...]]]


def _grouped(table: pa.Table, identity: Sequence[str], rest: Sequence[str]) -> Rows:
    groups: Rows = {}
    count = table.num_rows
    firsts, seconds = (_tuples(table, columns, count) for columns in (identity, rest))
    for first, second in zip(firsts, seconds, strict=True):
        groups.setdefault(first, []).append(second)
    return groups


def _tuples(table: pa.Table, columns: Sequence[str], count: int) -> Iterator[tuple[Any, ...]]:
    if not columns:
        return iter([()] * count)
    return zip(*(_values(table[column]) for column in columns), strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python values; instants as their number, which is exact and twenty times as fast."""
    kind = column.type
    values = (column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column).to_pylist()
    return [_frozen(value) for value in values] if pa.types.is_nested(kind) else list(values)


def _frozen(value: Any) -> Any:
    """A list, a struct or a map as something that can be counted; entries of structs and maps by their names."""
    if isinstance(value, dict):
        return tuple(sorted((name, _frozen(one)) for name, one in value.items()))
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _differences(
    here: Rows, there: Rows, identity: Sequence[str], rest: Sequence[str], names: tuple[str, str], *, single: bool
) -> Iterator[str]:
    for key in here.keys() | there.keys():
        mine, theirs = sorted(here.get(key, ()), key=_order), sorted(there.get(key, ()), key=_order)
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(identity, key, strict=True))
        for side, rows in zip(names, (mine, theirs), strict=True):
            if single and len(rows) > 1:
                yield f"{shown}: {len(rows)} rows of this key in {side}"
        for a, b in zip_longest(mine, theirs):
            if a is None or b is None:
                yield f"{shown}: only in {names[0] if b is None else names[1]}"
            elif not all(map(_equal, a, b)):
                yield "; ".join(
                    f"{shown}: {name} is {x!r} in {names[0]}, {y!r} in {names[1]}"
                    for name, x, y in zip(rest, a, b, strict=True)
                    if not _equal(x, y)
                )


def _order(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is None, repr(value) if isinstance(value, tuple) else value or 0) for value in row]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=RELATIVE, abs_tol=0.0)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return type(a) is type(b) and bool(a == b)
