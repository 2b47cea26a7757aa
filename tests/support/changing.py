"""Tables whose rows are retracted: random histories of two of them, and an operator's answer at every cut."""

from __future__ import annotations

import math
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from pydantic import Field

import floodmark as fm
from floodmark import Contract, EventTime
from floodmark.core.time import END, to_ms
from floodmark.engines.embedded.memory.rows import STAMP_SCHEMA
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW
from floodmark.testing.proof import Answer, tally

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


class Left(Contract):
    """Rows of one side."""

    at: EventTime
    k: int | None = None
    f: float | None = None
    a: int | None = None
    price: Decimal | None = Field(default=None, max_digits=10, decimal_places=2)


class Right(Contract):
    """Rows of the other side."""

    seen: EventTime
    k: int | None = None
    f: float | None = None
    b: int | None = None
    note: str | None = None


def source(name: str, contract: type[Contract]) -> fm.Source:
    """A table whose rows are retracted."""
    return fm.Source(
        name, contract=contract, connector=fm.DeltaTable("/nowhere", read="changes"), watermark=fm.Ascending()
    )


LEFTS, RIGHTS = source("lefts", Left), source("rights", Right)
CHANGING = {"lefts": LEFTS, "rights": RIGHTS}

History = list[tuple[str, dict[str, Any]]]
"""(input, a row with its stamps) in the order in which rows come."""


def history(seed: int, size: int = 40, *, retracted: float = 0.3, late: int = 0, behind: int = 3) -> History:
    """Rows of both inputs and retractions of rows that came before; the watermark follows the event time, some rows are late.

    Keys are few, with null and NaN among them; rows are repeated.
    """
    drawn = random.Random(seed)
    alive: dict[str, list[dict[str, Any]]] = {"lefts": [], "rights": []}
    watermarks, made = {"lefts": -1 << 40, "rights": -1 << 40}, History()
    for number in range(size):
        name = drawn.choice(["lefts", "rights"])
        if alive[name] and drawn.random() < retracted:
            row, kind = alive[name].pop(drawn.randrange(len(alive[name]))), RETRACTION
        elif alive[name] and drawn.random() < 0.25:
            row, kind = dict(drawn.choice(alive[name])), ROW
        else:
            minutes = drawn.randrange(late) if late and drawn.random() < 0.3 else drawn.randrange(behind)
            row, kind = _row(drawn, name, BEGIN + timedelta(minutes=number - minutes)), ROW
        if kind == ROW:
            alive[name].append(row)
        time = to_ms(row["at" if name == "lefts" else "seen"])
        stamps = {"_event_time": time, "_watermark": watermarks[name], "_progress": None, "_sequence": number}
        made.append((name, row | stamps | {"_kind": kind}))
        watermarks[name] = max(watermarks[name], time - 3 * 60_000 - 1)
    return made


def _row(drawn: random.Random, name: str, time: datetime) -> dict[str, Any]:
    keys = {"k": drawn.choice([None, 1, 1, 2, (1 << 31) - 1]), "f": drawn.choice([None, math.nan, 0.0, -0.0, 1.5])}
    number = drawn.choice([None, -1, 0, 3, (1 << 63) - 1])
    if name == "lefts":
        return {"at": time, **keys, "a": number, "price": drawn.choice([None, Decimal("1.50"), Decimal("-2.25")])}
    return {"seen": time, **keys, "b": number, "note": drawn.choice([None, "x", "y", "ü"])}


def tables(
    operator: Operator, part: Sequence[tuple[str, Mapping[str, Any]]], progress: Mapping[str, int]
) -> dict[str, pa.Table]:
    """Rows of a micro-batch by input, with a marker of the progress of each."""
    made = {}
    for read in operator.inputs:
        rows = [{**row, "_progress": progress[read.table]} for name, row in part if name == read.table]
        rows.append({"_watermark": progress[read.table], "_progress": progress[read.table], "_kind": MARKER})
        made[read.name] = pa.Table.from_pylist(rows, schema=pa.schema([*arrow_schema(read.schema), *STAMP_SCHEMA]))
    return made


def answers(operator: Operator, rows: History, seed: int) -> list[tuple[int, Answer]]:
    """(number of rows read, rows minus retractions so far) after each micro-batch of a run cut at random, with restarts."""
    drawn, run, total, done = random.Random(seed), MemoryRun(operator), Answer(), 0
    progress = dict.fromkeys((read.table for read in operator.inputs), -1 << 40)
    cuts: list[tuple[int, Answer]] = []
    while done < len(rows):
        part = rows[done : done + max(1, round(drawn.expovariate(1 / drawn.choice([1, 4, 15]))))]
        done += len(part)
        for name, row in part:
            progress[name] = max(progress[name], row["_watermark"])
        total.update(emitted(run.batch(tables(operator, part, progress))))
        cuts.append((done, Answer({row: times for row, times in total.items() if times})))
        if drawn.random() < 0.3:
            run = MemoryRun(operator, pickle.loads(pickle.dumps(run.savepoint())))
    total.update(emitted(run.batch(tables(operator, [], dict.fromkeys(progress, END)))))
    return [*cuts, (done, Answer({row: times for row, times in total.items() if times}))]


def bounded(operator: Operator, rows: History) -> tuple[Answer, int]:
    """The answer over all rows at once; and the number of retractions in it."""
    out = MemoryRun(operator).batch(tables(operator, rows, dict.fromkeys(("lefts", "rights"), END)))
    retractions = sum(row["_kind"] == RETRACTION for row in out[""].to_pylist())
    return Answer({row: times for row, times in emitted(out).items() if times}), retractions


def emitted(outputs: Mapping[str, pa.Table]) -> Answer:
    """The rows of the result, retractions subtracted."""
    table = outputs[""]
    return tally("", table.drop_columns([name for name in STAMP_SCHEMA.names if name != "_kind"]))


def remaining(rows: History) -> dict[str, list[dict[str, Any]]]:
    """What is left of each input: rows minus retractions."""
    left: dict[str, list[dict[str, Any]]] = {"lefts": [], "rights": []}
    for name, row in rows:
        values = {column: value for column, value in row.items() if not column.startswith("_")}
        if row["_kind"] == ROW:
            left[name].append(values)
        else:
            same = [n for n, other in enumerate(left[name]) if repr(other) == repr(values)]
            left[name].pop(same[0])
    return left


def joined(
    left: Sequence[Mapping[str, Any]],
    right: Sequence[Mapping[str, Any]],
    kind: str,
    pairs: Callable[[Mapping[str, Any], Mapping[str, Any]], bool],
) -> list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """By hand: the pairs of a join, and rows without a partner with None."""
    matches = [(one, other) for one in left for other in right if pairs(one, other)]
    with_partner = [any(pairs(one, other) for other in right) for one in left]
    if kind in {"semi", "anti"}:
        return [(one, None) for one, has in zip(left, with_partner, strict=True) if has == (kind == "semi")]
    result: list[Any] = list(matches)
    if kind in {"left", "full"}:
        result += [(one, None) for one, has in zip(left, with_partner, strict=True) if not has]
    if kind in {"right", "full"}:
        result += [(None, other) for other in right if not any(pairs(one, other) for one in left)]
    return result


def counted(rows: Sequence[tuple[Any, ...]]) -> Answer:
    """Rows as an answer."""
    table = [{str(n): value for n, value in enumerate(row)} for row in rows]
    return Answer(Counter({("", tuple(_plain(v) for v in row.values())): 0 for row in table})) + Answer(
        Counter(("", tuple(_plain(v) for v in row.values())) for row in table)
    )


def _plain(value: Any) -> Any:
    return ("NaN" if math.isnan(value) else float(f"{value:.9e}")) if isinstance(value, float) else value


def asked(sql: str, rows: History) -> Answer:
    """What DuckDB answers over what is left of the rows."""
    left = remaining(rows)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, source in CHANGING.items():
            connection.register(name, pa.Table.from_pylist(left[name], schema=arrow_schema(source.schema)))
        return counted(connection.execute(sql).fetchall())
