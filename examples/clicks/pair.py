"""The lambda pair: a fast layer that counts as clicks arrive and forgets the hour it is in at a restart, and a slow one that counts the whole day after it is over.

The computation is there twice, in two languages, and must mean the same. Source: the same book, chapters 1 and 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
from arrivals import Answer, Click

PROGRAMS = (
    "log of clicks",
    "fast layer",
    "store of the fast layer",
    "nightly batch",
    "table of answers",
    "view that puts both together",
)


class FastLayer:
    """Counts in memory, and stores the counts of an hour when the hour is over. What it has not stored is gone when its process dies."""

    def __init__(self) -> None:
        self.stored, self.counts = Counter[tuple[datetime, str]](), Counter[tuple[datetime, str]]()

    def on_click(self, click: Click) -> None:
        """One more, in the hour in which it happened: in the store if that hour is over."""
        key = click.hour, click.campaign
        (self.stored if key in self.stored else self.counts)[key] += 1

    def store(self, now: datetime) -> None:
        """Store the hours that are over."""
        for key in [key for key in self.counts if key[0] + timedelta(hours=1) <= now]:
            self.stored[key] += self.counts.pop(key)

    def crash(self) -> None:
        """The process dies, and another begins."""
        self.counts.clear()

    @property
    def view(self) -> Answer:
        """What people see."""
        return dict(self.stored + self.counts)


def nightly(made: Sequence[Click]) -> Answer:
    """The slow layer: all clicks of the day, counted again, in SQL."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register(
            "clicks", pa.table({"happened": [c.at for c in made], "campaign": [c.campaign for c in made]})
        )
        rows = connection.execute(
            "SELECT date_trunc('hour', happened), campaign, count(*) FROM clicks GROUP BY ALL"
        ).fetchall()
    return {(hour, campaign): number for hour, campaign, number in rows}
