"""Every aggregate of some values in every form that needs no Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from floodmark.core.errors import ExecutionError
from floodmark.semantics.aggregates.accumulators import Accumulators, Measure, Value
from floodmark.semantics.aggregates.table import TABLE, fold, needs_bag
from floodmark.semantics.encoding.columns import arrow_type, decode, encode
from floodmark.spec.windowing.aggregates import LAWS, Builtin, Percentile, total_type
from tests.support.oracle_aggregates import SHARES

NOTHING = "no row"


def accepts(function: str, kind: str) -> bool:
    """Whether the aggregate is defined for the type."""
    numeric = kind in {"tinyint", "int", "bigint", "float", "double"} or kind.startswith("decimal")
    match LAWS[function].accepts:
        case "number":
            return numeric
        case "ordered":
            return kind != "binary"
        case _:
            return True


def declared(function: str, expression: str = "v", by: str | None = "v") -> Builtin:
    """The aggregate over an expression, with settings that tests have in common."""
    n = 2 if function == "top_n" else None
    if function in SHARES:
        return Percentile(function, expression, fraction=SHARES[function])
    return Builtin(function, expression, by if function.endswith("_by") else None, n)


def forms(function: str, kind: str, values: Sequence[Any], cuts: Sequence[int] = ()) -> Iterator[tuple[str, Any]]:
    """(name of the form, its answer), with ``cuts`` as further places to cut at."""
    one = fold("a", declared(function), kind)
    middle = len(values) // 2
    rows = {
        "by row": [],
        "by row, joined": [middle],
        "by row, joined often": range(1, len(values)),
        "by row, cut": cuts,
    }
    for name, places in rows.items():
        yield name, _by_row(one, kind, values, places)
    if LAWS[function].in_order:
        return
    columns = {"Arrow": [], "one cut": [middle], "n cuts": range(1, len(values)), "cut": cuts}
    for name, places in columns.items():
        yield name, _in_columns(function, kind, values, places, revisable=False)
    yield "revised", _in_columns(function, kind, values, [middle], revisable=True)


def _by_row(one: Any, kind: str, values: Sequence[Any], places: Sequence[int]) -> Any:
    state = one.create()
    try:
        for part in _pieces(pa.array(values, arrow_type(kind)).to_pylist(), places):
            piece = one.create()
            for value in part:
                piece = one.add(piece, value, value)
            state = one.merge(state, piece)
        return one.result(state)
    except ExecutionError as error:
        return error.code


def _in_columns(function: str, kind: str, values: Sequence[Any], places: Sequence[int], *, revisable: bool) -> Any:
    """Among other keys, whose values are the same twice; ``revisable``: some values come and are taken back."""
    aggregate = declared(function)
    value = Value("v", kind, needs_bag(aggregate, kind, revisable=revisable), function == "approx_count_distinct")
    result = {"value": kind, "array": f"array<{kind}>", "total": total_type(kind)}.get(
        LAWS[function].result, LAWS[function].result
    )
    adding = Accumulators((value,), (Measure("a", aggregate, 0, result),), revisable, ("k",))
    parts = []
    for piece in _pieces(list(values), places):
        table = pa.table(
            {
                "k0": pa.array(["this"] * len(piece), pa.string()),
                "v0": pa.array(piece, arrow_type(kind)),
                "sign": pa.array([1] * len(piece), pa.int64()),
            }
        )
        if revisable:
            back = pa.array([1, -1] * len(piece), pa.int64())
            twice = table.take(pa.array(sorted([*range(len(piece))] * 2), pa.int64())).set_column(2, "sign", back)
            table = pa.concat_tables([table, twice])
        parts.append(adding.partials(table, ["k0"]))
    try:
        results = adding.finish(decode(encode(adding.merge(parts, ["k0"]))), ["k0"]).to_pylist()
    except ExecutionError as error:
        return error.code if "key k=this" in error.where else f"{error.code} without its key"
    return results[0]["r0"] if results else NOTHING


def _pieces(values: list[Any], places: Sequence[int]) -> list[list[Any]]:
    bounds = [0, *sorted({p for p in places if 0 < p < len(values)}), len(values)]
    return [values[a:b] for a, b in itertools.pairwise(bounds)]


FUNCTIONS = tuple(TABLE)
