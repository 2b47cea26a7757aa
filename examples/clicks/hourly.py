"""The pipeline of hourly batches: files by the hour in which they arrived, and at each full hour a job that counts the file of the hour before.

Source: Friedman and Tzoumas, "Introduction to Apache Flink", chapter 4, which names what is wrong with it: many parts, time that lies in the scheduler,
no early answer, clicks that arrive out of order in another hour's file, and borders of hours that cut what belongs together.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
from arrivals import Answer, Click, visits

PROGRAMS = ("collector that begins a file each hour", "scheduler", "counting job", "table of answers")
_HOUR = timedelta(hours=1)


def by_hour(made: Sequence[Click]) -> dict[datetime, Answer]:
    """Moment at which a job ends -> what it adds to the table of answers: the count of the file of the hour before, under that hour."""
    answers = {}
    for hour in sorted({click.arrived.replace(minute=0, second=0, microsecond=0) for click in made}):
        file = pa.table({"campaign": [click.campaign for click in made if hour <= click.arrived < hour + _HOUR]})
        answers[hour + _HOUR] = {(hour, campaign): number for campaign, number in _job(file)}
    return answers


def visits_by_hour(made: Sequence[Click]) -> int:
    """The number of visits that jobs count, each in its own file: one that goes on over the border of two files is two."""
    hours = {click.arrived.replace(minute=0, second=0, microsecond=0) for click in made}
    return sum(visits(click for click in made if hour <= click.arrived < hour + _HOUR) for hour in hours)


def _job(file: pa.Table) -> list[tuple[str, int]]:
    """The job: it knows the file, and no time."""
    with duckdb.connect() as connection:
        connection.register("file", file)
        return connection.execute("SELECT campaign, count(*) FROM file GROUP BY campaign").fetchall()
