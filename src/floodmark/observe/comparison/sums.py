"""Additive sums of a comparison by steps: the share of a cell can be added, and subtracted again when the cell is revised.

A cell's row in the table of windows has the same sums as all steps together, so that comparing a cell again replaces its share. Numbers are summed
up as distances from an origin, so that a subtraction loses few digits. Distributions are rows per bin; the bins are laid out from the first rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import accumulate
from typing import Any

import duckdb

from floodmark.core.sql import quoted
from floodmark.core.types import Type
from floodmark.lifecycle.comparison import ColumnDifference, Counts, Profile
from floodmark.observe.comparison.evidence import drift
from floodmark.observe.comparison.profiles import SHOWN, as_number, is_instant, kolmogorov

_SHARES = 49
"""Quantiles of the first rows that become edges of bins."""
_EVEN = 32
"""Bins of equal width between the least and the greatest of the first rows."""
_OUTWARD, _GROWTH = 60, 1.3
"""Bins beyond each end, and the growth of a bin's distance from the end."""
_HASHES = 512
"""Bins, by hash, of values that are neither numbers nor instants."""


@dataclass(slots=True)
class Held:
    """Sums of one column on one side.

    Args:
        nulls: rows without a value.
        numbers: rows with a finite number.
        total: sum of the numbers' distances from the origin.
        squares: sum of the squares of these distances.
        least: least number ever compared; stays when its row is revised.
        greatest: greatest number ever compared; stays when its row is revised.
        bins: upper edge of a bin -> rows in the bin; hash -> rows for values that are neither numbers nor instants.
    """

    nulls: int = 0
    numbers: int = 0
    total: float = 0.0
    squares: float = 0.0
    least: float | None = None
    greatest: float | None = None
    bins: dict[float, int] = field(default_factory=dict)


@dataclass(slots=True)
class Sums:
    """Sums of one column over pairs of rows.

    Args:
        pairs: pairs of rows.
        within: pairs that differ within the tolerance.
        different: pairs that differ by more.
        shift: sum of right minus left.
        squares: sum of the squares of right minus left.
        most: greatest amount of a difference ever compared; stays when its row is revised.
        cells: cells in which both sides have numbers.
        drift: sum over these cells of the mean on the right minus the mean on the left.
        drift_squares: sum over these cells of the square of that difference.
        left: sums of the left side.
        right: sums of the right side.
    """

    pairs: int = 0
    within: int = 0
    different: int = 0
    shift: float = 0.0
    squares: float = 0.0
    most: float | None = None
    cells: int = 0
    drift: float = 0.0
    drift_squares: float = 0.0
    left: Held = field(default_factory=Held)
    right: Held = field(default_factory=Held)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Sums:
        """(value of ``as_json``) -> the sums."""
        sides = {
            name: Held(**(value[name] | {"bins": {float(edge): rows for edge, rows in value[name]["bins"]}}))
            for name in ("left", "right")
        }
        return Sums(**(dict(value) | sides))

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        value = asdict(self)
        for name in ("left", "right"):
            value[name]["bins"] = sorted(value[name]["bins"].items())
        return value

    def add(self, other: Sums, sign: int) -> None:
        """Add the sums of some cells with sign 1, subtract the sums with sign -1. A subtraction leaves extreme values as they are."""
        _add(self, other, sign, {"most"})
        for mine, others in ((self.left, other.left), (self.right, other.right)):
            _add(mine, others, sign, {"least", "greatest"})
            for edge, rows in others.bins.items():
                mine.bins[edge] = mine.bins.get(edge, 0) + sign * rows
                if not mine.bins[edge]:
                    del mine.bins[edge]
        if sign > 0:
            self.most = _extreme(max, self.most, other.most)
            for mine, others in ((self.left, other.left), (self.right, other.right)):
                mine.least = _extreme(min, mine.least, others.least)
                mine.greatest = _extreme(max, mine.greatest, others.greatest)


def _add(mine: Any, others: Any, sign: int, without: set[str]) -> None:
    for attribute in fields(mine):
        value = getattr(others, attribute.name)
        if isinstance(value, int | float) and attribute.name not in without:
            setattr(mine, attribute.name, getattr(mine, attribute.name) + sign * value)


def _extreme(chosen: Any, own: float | None, other: float | None) -> float | None:
    known = [value for value in (own, other) if value is not None]
    return chosen(known) if known else None


@dataclass(slots=True)
class Layout:
    """The bins in which the numbers of a column are counted, and the origin of its sums.

    Args:
        origin: number from which distances are measured.
        edges: upper edges of the bins, sorted; another bin lies past the last edge. Empty until there is a number.
        scale: mean square of the drifts of the first cells, fixed once there are enough cells and not all drifts are zero; None before.
    """

    origin: float = 0.0
    edges: list[float] = field(default_factory=list)
    scale: float | None = None

    @staticmethod
    def of(connection: duckdb.DuckDBPyConnection, rows: str, name: str, kind: Type) -> Layout:
        """Lay out the bins of a column from its first rows; ``rows`` is a table or query."""
        number = as_number(quoted(name), kind)
        if number is None:
            return Layout()
        shares = ", ".join(str((n + 1) / (_SHARES + 1)) for n in range(_SHARES))
        query = f"SELECT min(x), max(x), approx_quantile(x, [{shares}]) FROM (SELECT {number} AS x FROM {rows})"
        low, high, quantiles = connection.sql(query).fetchall()[0]
        if low is None:
            return Layout()
        span = (high - low) or max(abs(low), 1.0) / 1000
        inner = [*quantiles, *(low + span * n / _EVEN for n in range(_EVEN + 1))]
        outward = [span * (_GROWTH**n - 1) for n in range(1, _OUTWARD + 1)]
        edges = sorted({float(x) for x in (*inner, *(low - x for x in outward), *(high + x for x in outward))})
        return Layout(float(quantiles[_SHARES // 2]), [x for x in edges if math.isfinite(x)])


def held_parts(name: str, kind: Type, layout: Layout) -> dict[str, str]:
    """Field of ``Held`` -> its aggregate in SQL, for one column of a side."""
    column, number = quoted(name), as_number(quoted(name), kind)
    if number is not None and layout.edges:
        away = f"({number} - {layout.origin!r})"
        counted = f"histogram({number}, [{', '.join(map(repr, layout.edges))}]::DOUBLE[])"
    else:
        away = "NULL::DOUBLE"
        counted = (
            f"histogram((hash({column}) % {_HASHES})::DOUBLE)"
            if kind.is_groupable and number is None
            else "NULL::MAP(DOUBLE, UBIGINT)"
        )
    known = f"count({away})"
    return {
        "nulls": f"count(*) - count({column})",
        "numbers": known,
        "total": f"coalesce(sum({away}), 0)",
        "squares": f"coalesce(sum({away} * {away}), 0)",
        "least": f"min({number or 'NULL'})::DOUBLE",
        "greatest": f"max({number or 'NULL'})::DOUBLE",
        "bins": f"list_transform(list_filter(map_entries({counted}), lambda one: one.value > 0), "
        "lambda one: {'edge': one.key, 'rows': one.value::BIGINT})",
    }


_ADDED = ("pairs", "within", "different", "shift", "squares", "cells", "drift", "drift_squares")
_HELD = ("nulls", "numbers", "total", "squares")


def summed(connection: duckdb.DuckDBPyConnection, rows: str) -> tuple[Counts, int, dict[str, Sums]]:
    """(counts, number of cells with differences, column -> its sums) over some rows of the table of windows.

    Args:
        connection: DuckDB.
        rows: a table or view.
    """
    names = ("equal", "within", "different", "only_left", "only_right")
    parts = [f"coalesce(sum({name}), 0)::BIGINT" for name in names]
    query = f"SELECT {', '.join(parts)}, count(*) FILTER (different + only_left + only_right > 0) FROM {rows}"
    *counts, differing = connection.sql(query).fetchall()[0]
    integers = {"pairs", "within", "different", "cells", "nulls", "numbers"}
    parts = [f"sum(c.{n}){'::BIGINT' if n in integers else ''}" for n in _ADDED]
    parts.append("max(c.most)")
    for side in ("left", "right"):
        parts += [f"sum(c.{quoted(side)}.{n}){'::BIGINT' if n in integers else ''}" for n in _HELD]
        parts += [f"min(c.{quoted(side)}.least)", f"max(c.{quoted(side)}.greatest)"]
    by_column = {}
    unnested = f"(SELECT unnest(columns) AS c FROM {rows})"
    for name, *values in connection.sql(
        f"SELECT c.name, {', '.join(parts)} FROM {unnested} GROUP BY c.name"
    ).fetchall():
        remaining = iter(values)
        own = dict(zip((*_ADDED, "most"), remaining, strict=False))
        held = [
            Held(
                **dict(
                    zip((*_HELD, "least", "greatest"), [next(remaining) for _ in range(len(_HELD) + 2)], strict=True)
                )
            )
            for _ in range(2)
        ]
        by_column[name] = Sums(**own, left=held[0], right=held[1])
    for side in ("left", "right"):
        bins = f"SELECT name, b.edge, sum(b.rows)::BIGINT FROM (SELECT c.name AS name, unnest(c.{quoted(side)}.bins) AS b FROM {unnested}) GROUP BY ALL"
        for name, edge, count in connection.sql(bins).fetchall():
            getattr(by_column[name], side).bins[edge] = count
    return Counts(**dict(zip(names, counts, strict=True))), differing, by_column


def plus(counts: Counts, other: Counts, sign: int) -> Counts:
    """Counts plus other counts with sign 1, minus other counts with sign -1."""
    return Counts(**{f.name: getattr(counts, f.name) + sign * getattr(other, f.name) for f in fields(counts)})


def column(name: str, kind: Type, sums: Sums, layout: Layout, level: float) -> ColumnDifference:
    """The difference of a column, in the form of ``compare``.

    Args:
        name: the column.
        kind: type of the column.
        sums: sums over all cells.
        layout: bins and origin of the sums.
        level: probability that the drift's interval ever excludes the true mean.
    """
    numeric = kind.is_numeric and sums.pairs > 0
    return ColumnDifference(
        name=name,
        type=str(kind),
        exact=sums.pairs - sums.within - sums.different,
        within=sums.within,
        different=sums.different,
        left=_profile(kind, sums.left, layout),
        right=_profile(kind, sums.right, layout),
        shift=sums.shift / sums.pairs if numeric else None,
        most=(sums.most or 0.0) if numeric else None,
        distance=_distance(kind, sums, layout),
        drift=drift(sums.cells, sums.drift, sums.drift_squares, layout.scale, level)
        if kind.is_numeric and sums.cells
        else None,
    )


def _profile(kind: Type, held: Held, layout: Layout) -> Profile:
    ordered = (kind.is_numeric or is_instant(kind)) and held.numbers > 0
    if not ordered:
        return Profile(nulls=held.nulls, distinct=None)
    quantiles = _quantiles(held, layout)
    if not kind.is_numeric:
        return Profile(nulls=held.nulls, distinct=None, quantiles=quantiles)
    away = held.total / held.numbers
    return Profile(
        nulls=held.nulls,
        distinct=None,
        least=held.least,
        greatest=held.greatest,
        mean=layout.origin + away,
        deviation=math.sqrt(max(0.0, held.squares / held.numbers - away * away)),
        quantiles=quantiles,
    )


def _quantiles(held: Held, layout: Layout) -> dict[float, float]:
    """Share -> quantile, with values spread evenly within a bin."""
    counts = _dense(held, layout)
    behind = list(accumulate(counts))
    least, greatest = (layout.origin if x is None else x for x in (held.least, held.greatest))
    edges = [least, *(min(max(edge, least), greatest) for edge in layout.edges), greatest]
    quantiles = {}
    for share in SHOWN:
        wanted = share * held.numbers
        bin_number = next((n for n, rows in enumerate(behind) if rows >= wanted and counts[n]), len(counts) - 1)
        part = (wanted - (behind[bin_number] - counts[bin_number])) / counts[bin_number] if counts[bin_number] else 1.0
        low, high = edges[bin_number], edges[bin_number + 1]
        quantiles[share] = low + part * (high - low)
    return quantiles


def _dense(held: Held, layout: Layout) -> list[int]:
    return [*(held.bins.get(edge, 0) for edge in layout.edges), held.bins.get(math.inf, 0)]


def _distance(kind: Type, sums: Sums, layout: Layout) -> float | None:
    if kind.is_numeric or is_instant(kind):
        return kolmogorov(_dense(sums.left, layout), _dense(sums.right, layout))
    left, right = sums.left.bins, sums.right.bins
    totals = sum(left.values()), sum(right.values())
    if not kind.is_groupable or not all(totals):
        return None
    return sum(abs(left.get(v, 0) / totals[0] - right.get(v, 0) / totals[1]) for v in left.keys() | right.keys()) / 2
