"""Aggregates by the rules as they are written, with fractions: nothing here is the library's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

SHARES = {"percentile": 0.9, "percentile_disc": 0.3}
"""Share of each percentile that tests take."""
_ADDED = {"sum", "mean", "sum_distinct", "mean_distinct"}
OVERFLOW = "EXECUTION-001"

_WIDE = Context(prec=400)


def answer(function: str, kind: str, values: Sequence[Any], n: int = 2) -> Any:  # noqa: PLR0912 - one case each
    """One aggregate over the values of a group in order of arrival; ``min_by`` and ``max_by`` are by the value itself."""
    values = [v + 0.0 if isinstance(v, float) else v for v in values]
    some = sorted((v for v in values if v is not None), key=rank)
    match function:
        case "count":
            return len(some)
        case "sum":
            return _total(kind, some)
        case "mean":
            return _divided(some, len(some)) if some else None
        case "stddev":
            return _deviation(some) if len(some) > 1 else None
        case "min" | "min_by":
            return some[0] if some else None
        case "max" | "max_by":
            return some[-1] if some else None
        case "count_distinct" | "approx_count_distinct":
            return len(_different(some))
        case "distinct":
            return _different(some)
        case "sum_distinct":
            return _total(kind, _different(some))
        case "mean_distinct":
            return _divided(_different(some), len(_different(some))) if some else None
        case "top_n":
            return some[::-1][:n]
        case "median":
            middle = [float(v) for v in (some[(len(some) - 1) // 2], some[len(some) // 2])] if some else []
            return _divided(middle, 2) if middle else None
        case "percentile":
            return _on_the_line(some, SHARES[function]) if some else None
        case "percentile_disc":
            return next(v for i, v in enumerate(some) if i + 1 >= SHARES[function] * len(some)) if some else None
        case "mode":
            times = [sum(rank(v) == rank(other) for other in some) for v in some]
            return some[times.index(max(times))] if some else None
        case "first":
            return values[0] if values else None
        case "last":
            return values[-1] if values else None
        case "collect":
            return [v for v in values if v is not None]
    raise AssertionError(function)


def _on_the_line(some: Sequence[Any], share: float) -> float:
    """By DuckDB's and Spark's definition of PERCENTILE_CONT, with fractions."""
    position = share * (len(some) - 1)
    lower, upper = float(some[math.floor(position)]), float(some[math.ceil(position)])
    if lower == upper or position == int(position) or not (math.isfinite(lower) and math.isfinite(upper)):
        return lower if lower == upper or position == int(position) else lower * 0.5 + upper * 0.5
    part = Fraction(position) - math.floor(position)
    return float((1 - part) * Fraction(lower) + part * Fraction(upper))


def rank(value: Any) -> tuple[bool, Any]:
    """NaN is the greatest."""
    nan = isinstance(value, float) and math.isnan(value)
    return nan, 0 if nan else value


def same(left: Any, right: Any, scale: float = 0.0) -> bool:
    """Equal; floats within 1e-9 of the greater, or of ``scale``."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right) or math.isinf(left) or math.isinf(right):
            return left == right or (math.isnan(left) and math.isnan(right))
        return abs(left - right) <= 1e-9 * max(abs(left), abs(right), scale) and (
            left != 0 or right != 0 or repr(left) == repr(right)
        )
    return type(left) is type(right) and bool(left == right)


def tolerance(function: str, values: Sequence[Any]) -> float:
    """What 1e-9 of is allowed for floating sums and means: the sum of magnitudes, or the mean of them."""
    sizes = [abs(float(v)) for v in values if v is not None and math.isfinite(v)] if function in _ADDED else []
    return sum(sizes) / (len(sizes) if function.startswith("mean") and sizes else 1)


def _different(ordered: Sequence[Any]) -> list[Any]:
    return [v for i, v in enumerate(ordered) if i == 0 or rank(v) != rank(ordered[i - 1])]


def _total(kind: str, some: Sequence[Any]) -> Any:
    if not some:
        return None
    if kind in {"float", "double"}:
        return _divided(some, 1)
    total = sum(map(Fraction, some))
    if kind.startswith("decimal"):
        units = total * 10 ** int(kind[:-1].split(",")[1])
        return OVERFLOW if abs(units) >= 10**38 else Decimal(int(units)).scaleb(-int(kind[:-1].split(",")[1]), _WIDE)
    return int(total) if -(2**63) <= total < 2**63 else OVERFLOW


def _divided(some: Sequence[Any], by: int) -> float:
    if not all(math.isfinite(v) for v in some):
        return sum(float(v) for v in some if not math.isfinite(v))
    return float(sum(map(Fraction, some)) / by)


def _deviation(some: Sequence[Any]) -> float:
    if not all(math.isfinite(v) for v in some):
        return math.nan
    exact = [Fraction(float(v)) for v in some]
    mean = sum(exact) / len(exact)
    variance = sum((v - mean) ** 2 for v in exact) / (len(exact) - 1)
    return float(_WIDE.sqrt(_WIDE.divide(Decimal(variance.numerator), Decimal(variance.denominator))))
