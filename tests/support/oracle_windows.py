"""A slow, obvious answer: one key at a time, one row at a time, by the rules as they are written."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any


def last_row_wins(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], Any]:
    """Changelog -> final values by (keys, end)."""
    final: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        if row["kind"] == 0:
            final[row["key"]] = row["value"]
        elif final.get(row["key"]) == row["value"]:
            del final[row["key"]]
    return final


def aggregate(function: str, values: list[Any]) -> Any:
    """One aggregate over all values of a pane; values may be None."""
    some = [v for v in values if v is not None]
    match function:
        case "count":
            return len(values)
        case "count_values":
            return len(some)
        case "sum":
            return sum(some) if some else None
        case "min":
            return min(some) if some else None
        case "max":
            return max(some) if some else None
        case "mean":
            return statistics.fmean(some) if some else None
        case "stddev":
            return statistics.stdev(some) if len(some) > 1 else None
        case "count_distinct" | "approx_count_distinct":
            return len(set(some))
        case "range":
            return max(some) - min(some) if some else None
    raise AssertionError(function)


def run(
    rows: list[dict[str, Any]],
    ends_of: Callable[[int], list[int]],
    lateness: int,
    functions: list[str],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Counter[int]]:
    """Every pane, every side row, every dropped (row, window) by end.

    Args:
        rows: in arrival order: key, t, v, w (stamp), p (progress), s (sequence), kind.
        ends_of: event time -> ends of its windows, ascending.
        lateness: allowed lateness.
        functions: aggregates over ``v``.
    """
    bags: dict[tuple[Any, int], Counter[Any]] = {}
    waiting: dict[tuple[Any, int], list[dict[str, Any]]] = {}
    panes: list[dict[str, Any]] = []
    side: list[dict[str, Any]] = []
    dropped: Counter[int] = Counter()
    for row in rows:
        ends = ends_of(row["t"])
        for end in ends:
            if end - 1 + lateness <= row["w"]:
                dropped[end] += row["kind"] == 0
            elif end - 1 <= row["w"]:
                waiting.setdefault((row["key"], end), []).append(row)
            else:
                bags.setdefault((row["key"], end), Counter())[row["v"]] += -1 if row["kind"] == -1 else 1
        if ends and all(end - 1 + lateness <= row["w"] for end in ends):
            side.append(row)

    def value(bag: Counter[Any]) -> tuple[Any, ...] | None:
        values = [v for v, n in bag.items() for _ in range(n)]
        return tuple(aggregate(f, values) for f in functions) if values else None

    for key, end in sorted({*bags, *waiting}, key=lambda k: (k[1], str(k[0]))):
        bag = bags.get((key, end), Counter())
        was = value(bag)
        if was is not None:
            panes.append({"key": (key, end), "value": was, "w": end - 2, "kind": 0})
        units: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(waiting.get((key, end), []), key=lambda r: (r["s"], r["kind"])):
            units.setdefault(row["s"], []).append(row)
        for unit in units.values():
            for row in unit:
                bag[row["v"]] += -1 if row["kind"] == -1 else 1
            now = value(bag)
            if now != was:
                stamp = max(row["w"] for row in unit)
                panes += [{"key": (key, end), "value": was, "w": stamp, "kind": -1}] if was is not None else []
                panes += [{"key": (key, end), "value": now, "w": stamp, "kind": 0}] if now is not None else []
            was = now
    return panes, side, dropped
