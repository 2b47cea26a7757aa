"""Profiles of columns on each side, and distances of the two distributions: two passes over each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import duckdb

from floodmark.core.sql import quoted
from floodmark.core.types import Type
from floodmark.lifecycle.comparison import Profile

SHOWN = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Quantiles shown of a column."""
_EDGES = tuple(n / 50 for n in range(1, 50))
_VALUES = 1000
"""Most frequent values compared of a column that holds neither numbers nor instants; all other values count as one."""


def profiled(connection: duckdb.DuckDBPyConnection, rows: str, types: Mapping[str, Type]) -> dict[str, Profile]:
    """Column -> its profile, in one pass over a table.

    Args:
        connection: DuckDB.
        rows: a table or view.
        types: column -> type.
    """
    parts = [part for name, kind in types.items() for part in _aggregates(name, kind)]
    if not parts:
        return {}
    values = iter(connection.sql(f"SELECT {', '.join(parts)} FROM {rows}").fetchall()[0])
    return {name: _profile(kind, values) for name, kind in types.items()}


def _aggregates(name: str, kind: Type) -> list[str]:
    column = quoted(name)
    ordered = kind.is_orderable
    number = as_number(column, kind)
    shares = ", ".join(map(str, sorted({*SHOWN, *_EDGES})))
    return [
        f"count(*) - count({column})",
        f"approx_count_distinct({column})",
        f"min({column})" if ordered else "NULL",
        f"max({column})" if ordered else "NULL",
        f"avg({number})" if kind.is_numeric else "NULL",
        f"stddev_pop({number})" if kind.is_numeric else "NULL",
        f"approx_quantile({number}, [{shares}])" if number is not None else "NULL",
    ]


def _profile(kind: Type, values: Any) -> Profile:
    nulls, distinct, least, greatest, mean, deviation, quantiles = (next(values) for _ in range(7))
    shares = sorted({*SHOWN, *_EDGES})
    return Profile(
        nulls=nulls,
        distinct=distinct,
        least=least,
        greatest=greatest,
        mean=mean,
        deviation=deviation,
        quantiles=dict(zip(shares, quantiles, strict=True))
        if quantiles and (kind.is_numeric or is_instant(kind))
        else None,
    )


def is_instant(kind: Type) -> bool:
    """True if values of the type are instants or days."""
    return kind.name in {"timestamp", "timestamp_ntz", "date"}


def as_number(column: str, kind: Type) -> str | None:
    """SQL for a column as a finite double; None if the type is neither numeric nor of instants."""
    if is_instant(kind):
        return f"epoch_ms({column}::TIMESTAMP)::DOUBLE"
    if not kind.is_numeric:
        return None
    number = f"{column}::DOUBLE"
    return f"CASE WHEN isfinite({number}) THEN {number} END" if kind.is_floating else number


def distances(
    connection: duckdb.DuckDBPyConnection,
    sides: tuple[str, str],
    types: Mapping[str, Type],
    profiles: tuple[Mapping[str, Profile], Mapping[str, Profile]],
) -> dict[str, float | None]:
    """Column -> distance of its two distributions, 0 to 1; None if a side is empty or the type has no distance.

    Numbers and instants have the distance of Kolmogorov, other types that can be grouped the total variation.

    Args:
        connection: DuckDB.
        sides: two tables or views.
        types: column -> type.
        profiles: profiles of both sides.
    """
    by_column: dict[str, float | None] = {}
    ordered = {n: _edges(*(one[n] for one in profiles)) for n, kind in types.items() if as_number(quoted(n), kind)}
    counted = [_histograms(connection, side, ordered, types) for side in sides]
    for name, kind in types.items():
        if name in ordered:
            by_column[name] = kolmogorov(*(one[name] for one in counted))
        elif kind.is_groupable:
            by_column[name] = _variation(connection, sides, name)
        else:
            by_column[name] = None
    return by_column


def _edges(left: Profile, right: Profile) -> list[float]:
    values = {value for one in (left, right) for value in (one.quantiles or {}).values()}
    return sorted(values)


def _histograms(
    connection: duckdb.DuckDBPyConnection, side: str, edges: Mapping[str, Sequence[float]], types: Mapping[str, Type]
) -> dict[str, list[int]]:
    """Column -> rows per bin: a bin up to each edge, and a bin past the last edge."""
    wanted = {name: bounds for name, bounds in edges.items() if bounds}
    if not wanted:
        return {name: [] for name in edges}
    parts = [
        f"histogram({as_number(quoted(name), types[name])}, [{', '.join(map(repr, bounds))}]::DOUBLE[])"
        for name, bounds in wanted.items()
    ]
    row = connection.sql(f"SELECT {', '.join(parts)} FROM {side}").fetchall()[0]
    histograms: dict[str, list[int]] = {name: [] for name in edges}
    for (name, bounds), bins in zip(wanted.items(), row, strict=True):
        counts = {float(edge): int(rows) for edge, rows in (bins or {}).items()}
        behind = sum(rows for edge, rows in counts.items() if edge > bounds[-1])
        histograms[name] = [*(counts.get(float(edge), 0) for edge in bounds), behind]
    return histograms


def kolmogorov(left: Sequence[int], right: Sequence[int]) -> float | None:
    """The greatest distance of two distribution functions at the edges of their bins; None if a side has no rows."""
    if not sum(left) or not sum(right):
        return None
    functions = [[n / sum(side) for n in accumulate(side)] for side in (left, right)]
    return float(max(abs(a - b) for a, b in zip(*functions, strict=True)))


def _variation(connection: duckdb.DuckDBPyConnection, sides: tuple[str, str], name: str) -> float | None:
    """Total variation: half the sum of the differences of the values' shares; None if a side has no rows."""
    column = quoted(name)
    totals, frequent = [], []
    for side in sides:
        (total,) = connection.sql(f"SELECT count(*) FROM {side}").fetchall()[0]
        counted = f"SELECT {column}, count(*) AS rows FROM {side} GROUP BY ALL ORDER BY rows DESC, 1 LIMIT {_VALUES}"
        totals.append(total)
        frequent.append(dict(connection.sql(counted).fetchall()))
    if not all(totals):
        return None
    shares = [{value: rows / total for value, rows in one.items()} for one, total in zip(frequent, totals, strict=True)]
    both = shares[0].keys() | shares[1].keys()
    infrequent = [1 - sum(one.values()) for one in shares]
    return (
        float(
            sum(abs(shares[0].get(v, 0.0) - shares[1].get(v, 0.0)) for v in both) + abs(infrequent[0] - infrequent[1])
        )
        / 2
    )
