"""Arithmetic the forms of aggregates share: one order of numbers, exact totals, deviations that can be merged, the error of an overflow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import ExecutionError
from floodmark.core.types import MAX_DIGITS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WIDE = Context(prec=100)
"""Decimals add up without rounding: 38 digits, and 62 more for how many there are."""

_HALF = 32
_LOW = (1 << _HALF) - 1
_FLOOR = 2.0**-50


# ---- order: NaN is the greatest number, and -0.0 is 0.0


def order(value: Any) -> tuple[bool, Any]:
    """Sorts NaN behind all numbers, as Spark SQL does."""
    return (True, 0.0) if isinstance(value, float) and math.isnan(value) else (False, value)


def normal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with one NaN and one zero; other columns as they are."""
    if not pa.types.is_floating(column.type):
        return column
    zero, nan = (pa.scalar(v, column.type) for v in (0.0, math.nan))
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))


def ranks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Normal floats -> integers of the same order; other columns as they are. Source: IEEE 754 totalOrder."""
    whole = {8: pa.int64(), 4: pa.int32()}
    if not pa.types.is_floating(column.type):
        return column
    kind = whole[column.type.byte_width]
    return pa.chunked_array([_flipped(chunk.view(kind)) for chunk in column.chunks], kind)


def unranked(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The floats of ``ranks``."""
    if not pa.types.is_floating(kind):
        return column
    return pa.chunked_array([_flipped(chunk).view(kind) for chunk in column.chunks], kind)


def has_ranks(kind: pa.DataType) -> bool:
    """Whether Arrow sorts values of a type as Python does."""
    known = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal128,
        pa.types.is_string,
        pa.types.is_timestamp,
        pa.types.is_date32,
    )
    return any(is_kind(kind) for is_kind in known)


def dense(column: pa.Array) -> Ints:
    """The place of each value among the different ones in their order; -1 for null."""
    encoded = normal(pa.chunked_array([column])).combine_chunks().dictionary_encode()
    places = np.full(len(encoded.dictionary) + 1, -1, np.int64)
    places[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    return places[pc.fill_null(encoded.indices, -1).to_numpy()]  # type: ignore[no-any-return]


def row_codes(columns: Sequence[pa.ChunkedArray], codes: Ints) -> Ints:
    """(columns, a number for each row) -> numbers from 0 on: the same for rows of one number and equal values. Null is a value, and so is -0.0."""
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode()
        places = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64) + 1
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + places, return_inverse=True)
    return codes


def _flipped(bits: pa.Array) -> pa.Array:
    """Negative numbers sort the other way round; doing this twice changes nothing."""
    turn, stay = (pa.scalar(mask, bits.type) for mask in ((1 << (bits.type.bit_width - 1)) - 1, 0))
    return pc.bit_wise_xor(bits, pc.if_else(pc.less(bits, 0), turn, stay))


# ---- totals of integers, as two halves: high * 2^32 + low; 2^31 rows cannot overflow either


def halves(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """(high, low), low in [0, 2^32)."""
    return pc.shift_right(column, _HALF), pc.bit_wise_and(column, _LOW)


def carried(high: pa.ChunkedArray, low: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Sums of halves, with what is too much for the low half added to the high one."""
    over, low = halves(low)
    return pc.add(high, over), low


def whole_fits(high: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where carried halves make a bigint."""
    edge = 1 << (_HALF - 1)
    return pc.and_(pc.greater_equal(high, -edge), pc.less(high, edge))


def whole(high: pa.ChunkedArray, low: pa.ChunkedArray) -> pa.ChunkedArray:
    """The bigint of carried halves that fit."""
    return pc.add(pc.multiply(high, 1 << _HALF), low)


def whole_as_double(high: pa.ChunkedArray, low: pa.ChunkedArray) -> pa.ChunkedArray:
    """The double next to the total of carried halves, whether or not it fits bigint."""
    return pc.add(pc.multiply(high.cast(pa.float64()), float(1 << _HALF)), low.cast(pa.float64()))


def decimal_fits(total: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where a total has 38 digits or fewer."""
    kind = total.type
    above = Decimal(10 ** (MAX_DIGITS - kind.scale))
    top, bottom = (pa.scalar(edge, pa.decimal256(76, kind.scale)) for edge in (above, above.copy_negate()))
    return pc.and_(pc.less(total, top), pc.greater(total, bottom))


def fits(total: Any, scale: int | None) -> bool:
    """Whether one exact total fits bigint (``scale`` None) or ``decimal(38, scale)``."""
    if scale is None:
        return bool(-(1 << 63) <= total < 1 << 63)
    return bool(total.copy_abs() < Decimal(10).scaleb(MAX_DIGITS - 1 - scale, WIDE))


# ---- an overflow


def overflow(name: str, sql: str, kind: str, key: str = "") -> ExecutionError:
    """The error of a total that does not fit.

    Args:
        name: of the aggregate's column.
        sql: its expression.
        kind: type of the total.
        key: as ``key_text`` writes it; empty until it is known.
    """
    wider = "decimal(38,0)" if kind == "bigint" else "double"
    where = f"sum '{name}' of '{sql}'" + (f" of key {key}" if key else "")
    return ExecutionError(
        where,
        f"a total that fits {kind}",
        "an overflow",
        f'Widen it: sum("CAST({sql} AS {wider})").',
        code="EXECUTION-001",
    )


def key_text(key: Mapping[str, Any]) -> str:
    """``origin=JFK, day=1``."""
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in key.items())


@contextmanager
def of_key(key: Mapping[str, Any]) -> Iterator[None]:
    """Names the key in an overflow."""
    try:
        yield
    except ExecutionError as error:
        if error.code != "EXECUTION-001" or not key:
            raise
        where = f"{error.where} of key {key_text(key)}"
        raise ExecutionError(where, error.expected, error.got, error.fix, code=error.code) from None


# ---- deviations: count, mean, what the rounded mean lacks, sum of squared deviations

Spread = tuple[int, float, float, float]


def spread_add(state: Spread, value: float) -> Spread:
    """One value more. Source: Welford, 1962, with the mean in twice the digits, as its rounding would show where values are close."""
    count, mean, residue, squares = state
    distance = (value - mean) - residue
    count += 1
    mean, residue = _two_sum(mean, residue + distance / count)
    return count, mean, residue, squares + distance * ((value - mean) - residue)


def spread_merge(left: Spread, right: Spread) -> Spread:
    """Both. Source: Chan, Golub, LeVeque, 1979."""
    if not left[0] or not right[0]:
        return left if left[0] else right
    count = left[0] + right[0]
    distance = (right[1] - left[1]) + (right[2] - left[2])
    mean, residue = _two_sum(left[1], left[2] + distance * right[0] / count)
    return count, mean, residue, left[3] + right[3] + distance * distance * left[0] * right[0] / count


def _two_sum(a: float, b: float) -> tuple[float, float]:
    """A sum and its rounding error. Source: Knuth, TAOCP 2, 4.2.2."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def spread_groups(ids: Ints, size: int, count: Floats, mean: Floats, residue: Floats, squares: Floats) -> list[Floats]:
    """(mean, residue, squares) per group of parts; a single value is a part of count 1.

    Every part is measured from one number near the mean of its group, so that close values lose no digits.
    """
    total = _summed(ids, count, size)
    some = np.maximum(total, 1.0)
    with np.errstate(all="ignore"):
        anchor = _summed(ids, mean * (count / some[ids]), size)
        distance = (mean - anchor[ids]) + residue
        first = _summed(ids, count * distance, size)
        second = _summed(ids, squares + count * distance * distance, size)
        shift = first / some
        around = second - first * shift
        around = np.where(around <= _FLOOR * second, 0.0, around)  # equal values, but for rounding
    return [anchor, shift, around]


def _summed(ids: Ints, values: Floats, size: int) -> Floats:
    return np.bincount(ids, values, size).astype(np.float64, copy=False)
