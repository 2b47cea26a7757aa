"""The sketch of ``approx_count_distinct``: the smallest hashes of the values, the same hash for one value and for a column of them.

A value's canonical form is a sequence of 64-bit words: integers, booleans, dates (days) and instants (microseconds) one word, floats the
bits of the double, decimals two words of the unscaled number, strings and bytes their length and their bytes.
Source: Bar-Yossef et al., "Counting distinct elements in a data stream", 2002; the mixing is splitmix64 (Steele, Lea, Flood, 2014).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodmark.core.types import parse
from floodmark.semantics.aggregates.numbers import WIDE, normal

KEPT_HASHES = 4096
"""Number of smallest hashes that ``approx_count_distinct`` uses; the standard error is about 1 / sqrt(KEPT_HASHES)."""

_MASK = (1 << 64) - 1
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 8
_EPOCH, _DAY_0, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1), timedelta(microseconds=1)

Words = npt.NDArray[np.uint64]


def hash_of(value: Any, kind: str) -> int:
    """The hash of one value of a Spark SQL type, in [-2^63, 2^63)."""
    state = 0
    for word in _words(value, kind):
        state = _mixed(state ^ word)
    return state - (1 << 63)


def _words(value: Any, kind: str) -> Iterator[int]:
    match value:
        case str() | bytes():
            data = value.encode() if isinstance(value, str) else value
            yield len(data)
            for start in range(0, len(data), _WORD):
                yield int.from_bytes(data[start : start + _WORD], "little")
        case float():
            yield struct.unpack("<Q", struct.pack("<d", math.nan if math.isnan(value) else value + 0.0))[0]
        case Decimal():
            unscaled = int(value.scaleb(parse(kind).scale, WIDE)) & ((1 << 128) - 1)
            yield from (unscaled & _MASK, unscaled >> 64)
        case datetime():
            yield ((value - _EPOCH) // _MICROSECOND) & _MASK
        case date():
            yield (value - _DAY_0).days & _MASK
        case _:
            yield int(value) & _MASK


def _mixed(word: int) -> int:
    word = (word + _GOLDEN) & _MASK
    for shift, factor in _STEPS:
        word = ((word ^ (word >> shift)) * factor) & _MASK
    return word ^ (word >> 31)


def hashes_of(column: pa.ChunkedArray) -> pa.Array:
    """``hash_of`` of every value of a column without nulls, bigint."""
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    state = np.zeros(len(values), dtype=np.uint64)
    if len(values):
        state = _hashed_texts(values) if _is_text(values.type) else _hashed(_columns_of_words(values))
    return pa.array((state ^ np.uint64(1 << 63)).view(np.int64))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _columns_of_words(values: pa.Array) -> list[Words]:
    kind = values.type
    if pa.types.is_decimal(kind):
        start = values.offset * 2
        words = np.frombuffer(values.buffers()[1], dtype=np.uint64)[start : start + 2 * len(values)]
        return [words[0::2], words[1::2]]
    if pa.types.is_floating(kind):
        doubles = normal(pa.chunked_array([values.cast(pa.float64())])).to_numpy()
        return [np.ascontiguousarray(doubles).view(np.uint64)]
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    return [np.ascontiguousarray(values.cast(pa.int64()).to_numpy(zero_copy_only=False)).view(np.uint64)]


def _hashed(columns: Iterable[Words]) -> Words:
    state: Any = np.uint64(0)
    for words in columns:
        state = _mixed_words(state ^ words)
    return np.asarray(state, dtype=np.uint64)


def _hashed_texts(values: pa.Array) -> Words:
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    offsets = offsets.astype(np.int64)
    buffer = values.buffers()[2]
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer is not None else np.zeros(0, dtype=np.uint8)
    data = np.concatenate((data, np.zeros(_WORD, dtype=np.uint8)))
    sizes = np.diff(offsets)
    state = _mixed_words(sizes.astype(np.uint64))
    for start in range(0, int(sizes.max()), _WORD):
        active = np.flatnonzero(sizes > start)
        places = (offsets[:-1][active] + start)[:, None] + np.arange(_WORD)
        present = np.arange(_WORD)[None, :] < (sizes[active] - start)[:, None]
        words = np.where(present, data[places], 0).astype(np.uint8)
        state[active] = _mixed_words(state[active] ^ words.view("<u8")[:, 0])
    return state


def _mixed_words(words: Words) -> Words:
    with np.errstate(over="ignore"):
        words = words + np.uint64(_GOLDEN)
        for shift, factor in _STEPS:
            words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
        return words ^ (words >> np.uint64(31))


def estimate(count: int, last: int) -> int:
    """K minimum values: ``count`` if there are at most KEPT_HASHES hashes, else (k - 1) / the k-th smallest hash, as a share of all hashes."""
    if count <= KEPT_HASHES:
        return count
    return math.floor((KEPT_HASHES - 1) / ((last + (1 << 63) + 1) / 2**64) + 0.5)


# ---- by row


def sketch_add(hashes: set[int], number: int) -> set[int]:
    """Add a hash; the set never has more than 2 * KEPT_HASHES."""
    hashes.add(number)
    return _trimmed(hashes) if len(hashes) > 2 * KEPT_HASHES else hashes


def sketch_merge(left: set[int], right: set[int]) -> set[int]:
    """The hashes of both."""
    return _trimmed(left | right)


def sketch_count(hashes: set[int]) -> int:
    """The number of different values."""
    smallest = sorted(hashes)
    return estimate(len(smallest), smallest[KEPT_HASHES - 1] if len(smallest) > KEPT_HASHES else 0)


def _trimmed(hashes: set[int]) -> set[int]:
    return hashes if len(hashes) <= KEPT_HASHES + 1 else set(sorted(hashes)[: KEPT_HASHES + 1])
