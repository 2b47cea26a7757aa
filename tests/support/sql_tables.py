"""Tables that statements of tests read, and rows for them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from floodmark import Contract, EventTime
from floodmark.core.time import to_ms
from floodmark.spec.graph.operator import Operator
from floodmark.testing.log import Log
from floodmark.testing.proof import Entry

BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
MINUTE = 60_000


class Flight(Contract, key=("scheduled", "flight")):
    """A departure."""

    scheduled: EventTime
    origin: str
    dest: str
    flight: int
    tail: str | None = None
    delay: int | None = None


class Weather(Contract, key=("observed", "origin")):
    """An observation."""

    observed: EventTime
    origin: str
    temp: float | None = None
    delay: int | None = None


class Odd(Contract):
    """Columns with odd names."""

    at: EventTime
    order: int
    größe: float  # noqa: PLC2401 - a name of another alphabet


TABLES = {"flights": Flight, "weather": Weather, "odd": Odd}


def flights(seed: int, size: int = 60) -> list[dict[str, Any]]:
    """Rows of flights over six hours, nearly in order."""
    drawn = random.Random(seed)
    minutes = sorted(drawn.randrange(360) + drawn.random() * 5 for _ in range(size))
    return [
        {
            "scheduled": BEGIN + timedelta(minutes=int(minute)),
            "origin": drawn.choice(["EWR", "JFK", "LGA"]),
            "dest": drawn.choice(["BOS", "ORD", "SFO", "Zürich"]),
            "flight": number,
            "tail": drawn.choice([None, "N1", "N2", "N3"]),
            "delay": drawn.choice([None, *range(-5, 90, 7)]),
        }
        for number, minute in enumerate(minutes)
    ]


def weather(seed: int, size: int = 30) -> list[dict[str, Any]]:
    """Rows of weather over the same six hours; one a minute and origin at most."""
    drawn = random.Random(seed + 1000)
    minutes = sorted(drawn.sample(range(360), size))
    return [
        {
            "observed": BEGIN + timedelta(minutes=minute),
            "origin": drawn.choice(["EWR", "JFK", "LGA"]),
            "temp": drawn.choice([None, 20.0, 30.5, 41.25]),
            "delay": drawn.choice([None, 1, 2]),
        }
        for minute in minutes
    ]


def log_of(contract: type[Contract], rows: Sequence[Mapping[str, Any]], time: str) -> Log:
    """A log of rows whose watermark follows them, and its end."""
    from floodmark.spec.rows.contract import schema

    log = Log(schema(contract))
    log.rows(rows, time, bound=2 * MINUTE)
    return log


def entries_of(operator: Operator, rows: Mapping[str, Sequence[Mapping[str, Any]]], bound: int = 0) -> list[Entry]:
    """Rows of each input with their stamps, in order of event time, each on time."""
    entries: list[Entry] = []
    for read in operator.inputs:
        if read.table not in rows:
            continue
        time = next(column for column in ("observed", "scheduled", "date_time") if column in rows[read.table][0])
        watermark = -(1 << 40)
        for number, row in enumerate(rows[read.table]):
            at = to_ms(row[time])
            stamps = {"_event_time": at, "_watermark": watermark, "_progress": None, "_sequence": number, "_kind": 0}
            entries.append((read.name, dict(row) | stamps))
            watermark = max(watermark, at - bound - 1)
    return entries


def oracle(sql: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[Any, ...]]:
    """What DuckDB answers over the tables."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in rows.items():
            connection.register(name, pa.Table.from_pylist([dict(row) for row in table]))
        return connection.execute(sql).fetchall()


def plain(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows in one order, floats to nine digits, times in ms."""
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_ms(value)
    if isinstance(value, Decimal):
        return float(value)
    return float(f"{value:.9e}") if isinstance(value, float) else value
