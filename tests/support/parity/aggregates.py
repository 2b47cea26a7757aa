"""Aggregates and keys in SQL, as the bounded path writes them: what Spark answers, and whether Sail says the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from parity.outcome import Outcome, alike
from parity.sail_side import column, kind_of
from parity.values import VALUES

from floodmark.core.types import parse
from floodmark.engines.embedded.parity.aggregates import KEY, written
from floodmark.semantics.aggregates.table import sql_of
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.schema import Column, Schema
from floodmark.spec.windowing import aggregates as declared
from floodmark.spec.windowing.aggregates import LAWS, Builtin, Percentile

KINDS = (*(kind for kind in VALUES if not kind.startswith("array<array")), "decimal(28,6)")
FAILS = "'too large'"


def values(kind: str) -> list[Any]:
    """The odd values of a type."""
    return VALUES["decimal(12,3)"] if kind == "decimal(28,6)" else VALUES[kind]


def groups(kind: str) -> list[list[Any]]:
    """Groups of values: none but nulls, one, two alike, few, many, the largest with each other."""
    some = values(kind)
    real = [value for value in some if value is not None]
    pairs = [[a, b] for a, b in itertools.pairwise(real)]
    largest = [[value] * 3 for value in real]
    return [[None], [None, None], *([v] for v in real), *pairs, *largest, some, some[:4], [*real[:5], None], real[-4:]]


def file_of(kind: str) -> str:
    """The file of the groups of a type."""
    return f"groups_{KINDS.index(kind)}.parquet"


def write(folder: Path, kind: str) -> None:
    """The groups as rows: the number of the group and a value."""
    numbered = [(number, value) for number, group in enumerate(groups(kind)) for value in group]
    schema = pa.schema([pa.field("g", pa.int64()), *arrow_schema(Schema((Column(name="v", type=kind),)))])
    columns = {"g": [g for g, _ in numbered], "v": [v for _, v in numbered]}
    pq.write_table(pa.table(columns, schema), folder / file_of(kind))


def asked() -> Iterator[tuple[str, str, str, str]]:
    """(function, type, SQL over ``v`` for Spark, and for Sail) of every aggregate that has a form in SQL."""
    for kind in KINDS:
        for function in LAWS:
            by, n = "v" if function.endswith("_by") else None, 1 if function == "top_n" else None
            aggregate = (Percentile if function.startswith("percentile") else Builtin)(function, "v", by, n)
            if not accepts(function, kind):
                continue
            sql, other = sql_of(aggregate, "v", kind, FAILS), written(aggregate, "v", kind, FAILS)
            if sql is not None and other is not None:
                yield function, kind, sql, other


def accepts(function: str, kind: str) -> bool:
    """Whether an aggregate works on a type."""
    schema = Schema((Column(name="v", type=kind),))
    try:
        declared._check_builtin(Builtin(function, "v"), kind, schema, "parity")
    except declared.DefinitionError:
        return False
    return True


Answer = list[pa.Table | str]
"""Of the whole query; if that fails, then of each group alone."""


def queries(folder: Path, *, sail: bool) -> Iterator[tuple[tuple[str, str], str, list[str]]]:
    """((function, type), SQL of the aggregate, queries: over all groups, then over each)."""
    for function, kind, spark, other in asked():
        sql = other if sail else spark
        rows = f"parquet.`{folder / file_of(kind)}`"
        form = f"SELECT g, {sql} AS x FROM (SELECT g, {_plain(kind)} AS v FROM {{}}) GROUP BY g ORDER BY g"
        alone = [form.format(f"(SELECT * FROM {rows} WHERE g = {group})") for group in range(len(groups(kind)))]
        yield (function, kind), sql, [form.format(rows), *alone]
    for kind in KINDS:
        if parse(kind).is_groupable:
            sql = f"SELECT count(1) AS g, {_plain(kind)} AS x FROM parquet.`{folder / file_of(kind)}` GROUP BY 2 ORDER BY 2, 1"
            yield (KEY, kind), "GROUP BY v", [sql]


def answers(ask: Callable[[str], pa.Table], folder: Path, *, sail: bool) -> dict[tuple[str, str], Answer]:
    """(function, type) -> what an engine answers; ``group by`` stands for values as keys."""
    found: dict[tuple[str, str], Answer] = {}
    for name, _, (whole, *alone) in queries(folder, sail=sail):
        first = _rows(ask, whole)
        found[name] = [first] if isinstance(first, pa.Table) else [first, *(_rows(ask, one) for one in alone)]
    return found


def compared(
    spark: Mapping[tuple[str, str], Answer], sail: Mapping[tuple[str, str], Answer], folder: Path
) -> dict[tuple[str, str], Outcome]:
    """(function, type) -> outcome."""
    return {name: replace(_outcome(spark[name], sail[name]), sql=sql) for name, sql, _ in queries(folder, sail=True)}


def _outcome(expected: Answer, actual: Answer) -> Outcome:
    if len(expected) != len(actual):
        return Outcome("differs", _shown(expected[0]), _shown(actual[0]))
    outcomes = [_whole(one, other) for one, other in zip(expected, actual, strict=True)]
    ranked = sorted(outcomes, key=lambda outcome: ("same", "close", "differs").index(outcome.verdict))
    return ranked[-1]


def _whole(expected: pa.Table | str, actual: pa.Table | str) -> Outcome:
    if isinstance(expected, str) or isinstance(actual, str):
        alike_ = isinstance(expected, str) and isinstance(actual, str)
        return Outcome("same" if alike_ else "differs", _shown(expected), _shown(actual))
    kinds = [kind_of(table.schema.field("x").type) for table in (expected, actual)]
    if kinds[0] != kinds[1]:
        return Outcome("differs", f"type {kinds[0]}", f"type {kinds[1]}")
    verdict, shown = "same", "null"
    for name in ("g", "x"):
        ones, others = column(expected[name]), column(actual[name])
        if len(ones) != len(others):
            return Outcome("differs", f"{len(ones)} rows", f"{len(others)} rows")
        for one, other in zip(ones, others, strict=True):
            equal = "same" if one == other else alike(one, other)
            if equal == "differs":
                return Outcome("differs", one, other, kinds[0])
            verdict = "close" if equal == "close" else verdict
        shown = next((value for value in ones if value != "null"), "null")
    return Outcome(verdict, shown, shown, kinds[0])


def _shown(answer: pa.Table | str) -> str:
    return answer if isinstance(answer, str) else f"{answer.num_rows} rows"


def _plain(kind: str) -> str:
    """A value with one zero."""
    return f"v + CAST(0 AS {kind})" if parse(kind).is_floating else "v"


def _rows(ask: Callable[[str], pa.Table], sql: str) -> pa.Table | str:
    try:
        return ask(sql)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the answer
        return "!" + str(error).split("\n")[0][:100]
