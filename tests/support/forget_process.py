"""Forgetting in a process of its own, which a test may kill: forget_process.py LAKE INBOX KEY..."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import engines
from pydantic import Field

import floodmark as fm
from floodmark.engines.forgetting import Forgotten, forget
from floodmark.lake.folder.paths import Lake
from floodmark.lake.forgetting.keys import ForgottenKey
from floodmark.lake.forgetting.plan import look

START = datetime(2025, 3, 1, tzinfo=UTC)
PERSONS = ("ann@example.org", "bob@example.org", "cleo@example.org", "dan@example.org")


class Visit(fm.Contract):
    """A visit of a person; a negative amount goes to the quarantine."""

    at: fm.EventTime
    person: str
    number: int
    site: str
    amount: int = Field(ge=0)


@fm.operator
def spent(visits: fm.Stream[Visit]) -> fm.Stream:
    """State, results and late rows have the person."""
    windowed = visits.key_by("person").window(fm.Tumbling("1 hour"), allowed_lateness="30 minutes", late="side_output")
    return windowed.aggregate(visits=fm.count(), amount=fm.sum("amount"), numbers=fm.collect("number"))


@fm.operator(inputs={"spent": spent})
def most(spent: fm.Stream) -> fm.Stream:
    """Reads results of another operator."""
    return spent.key_by("person").window(fm.Tumbling("3 hours")).aggregate(most=fm.max("amount"))


@fm.operator
def sites(visits: fm.Stream[Visit]) -> fm.Stream:
    """Computed by bounded runs alone."""
    return visits.key_by("site").window(fm.Tumbling("1 day")).aggregate(visits=fm.count(), amount=fm.sum("amount"))


@fm.operator
def large(visits: fm.Stream[Visit]) -> fm.Stream:
    """Without state; a row of its own per visit."""
    return visits.filter("amount >= 50")


OPERATORS = (spent, most, sites, large)
STREAMS = (spent, most, large)


def source(inbox: Path) -> fm.Source:
    """Files of CSV."""
    return fm.Source(
        "visits", contract=Visit, connector=fm.Files(str(inbox)), watermark=fm.BoundedOutOfOrderness("10 minutes")
    )


def write(inbox: Path, number: int) -> None:
    """A file with twelve visits of all persons, some of them late, one that the contract refuses."""
    lines = ["at,person,number,site,amount"]
    for i in range(12 * number, 12 * number + 12):
        at = START + timedelta(minutes=10 * i - (95 if i % 7 == 5 else 25 if i % 5 == 3 else 0))
        amount = -1 if i % 12 == 9 else 7 * i % 90
        lines.append(f"{at.isoformat()},{PERSONS[i % 4]},{i},{'xyz'[i % 3]},{amount}")
    inbox.mkdir(exist_ok=True)
    (inbox / f"{number:03}.csv").write_text("\n".join(lines) + "\n")


def forgotten(lake: Lake, inbox: Path, keys: Iterable[str], engine: Any = None) -> Forgotten:
    """Forget keys in a lake."""
    parsed = [ForgottenKey.parse(key) for key in keys]
    return forget(look([source(inbox)], OPERATORS, lake, parsed), engines.embedded() if engine is None else engine)


if __name__ == "__main__":
    forgotten(Lake(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
