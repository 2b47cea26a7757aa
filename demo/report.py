"""The demo's result as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute

from demo.oracle import Oracle
from demo.run import LOSS_OF, Outcome, killed, rates
from floodmark.observe.charts import bars, lines
from floodmark.spec.workspace import Workspace

_NEW_YORK = ZoneInfo("America/New_York")
_TOP = 8
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
table { border-collapse: collapse; margin: .6rem 0 } th, td { padding: .15rem .9rem .15rem 0; text-align: left }
th { border-bottom: 1px solid #bbb; font-weight: 600 } td.number { text-align: right; font-variant-numeric: tabular-nums }
.good { color: #2d6a31 } .bad { color: #b3261e } p.note { color: #666 } svg { width: 100%; height: auto }
"""


def write_report(path: Path, outcome: Outcome, workspace: Workspace) -> None:
    """Write the page."""
    parts = [
        *_head(outcome),
        *_agreement(outcome),
        *_pictures(outcome),
        *_late(outcome),
        *_top(outcome),
        *_pace(outcome),
        *_contest(outcome),
    ]
    operators = ", ".join(operator.version for operator in workspace.operators if operator.name in Oracle.OPERATORS)
    parts.append(f'<p class="note">Operators: {escape(operators)}.</p>')
    body = "\n".join(parts)
    page = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>floodmark demo</title><style>{_STYLE}</style>\n{body}\n</html>\n'
    path.write_text(page, "utf-8")


def _head(outcome: Outcome) -> Iterator[str]:
    computed = "both engines" if len(outcome.engines) > 1 else f"the {outcome.engines[0]} engine"
    verdict = f"both modes of {computed}, and DuckDB, agree" if not outcome.problems else "the answers do not agree"
    yield f'<h1>floodmark demo: <span class="{"bad" if outcome.problems else "good"}">{verdict}</span></h1>'
    days = "The year 2013" if outcome.days is None else f"The first {outcome.days} days of 2013"
    yield f"<p>{days} of departures from New York, {outcome.rows:,} flights, each landed when it became known.</p>"
    if outcome.kafka:
        yield f"<p>The rows went through Kafka at {escape(outcome.kafka)}: a message per line of the files, landed from the topics. DuckDB has read the files.</p>"
    yield from (f"<p>T{killed(engine, one)[1:]}.</p>" for engine, one in outcome.followed.items())
    yield from (f'<p class="bad">{escape(problem)}</p>' for problem in outcome.problems)


def _agreement(outcome: Outcome) -> Iterator[str]:
    yield "<h2>Row by row</h2>"
    rows = [
        (
            one.table,
            one.rows,
            *(followed.micro_batches.get(one.table.split("__")[0]) for followed in outcome.followed.values()),
            len(one.comparisons),
            one.differences,
        )
        for one in outcome.compared
    ]
    batches = [f"micro-batches, {engine}" for engine in outcome.followed]
    yield _table(("output", "rows", *batches, "comparisons", "differences"), rows)
    yield (
        '<p class="note">Integers, strings and instants are compared bit by bit; floating means within 1e-9 relative, as no engine '
        "fixes their order of addition. Revisable outputs are compared twice: the changelog's last values and the current table.</p>"
    )


def _pictures(outcome: Outcome) -> Iterator[str]:
    hourly = outcome.answers.get(LOSS_OF)
    if hourly is None or not hourly.num_rows:
        return
    rows = [row | {"local": row["window_start"].astimezone(_NEW_YORK)} for row in hourly.to_pylist()]
    origins = sorted({row["origin"] for row in rows})
    days = {row["local"].date() for row in rows}
    by_hour = {
        origin: [
            sum(r["departures"] for r in rows if r["origin"] == origin and r["local"].hour == h) / len(days)
            for h in range(24)
        ]
        for origin in origins
    }
    yield "<h2>Departures per hour of the day</h2>"
    yield lines(by_hour, [f"{hour}:00" for hour in range(24)], "per hour")
    flights: dict[object, int] = dict.fromkeys(sorted(days), 0)
    minutes: dict[object, float] = dict.fromkeys(flights, 0.0)
    for row in rows:
        day = row["local"].date()
        flights[day] += row["departures"]
        minutes[day] += row["departures"] * row["mean_delay"]
    yield "<h2>Mean departure delay per day</h2>"
    yield lines({"all": [minutes[day] / flights[day] for day in flights]}, [str(day)[5:] for day in flights], "minutes")


def _late(outcome: Outcome) -> Iterator[str]:
    yield "<h2>Late rows</h2>"
    rows = [(name, one["late"], one["refired"], one["dropped"]) for name, one in outcome.lateness.items()]
    yield _table(("operator", "late", "refired", "dropped"), rows)
    yield '<p class="note">Counted per row and window. A refired window is retracted and written again with the late row in it.</p>'
    if outcome.loss is None or not outcome.loss.num_rows:
        return
    lost = sum(outcome.loss["lost"].to_pylist())
    yield f"<h2>Late loss of {LOSS_OF}</h2>"
    yield f"<p>{lost:,} departures are missing in {outcome.loss.num_rows:,} windows against a run in which no row is late. The most:</p>"
    top = outcome.loss.slice(0, _TOP).to_pylist()
    shown = [(r["origin"], _local(r["window_start"]), r["departures"], r["landed"] or 0, r["lost"]) for r in top]
    yield _table(("origin", "hour (New York)", "complete", "as landed", "lost"), shown)


def _top(outcome: Outcome) -> Iterator[str]:
    busiest = outcome.answers.get("busiest_hour")
    if busiest is not None and busiest.num_rows:
        top = busiest.sort_by([("busiest", "descending"), ("window_start", "ascending"), ("origin", "ascending")])
        yield "<h2>Busiest hours</h2>"
        yield _table(
            ("origin", "day", "departures in the busiest hour"), _rows(top, ("origin", "window_start", "busiest"))
        )
    carriers = outcome.answers.get("daily_carriers")
    if carriers is not None and carriers.num_rows:
        some = carriers.filter(pa.compute.greater_equal(carriers["flights"], 50))
        top = some.sort_by([("share_cancelled", "descending"), ("window_start", "ascending"), ("carrier", "ascending")])
        yield "<h2>Days with the most cancellations (50 flights or more)</h2>"
        columns = ("carrier", "window_start", "flights", "share_cancelled", "tails")
        yield _table(("carrier", "day", "flights", "share cancelled", "aircraft"), _rows(top, columns))


def _pace(outcome: Outcome) -> Iterator[str]:
    yield "<h2>Rows per second</h2>"
    yield bars(rates(outcome), "rows/s")
    yield f'<p class="note">Wall clock of this machine, without the start of Spark. The whole demo took {outcome.seconds:.0f} s.</p>'


def _contest(outcome: Outcome) -> Iterator[str]:
    if outcome.contest is None:
        return
    yield "<h2>Two predictors as an experiment</h2>"
    yield from (f"<p>{escape(line)}</p>" for line in outcome.contest.lines())
    yield '<p>The report of the experiment: <a href="experiment.html">experiment.html</a>.</p>'


def _rows(table: pa.Table, columns: Sequence[str]) -> list[tuple[object, ...]]:
    return [tuple(_shown(row[name]) for name in columns) for row in table.slice(0, _TOP).to_pylist()]


def _shown(value: object) -> object:
    if isinstance(value, datetime):
        return str(value.astimezone(_NEW_YORK).date())
    return f"{value:.1%}" if isinstance(value, float) else value


def _local(moment: datetime) -> str:
    return moment.astimezone(_NEW_YORK).strftime("%Y-%m-%d %H:%M")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{'' if value is None else escape(str(value))}</td>"
