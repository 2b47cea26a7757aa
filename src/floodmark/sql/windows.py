"""Windows of a statement: as table functions in FROM, and as functions in GROUP BY."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span
from floodmark.spec.windowing.windows import Calendar, Cumulative, Session, Sliding, Tumbling, Window
from floodmark.sql.dialect import WindowTable
from floodmark.sql.relation import BOUNDS, EVENT_TIME, PROCESSING_TIME, WINDOW_TIME, Name, Relation, Windowed
from floodmark.sql.text import Text

_GROUPS = {"TUMBLE": "TUMBLE", "HOP": "HOP", "SESSION": "SESSION", "CALENDAR": "CALENDAR", "CUMULATE": "CUMULATE"}
_SPARK = {"WINDOW": "WINDOW", "SESSION_WINDOW": "SESSION"}
_ACCESS = {"START": "window_start", "END": "window_end", "ROWTIME": "window_time"}
_DATES = {"day": "day", "week": "week", "month": "month"}


def function_name(node: exp.Expr) -> str:
    """The name of a function that sqlglot does not know, upper case; empty for any other node."""
    return str(node.this).upper() if isinstance(node, exp.Anonymous) and isinstance(node.this, str) else ""


def is_window(node: exp.Expr) -> bool:
    """Whether an expression is a window of GROUP BY: ``TUMBLE(ts, INTERVAL '1' HOUR)``, ``window(ts, '1 hour')``."""
    return function_name(node) in _GROUPS or function_name(node) in _SPARK


def bound_of(node: exp.Expr) -> str:
    """The column of a window that an expression reads: ``TUMBLE_START(...)``, ``window.start``, ``window(ts, '1 hour').end``; empty for any other."""
    kind, _, access = function_name(node).rpartition("_")
    if kind in _GROUPS and access in _ACCESS:
        return _ACCESS[access]
    if isinstance(node, exp.Column) and node.table.upper() in _SPARK:
        return _ACCESS.get(node.name.upper(), "")
    if isinstance(node, exp.Dot) and function_name(node.this) in _SPARK:
        return _ACCESS.get(node.expression.name.upper(), "")
    return ""


def again(window: Window) -> Window | None:
    """The window that holds the results of each of some windows together: it ends where they end; None where windows do not end in step."""
    match window:
        case Tumbling() | Calendar():
            return window
        case Sliding(size=size, slide=slide, offset=offset):
            return Tumbling(timedelta(milliseconds=slide), timedelta(milliseconds=(offset + size) % slide))
        case Cumulative(step=step, offset=offset):
            return Tumbling(timedelta(milliseconds=step), timedelta(milliseconds=offset % step))
        case _:
            return None


def bounds_again(window: Window) -> dict[str, str]:
    """Bound of a window -> its text over the results of ``again``."""
    start, end, time = BOUNDS
    text = start
    if isinstance(window, Sliding):
        text = f"timestampadd(MILLISECOND, -{window.size}, {end})"
    elif isinstance(window, Cumulative):
        last, offset, size = f"unix_micros({end}) - 1000", window.offset * 1000, window.size * 1000
        text = f"timestamp_micros({last} - pmod({last} - {offset}, {size}))"
    return {start: text, end: end, time: WINDOW_TIME}


def rows_of(relation: Relation, window: Window) -> Relation:
    """Results of windows as the rows of ``again``: what holds a bound reads that of the window."""
    columns = {name.bound: name.column for name in relation.names if name.bound and name.column}
    names = tuple(replace(name, text="", column="") if name.bound else name for name in relation.names)
    return replace(relation, names=names, windowed=Windowed(window=window, columns=columns))


def of_table(text: Text, node: WindowTable, relation: Relation) -> Windowed:
    """The window of a table function over a relation."""
    partition = tuple(_column(text, column, relation) for column in node.args.get("partition") or ())
    window = _window(text, node, node.args["kind"], node.args["lengths"])
    return Windowed(window=window, clocked=_clocked(text, node.args["time"], relation), partition=partition)


def row_bounds(windowed: Windowed, relation: Relation) -> dict[str, Any]:
    """Bounds of the window that a row is in as expressions over the row; empty for windows that a row alone does not decide, or of which it is in several."""
    time = next((name.text for name in relation.names if name.time and name.text), "")
    if windowed.clocked or not isinstance(windowed.window, Tumbling) or not time:
        return {}
    size, offset = windowed.window.size * 1000, windowed.window.offset * 1000
    start = f"unix_micros({time}) - pmod(unix_micros({time}) - {offset}, {size})"
    moments = {"window_start": start, "window_end": f"{start} + {size}", "window_time": f"{start} + {size - 1000}"}
    return {name: f"timestamp_micros({moment})" for name, moment in moments.items()}


def of_group(text: Text, node: exp.Expr, relation: Relation) -> Windowed:
    """The window of a function in GROUP BY over a relation."""
    name, arguments = function_name(node), list(node.expressions)
    if not arguments:
        raise _malformed(text, node, "no arguments")
    if name == "WINDOW":
        lengths = [length(text, part) for part in arguments[1:]]
        window: Window = _sliding(text, node, lengths)
    else:
        window = _window(text, node, _SPARK.get(name, name), arguments[1:])
    return Windowed(window=window, clocked=_clocked(text, arguments[0], relation))


def _sliding(text: Text, node: exp.Expr, lengths: list[timedelta]) -> Window:
    """Spark's ``window(time, size, slide, offset)``."""
    match lengths:
        case [size]:
            return Tumbling(size)
        case [size, slide]:
            return Tumbling(size) if size == slide else Sliding(size, slide)
        case [size, slide, offset]:
            return Tumbling(size, offset) if size == slide else Sliding(size, slide, offset)
        case _:
            raise _malformed(text, node, f"{len(lengths)} durations")


def _window(text: Text, node: exp.Expr, kind: str, arguments: list[Any]) -> Window:
    if kind == "CALENDAR":
        return _calendar(text, node, arguments)
    lengths = [length(text, part) for part in arguments]
    match kind, lengths:
        case "TUMBLE", [size]:
            return Tumbling(size)
        case "TUMBLE", [size, offset]:
            return Tumbling(size, offset)
        case "HOP", [slide, size]:
            return Tumbling(size) if size == slide else Sliding(size, slide)
        case "HOP", [slide, size, offset]:
            return Tumbling(size, offset) if size == slide else Sliding(size, slide, offset)
        case "CUMULATE", [step, size]:
            return Tumbling(size) if size == step else Cumulative(size, step)
        case "CUMULATE", [step, size, offset]:
            return Tumbling(size, offset) if size == step else Cumulative(size, step, offset)
        case "SESSION", [gap]:
            return Session(gap)
        case _:
            raise _malformed(text, node, f"{kind} with {len(lengths)} durations")


def _calendar(text: Text, node: exp.Expr, arguments: list[Any]) -> Window:
    """``CALENDAR(TABLE t, DESCRIPTOR(ts), 'day', 'America/New_York')``."""
    words = [part.this for part in arguments if isinstance(part, exp.Literal) and part.is_string]
    if len(words) != len(arguments) or not 1 <= len(words) <= len(("unit", "timezone")):
        raise _malformed(text, node, "CALENDAR without a unit in quotes")
    return Calendar(*words)


def _malformed(text: Text, node: exp.Expr, got: str) -> DefinitionError:
    fix = (
        "Write TUMBLE(TABLE t, DESCRIPTOR(ts), size), HOP(TABLE t, DESCRIPTOR(ts), slide, size), CUMULATE(TABLE t, DESCRIPTOR(ts), step, size), SESSION(TABLE t, DESCRIPTOR(ts), gap), "
        "CALENDAR(TABLE t, DESCRIPTOR(ts), 'day', 'Europe/Berlin'), or in GROUP BY window(ts, size, slide) and session_window(ts, gap)."
    )
    return DefinitionError(text.at(node), "a window with its durations", got, fix, code="DEFINITION-385")


def duration(node: exp.Expr) -> str:
    """The text of a duration: ``INTERVAL '1' HOUR`` and ``'1 hour'`` -> ``1 hour``; empty for any other expression."""
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    if isinstance(node, exp.Neg):
        inner = duration(node.this)
        return f"-{inner}" if inner else ""
    unit = node.args.get("unit")
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        return f"{node.this.this} {unit.name.lower()}" if unit is not None else str(node.this.this)
    return ""


def length(text: Text, node: exp.Expr) -> timedelta:
    """A duration of a statement."""
    written = duration(node)
    if not written:
        fix = "Write INTERVAL '10' MINUTE or '10 minutes'."
        raise DefinitionError(text.at(node), "a duration", text.of(node), fix, code="DEFINITION-386")
    return timedelta(milliseconds=span(written, text.at(node)))


def _clocked(text: Text, node: exp.Expr, relation: Relation) -> bool:
    """Whether the time of a window is the clock's; a column that is neither event time nor clock is refused."""
    column = node.expressions[0] if function_name(node) == "DESCRIPTOR" and node.expressions else node
    name = column.name if isinstance(column, exp.Column) else function_name(column)
    if name.lower() == EVENT_TIME:
        return False
    located = relation.find(text, column) if isinstance(column, exp.Column) else None
    if is_clock(column, located):
        return True
    if located is not None and located[0].time:
        return False
    times = [known.name for known in relation.names if known.time] or [EVENT_TIME]
    fix = f"Write DESCRIPTOR({times[0]}); DESCRIPTOR({PROCESSING_TIME}) for the clock. Another time becomes the event time in the contract of a source: at: EventTime."
    got = f"'{text.of(column)}', which is {'no column' if located is None and isinstance(column, exp.Column) else 'another column'}"
    raise DefinitionError(text.at(column), "the column of event time in a window", got, fix, code="DEFINITION-387")


def is_clock(node: exp.Expr, located: tuple[Name, exp.Expr] | None) -> bool:
    """(expression, the column that it is) -> whether it is the clock: ``PROCTIME()``, ``_processing_time``, or another name of these."""
    if located is not None:
        return located[0].clock
    return function_name(node) == "PROCTIME" or (
        isinstance(node, exp.Column) and node.name.lower() in {PROCESSING_TIME, "proctime"}
    )


def _column(text: Text, node: exp.Expr, relation: Relation) -> str:
    located = relation.find(text, node) if isinstance(node, exp.Column) else None
    if located is None:
        fix = relation.stream.schema.nearest(text.of(node))
        raise DefinitionError(text.at(node), "a column of the table", text.of(node), fix, code="DEFINITION-388")
    return located[0].name
