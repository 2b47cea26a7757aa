"""Joins with versions of rows that are taken back: a statement, and flights of which some are taken back later."""

from __future__ import annotations

import random
from typing import Any

from sql_tables import Flight, Weather, entries_of, flights, weather

import floodmark as fm
from floodmark import sql_operator
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import RETRACTION
from floodmark.testing.proof import Entry


def changing(name: str, contract: type[fm.Contract]) -> fm.Source:
    """A table that is read with its changes."""
    table = fm.DeltaTable(f"tables/{name}", read="changes")
    return fm.Source(name, contract=contract, connector=table, watermark=fm.BoundedOutOfOrderness("0 s"))


SOURCES = {"flights": changing("flights", Flight), "weather": Weather}
JOIN = "SELECT f.flight, f.tail, w.temp, w.delay FROM flights AS f {} weather FOR SYSTEM_TIME AS OF f.scheduled AS w ON f.origin = w.origin"
KINDS = {"JOIN": "ASOF JOIN", "LEFT JOIN": "ASOF LEFT JOIN"}


def taken_back(seed: int, kind: str) -> tuple[Operator, list[Entry], list[dict[str, Any]]]:
    """(the join, its entries, the flights that are left): 9 of 24 flights are taken back, each behind itself."""
    drawn, rows = random.Random(seed), flights(seed, 24)
    for row in rows:
        row |= {"flight": drawn.randrange(4), "tail": None}
    rows[3:5] = [rows[2], rows[2]]  # equal rows, of which some are taken back
    written = sql_operator("stated", f"{JOIN.format(kind)} EMIT CHANGES", inputs=SOURCES)
    entries = entries_of(written, {"flights": rows, "weather": weather(seed)})
    gone = sorted(drawn.sample(range(len(rows)), 9), reverse=True)
    places = [place for place, (name, _) in enumerate(entries) if name == "flights"]
    for number in gone:
        name, row = entries[places[number]]
        later = drawn.randrange(number, len(rows))
        entries.insert(
            places[later] + 1,
            (name, row | {"_kind": RETRACTION, "_watermark": entries[places[later]][1]["_watermark"]}),
        )
        places = [place for place, (n, r) in enumerate(entries) if n == "flights" and r["_kind"] != RETRACTION]
    numbers = iter(range(len(entries)))
    entries = [(name, row | {"_sequence": next(numbers)}) for name, row in entries]
    left = [row for number, row in enumerate(rows) if number not in gone]
    return written, entries, left
