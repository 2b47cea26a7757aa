"""Pages about supervised streams: one with all, one for each. Plain HTML that loads itself anew; every text is escaped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from floodmark.control.state.store import Store
from floodmark.control.streams.vitals import Vitals
from floodmark.core import background
from floodmark.core.errors import FloodmarkError, printable
from floodmark.core.time import END, NEVER, describe, describe_roughly
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.savepoints import survey
from floodmark.lifecycle.usage import Usage
from floodmark.observe.charts import graph, lines
from floodmark.observe.pressure import WINDOW_SECONDS

REFRESH_SECONDS = 5
_TAIL_BYTES = 8_000
_SHOWN = 20
"""Commits and savepoints in a table."""
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:1180px;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem;font-size:14px}td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;"
    "text-align:left;vertical-align:top;white-space:nowrap}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}a{color:#1f5f99}"
    "h1{font-size:1.4rem;margin:.3rem 0}h2{font-size:1.05rem;margin:1.4rem 0 .2rem}svg{max-width:760px;display:block}.wide svg{max-width:100%}"
    "pre{background:#f6f6f6;padding:.7rem;overflow-x:auto;font-size:12.5px;max-height:24rem}.quiet{color:#666}"
    ".tag{display:inline-block;border-radius:.6rem;padding:0 .6rem;color:#fff;background:#777;font-size:13px}"
    ".ok{background:#2a6b2d}.low,.warning{background:#a87400}.high,.error{background:#b3401a}"
)


class Cell(NamedTuple):
    """A cell of a table: HTML, and whether it is a number."""

    html: str
    number: bool = False


def overview(streams: Sequence[Vitals]) -> str:
    """The page with all streams."""
    heads = (
        "stream",
        "state",
        "backpressure",
        "version",
        "progress",
        "lag",
        "behind now",
        "waiting",
        "rows/s in",
        "last commit",
        "crashes",
    )
    rows = [
        [
            Cell(f'<a href="{link(one)}">{escape(one.name)}</a>{_elsewhere(one, streams)}'),
            _tag(one.health.condition, one.health.reason or one.text, one.health.level),
            _tag(one.pressure) if one.pressure else Cell(""),
            _text(one.deployment.version),
            _text(_time(one.progress)),
            _number(_seconds(one.behind_input)),
            _number(_seconds(one.behind_now)),
            _number(_waiting(one)),
            _number(f"{one.rate:,.1f}"),
            _number(_ago(one)),
            _number(f"{one.measured.totals.crashes:,}"),
        ]
        for one in streams
    ]  # fmt: skip
    parts = ["<h1>Streams</h1>"]
    parts.append(
        _table(heads, rows) if rows else "<p>No stream was started yet: <code>floodmark start --all</code></p>"
    )
    parts.append(
        '<p class="quiet">Metrics of all streams for Prometheus: <a href="/metrics">/metrics</a>; a dashboard for Grafana: '
        '<a href="/grafana.json">/grafana.json</a>; alerts for Prometheus: <a href="/rules.yaml">/rules.yaml</a></p>'
    )
    return _document("Streams", parts)


def detail(store: Store, stream: Vitals) -> str:
    """The page about one stream."""
    parts = ['<p><a href="/">all streams</a></p>', f"<h1>{escape(stream.name)}</h1>"]
    pressure = f" backpressure {_tag(stream.pressure).html}" if stream.pressure else ""
    health = stream.health
    parts.append(f"<p>{_tag(health.condition, level=health.level).html} {escape(stream.text)}{pressure}</p>")
    if health.reason:
        parts.append(f"<p>{escape(printable(health.reason))}</p>")
    if health.mend:
        parts.append(f"<p>What mends it: {escape(printable(health.mend))}</p>")
    parts += [
        _facts(stream),
        *_program(stream),
        *_user(stream),
        *_commits(stream),
        *_checkpoints(stream),
        *_failure(store, stream),
    ]
    parts += [*_savepoints(stream), *_log(stream)]
    return _document(stream.name, parts)


def missing(path: str) -> str:
    """The page for a path that leads nowhere."""
    text = f"<p>There is nothing at <code>{escape(path)}</code>.</p>"
    return _document("Not found", ["<h1>Not found</h1>", text, '<p><a href="/">all streams</a></p>'])


def link(stream: Vitals) -> str:
    """Path of the page about a stream, as an attribute."""
    deployment = stream.deployment
    return escape(f"/streams/{quote(deployment.operator, safe='')}?lake={quote(deployment.lake, safe='')}")


# ---- parts


def _facts(stream: Vitals) -> str:
    deployment, totals, usage = stream.deployment, stream.measured.totals, _usage(stream)
    facts = {
        "version": deployment.version,
        "environment": deployment.environment,
        "lake": deployment.lake,
        "wanted": deployment.desired,
        "progress": _time(stream.progress),
        "behind its input": _seconds(stream.behind_input),
        "behind now": _seconds(stream.behind_now),
        "waiting": _waiting(stream, whole=True),
        "busy in the last minute": f"{stream.busy:.0%}",
        "rows in": f"{totals.rows_in:,} ({stream.rate:,.1f}/s)",
        **{f"rows of {name}": f"{rows:,}" for name, rows in totals.rows.items()},
        "late, dropped, quarantined": f"{totals.late:,}, {totals.dropped:,}, {totals.quarantined:,}",
        "commits": f"{totals.commits:,}, the last {_ago(stream)}",
        "drivers": f"{totals.starts:,} started, {totals.crashes:,} crashed",
        "memory of its driver, at most": f"{usage.memory / 1e6:,.0f} MB" if usage.memory else "",
    }
    return _table((), [[_text(name), _text(value)] for name, value in facts.items() if value])


def _program(stream: Vitals) -> Iterator[str]:
    """The program with rates, if its driver has described it."""
    described = stream.measured.graph
    if described is None:
        return
    minute, notes = stream.minute, dict[str, str]()
    for node in described["nodes"]:
        if node["kind"] == "output":
            rows = sum(one.rows.get(node["table"], 0) for one in minute)
            notes[node["id"]] = f"{_rate(rows)} rows/s"
    inputs = [node["id"] for node in described["nodes"] if node["kind"] == "input"]
    if len(inputs) == 1:
        notes[inputs[0]] = f"{stream.rate:,.1f} rows/s"
    yield "<h2>Program</h2>"
    yield f'<div class="wide">{graph(described["nodes"], described["edges"], notes)}</div>'


def _user(stream: Vitals) -> Iterator[str]:
    """The metrics of a process function."""
    rows = []
    for name, part in sorted(stream.measured.totals.metrics.items()):
        for kind, value in part.items():
            rows.append([_text(name), _text(kind), _number(_metric(stream, name, kind, value))])
    if rows:
        yield "<h2>Metrics of its function</h2>"
        yield _table((), rows)


def _metric(stream: Vitals, name: str, kind: str, value: Any) -> str:
    """The value of a metric in words."""
    if kind == "gauge":
        return f"{value[1]:,.6g}, at {describe(value[0])}"
    if kind == "histogram":
        count = sum(value[1])
        return f"{count:,} values, {value[2] / max(1, count):,.6g} on average"
    if kind == "meter":
        return (
            f"{value:,}, {sum(one.metrics.get(name, {}).get(kind, 0) for one in stream.minute) / WINDOW_SECONDS:,.3g}/s"
        )
    return f"{value:,}"


def _commits(stream: Vitals) -> Iterator[str]:
    recent = stream.measured.recent
    if not recent:
        return
    name = {"source": "Landing commits", "operator": "Micro-batches", "delivery": "Deliveries"}[stream.deployment.kind]
    yield f"<h2>{name}</h2>"
    labels = [_clock(one.at) for one in recent]
    if len(recent) > 1:
        phases = dict.fromkeys(phase for one in recent for phase in one.phases)
        series: dict[str, list[float | None]] = {p: [one.phases.get(p) for one in recent] for p in phases}
        yield lines(series or {"total": [one.seconds for one in recent]}, labels, "s")
    heads = (
        "number",
        "ended",
        "seconds",
        "rows in",
        "rows out",
        "late",
        "dropped",
        "quarantined",
        "waiting then",
        "progress",
    )
    rows = [
        [
            _number(f"{one.number:,}"),
            _text(describe(int(one.at * 1000))),
            _number(f"{one.seconds:.3f}" if one.seconds else ""),
            _number(f"{one.rows_in:,}"),
            _number(f"{sum(one.rows.values()):,}"),
            *(_number(f"{value:,}") for value in (one.late, one.dropped, one.quarantined, one.waiting)),
            _text(_time(one.progress)),
        ]
        for one in reversed(recent[-_SHOWN:])
    ]  # fmt: skip
    yield _table(heads, rows)


def _checkpoints(stream: Vitals) -> Iterator[str]:
    """The history of checkpoints: duration, bytes written, bytes of state."""
    made = [(one.at, one.checkpoint) for one in stream.measured.recent if one.checkpoint is not None]
    if not made:
        return
    yield "<h2>Checkpoints</h2>"
    _, last = made[-1]
    totals = stream.measured.totals
    mean = totals.checkpoint_seconds / max(1, totals.checkpoints)
    yield (
        f"<p>{totals.checkpoints:,} made, {1000 * mean:,.0f} ms on average; the last, of micro-batch {last.batch:,}, took "
        f"{1000 * last.seconds:,.0f} ms and wrote {last.written:,} bytes; the state is {last.held:,} bytes.</p>"
    )
    if len(made) > 1:
        labels = [_clock(at) for at, _ in made]
        yield lines({"duration": [1000 * one.seconds for _, one in made]}, labels, "ms")
        sizes = {"written": [one.written / 1000 for _, one in made], "state": [one.held / 1000 for _, one in made]}
        yield lines(sizes, labels, "kB")


def _failure(store: Store, stream: Vitals) -> Iterator[str]:
    """The last crash, with the end of its driver's log."""
    crash = next((one for one in store.drivers(stream.deployment.stream) if one.state == "crashed"), None)
    if crash is None:
        return
    when = "" if crash.ended_at is None else f", {describe(int(crash.ended_at * 1000))}"
    yield f"<h2>Last error{escape(when)}</h2>"
    yield f"<p>{escape(crash.reason or '')}</p>"
    if stream.driver is not None and crash.id != stream.driver.id:
        yield f'<p class="quiet">The end of its log, {escape(crash.log)}:</p><pre>{escape(_tail(crash.log))}</pre>'


def _log(stream: Vitals) -> Iterator[str]:
    if stream.driver is not None:
        yield f"<h2>Log</h2><p class='quiet'>The end of {escape(stream.driver.log)}; all of it: "
        yield f"<code>floodmark logs {escape(stream.name)}</code></p><pre>{escape(_tail(stream.driver.log))}</pre>"


def _savepoints(stream: Vitals) -> Iterator[str]:
    if stream.deployment.kind != "operator":
        return
    try:
        root = stream.deployment.lake
        readable, damaged = survey(Lake.forked(root) or Lake(root), stream.name)
    except (FloodmarkError, OSError) as error:
        yield f"<h2>Savepoints</h2><p>{escape(str(error))}</p>"
        return
    yield f"<h2>Savepoints</h2><p>{len(readable)}{f', {len(damaged)} damaged' if damaged else ''}</p>"
    newest = sorted(readable, key=lambda one: one.manifest.at, reverse=True)[:_SHOWN]
    heads = ("savepoint", "made", "version", "progress", "note", "")
    rows = [
        [
            Cell(f"<code>{escape(one.id)}</code>"),
            _text(describe(one.manifest.at)),
            _text(one.manifest.version),
            _text(_time(one.manifest.watermark)),
            _text(one.manifest.why),
            _text("pinned" if one.pinned else ""),
        ]
        for one in newest
    ]
    if rows:
        yield _table(heads, rows)


# ---- texts


def _usage(stream: Vitals) -> Usage:
    return Usage.parse(None if stream.driver is None else stream.driver.usage)


def _elsewhere(stream: Vitals, streams: Sequence[Vitals]) -> str:
    """The lake of a stream, if streams of its operator run in several."""
    several = len([one for one in streams if one.name == stream.name]) > 1
    return f'<br><span class="quiet">{escape(stream.deployment.lake)}</span>' if several else ""


def _rate(rows: int) -> str:
    """Rows of the last minute, per second."""
    return f"{rows / WINDOW_SECONDS:,.1f}"


def _waiting(stream: Vitals, *, whole: bool = False) -> str:
    backlog = stream.backlog
    if backlog is None:
        return ""
    if stream.deployment.kind == "source":
        return f"{backlog.commits:,} files" if stream.waiting_rows is None else f"{stream.waiting_rows:,} rows"
    text = f"{'' if backlog.whole else 'more than '}{backlog.rows:,} rows"
    return f"{text} in {backlog.commits:,} commits, {backlog.bytes:,} bytes" if whole else text


def _time(progress: int) -> str:
    return "" if progress == NEVER else "the end of input" if progress == END else describe(progress - progress % 1000)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else describe_roughly(seconds)


def _ago(stream: Vitals) -> str:
    last = stream.measured.last
    return "" if last is None else f"{describe_roughly(stream.at - last.at)} ago"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at))


def _tail(path: str) -> str:
    """The last lines of a log; empty if there is none."""
    return printable(background.tail(Path(path), _TAIL_BYTES)[0])


def _text(text: str) -> Cell:
    return Cell(escape(printable(text)))


def _number(text: str) -> Cell:
    return Cell(escape(text), number=True)


def _tag(name: str, title: str = "", level: str = "") -> Cell:
    """A coloured word: by its level, or by itself where that is its level."""
    return Cell(f'<span class="tag {escape(level or name)}" title="{escape(title)}">{escape(name)}</span>')


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    numbers = [cell.number for cell in rows[0]] if rows else []
    cells = [
        f"<th{' class=n' if number else ''}>{escape(name)}</th>" for name, number in zip(heads, numbers, strict=False)
    ]
    head = f"<tr>{''.join(cells)}</tr>" if heads else ""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"


def _cell(cell: Cell) -> str:
    return f"<td{' class=n' if cell.number else ''}>{cell.html}</td>"


def _document(title: str, parts: Iterable[str]) -> str:
    head = (
        f'<meta charset="utf-8"><meta http-equiv="refresh" content="{REFRESH_SECONDS}"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en">{head}\n{"".join(parts)}\n</html>\n'
