"""What a drawn statement answers: bounded, at every cut of a stream, by the fluent API, and by DuckDB over the rows that are left."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from changing import CHANGING, History, bounded, emitted, history, remaining, tables
from drawn_statements import Statement

from floodmark.core.time import END, NEVER, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.graph.operator import Operator
from floodmark.testing.proof import Answer, prove


def rows_of(statement: Statement, seed: int, size: int = 30) -> History:
    """Rows that the statement reads. If its results change some are taken back; otherwise none is late, and some come twice."""
    rows = history(seed, size, retracted=0.3 if statement.changes else 0.0)
    rows = [entry for entry in rows if entry[0] in statement.tables]
    if statement.changes:
        return rows
    drawn, made = random.Random(seed), History()
    for name, row in rows:
        if row["_event_time"] > row["_watermark"]:
            for _ in range(drawn.choice([1, 1, 1, 2])):
                made.append((name, row | {"_sequence": len(made)}))
    return made


def asked(sql: str, rows: History) -> Answer:
    """What DuckDB answers over what is left of the rows; the column ``place`` is the order in which they came."""
    left = remaining(rows)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, source in CHANGING.items():
            table = pa.Table.from_pylist(left[name], schema=arrow_schema(source.schema))
            connection.register(name, table.append_column("place", pa.array(range(table.num_rows), pa.int64())))
        return plain(Answer({("", ()): 0}) + Answer(("", tuple(row)) for row in connection.execute(sql).fetchall()))


def plain(answer: Answer) -> Answer:
    """The answer with numbers that engines write differently as one: decimals and means to nine digits, -0.0 as 0.0, times in ms."""
    made = Answer()
    for (output, values), times in answer.items():
        made[output, tuple(map(_plain, values))] += times
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_ms(value)
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.9e}") + 0.0
    return value


def check(statement: Statement, seed: int, size: int = 30) -> int:
    """Compare all answers of a statement; returns the number of rows of the bounded one."""
    operator, rows = statement.operator(), rows_of(statement, seed, size)
    expected, answer = asked(statement.relation.duck, rows), plain(bounded(operator, rows)[0])
    assert answer == expected, f"bounded\n{difference(expected, answer)}"
    fluent = statement.fluent()
    if fluent is not None:
        answer = plain(bounded(fluent, rows)[0])
        assert answer == expected, f"by the fluent API\n{difference(expected, answer)}"
    if not statement.changes:
        proof = prove(operator, rows, cuts=2, seed=seed)
        assert proof.seed is None, proof.differences
        return sum(expected.values())
    for done, so_far in ended_at_cuts(operator, rows, seed):
        part = asked(statement.relation.duck, rows[:done])
        assert plain(so_far) == part, f"after {done} rows\n{difference(part, plain(so_far))}"
    return sum(expected.values())


def ended_at_cuts(operator: Operator, rows: History, seed: int) -> Iterator[tuple[int, Answer]]:
    """(number of rows read, rows minus retractions) at each cut of a run, with restarts: what it emitted, and what it emits if its input ends there.

    A stage that reads another one holds back what progress has not reached, so that without the end a cut lies between two results.
    """
    drawn, total, done, state = random.Random(seed), Answer(), 0, MemoryRun(operator).savepoint()
    progress, run = dict.fromkeys((read.table for read in operator.inputs), NEVER), MemoryRun(operator)
    ends = dict.fromkeys(progress, END)
    while done < len(rows):
        part = rows[done : done + max(1, round(drawn.expovariate(1 / drawn.choice([1, 4, 15]))))]
        done += len(part)
        for name, row in part:
            progress[name] = max(progress[name], row["_watermark"])
        total.update(emitted(run.batch(tables(operator, part, progress))))
        state = run.savepoint()
        if drawn.random() < 0.3:
            run = MemoryRun(operator, pickle.loads(pickle.dumps(state)))
        last = Answer(total)
        last.update(emitted(MemoryRun(operator, state).batch(tables(operator, [], ends))))
        yield done, Answer({row: times for row, times in last.items() if times})


def difference(expected: Answer, answer: Answer) -> str:
    """Rows too few and too many, for people."""
    return f"too few: {dict(expected - answer)}\ntoo many: {dict(answer - expected)}"
