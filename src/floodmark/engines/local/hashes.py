"""Spark's ``xxhash64`` over Arrow columns, as functions of DuckDB. Source: XXH64 by Yann Collet, as Spark's ``XXH64.java`` applies it."""

from __future__ import annotations

from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import ARROW

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_ALL = (1 << 64) - 1
_LONG, _INT, _STRIPE = 8, 4, 32


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Define ``spark_hash_long``, ``..._int``, ``..._double`` and ``..._bytes``: (value, seed) -> hash."""
    functions = (
        ("long", _longs, "BIGINT"),
        ("int", _ints, "INTEGER"),
        ("double", _doubles, "DOUBLE"),
        ("bytes", _texts, "BLOB"),
    )
    for name, function, kind in functions:
        connection.create_function(f"spark_hash_{name}", function, [kind, "BIGINT"], "BIGINT", type=ARROW)


def _longs(values: pa.Array, seeds: pa.Array) -> pa.Array:
    number = _numpy(values)
    state = _numpy(seeds) + np.uint64(_P5 + _LONG)
    state = state ^ (_rotated(number * np.uint64(_P2), 31) * np.uint64(_P1))
    return _mixed(_rotated(state, 27) * np.uint64(_P1) + np.uint64(_P4))


def _doubles(values: pa.Array, seeds: pa.Array) -> pa.Array:
    number = np.asarray(values) + 0.0  # -0.0 is 0.0
    return _longs(pa.array(np.where(np.isnan(number), np.nan, number).view(np.int64)), seeds)


def _ints(values: pa.Array, seeds: pa.Array) -> pa.Array:
    number = _numpy(values) & np.uint64(0xFFFFFFFF)
    state = _numpy(seeds) + np.uint64(_P5 + _INT)
    state = state ^ (number * np.uint64(_P1))
    return _mixed(_rotated(state, 23) * np.uint64(_P2) + np.uint64(_P3))


def _texts(values: pa.Array, seeds: pa.Array) -> pa.Array:
    pairs = zip(values.to_pylist(), seeds.to_pylist(), strict=True)
    return pa.array([hash_bytes(value, seed) for value, seed in pairs], pa.int64())


def _numpy(column: pa.Array) -> np.ndarray:
    return np.asarray(column).astype(np.int64).view(np.uint64)


def _rotated(number: np.ndarray, bits: int) -> np.ndarray:
    return (number << np.uint64(bits)) | (number >> np.uint64(64 - bits))


def _mixed(state: np.ndarray) -> pa.Array:
    for shift, prime in ((33, _P2), (29, _P3)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(prime)
    return pa.array((state ^ (state >> np.uint64(32))).view(np.int64))


def _rotate(number: int, bits: int) -> int:
    return ((number << bits) | (number >> (64 - bits))) & _ALL


def _round(state: int, number: int) -> int:
    return _rotate((state + number * _P2) & _ALL, 31) * _P1 & _ALL


@lru_cache(maxsize=65_536)
def hash_bytes(value: bytes, seed: int) -> int:
    """XXH64 of bytes, as a signed number."""
    seed &= _ALL
    length, position = len(value), 0
    state = (seed + _P5) & _ALL
    if length >= _STRIPE:
        lanes = [(seed + _P1 + _P2) & _ALL, (seed + _P2) & _ALL, seed, (seed - _P1) & _ALL]
        while position + _STRIPE <= length:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(value[position : position + _LONG], "little"))
                position += _LONG
        state = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _ALL
    state = (state + length) & _ALL
    while position + _LONG <= length:
        state ^= _round(0, int.from_bytes(value[position : position + _LONG], "little"))
        state, position = (_rotate(state, 27) * _P1 + _P4) & _ALL, position + _LONG
    if position + _INT <= length:
        state ^= int.from_bytes(value[position : position + _INT], "little") * _P1 & _ALL
        state, position = (_rotate(state, 23) * _P2 + _P3) & _ALL, position + _INT
    for byte in value[position:]:
        state = _rotate(state ^ (byte * _P5 & _ALL), 11) * _P1 & _ALL
    for shift, prime in ((33, _P2), (29, _P3)):
        state = (state ^ (state >> shift)) * prime & _ALL
    state ^= state >> 32
    return state - (1 << 64) if state >> 63 else state
