"""Sessions of the rows of all keys, whose rows are then grouped by keys: as of Flink's SESSION without PARTITION BY."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlglot import exp

from floodmark.spec.expressions import itself
from floodmark.spec.graph.stream import KeyedStream
from floodmark.spec.windowing.aggregates import collect
from floodmark.spec.windowing.windows import Session, Tumbling
from floodmark.sql.options import Options
from floodmark.sql.relation import BOUNDS, Relation, Windowed
from floodmark.sql.text import Text, new_name

_ROWS = "session_rows"
_MARK = "'row', true"
"""A field that every row has, so that rows without another column count."""
_EACH = Tumbling(timedelta(milliseconds=1))
"""The window that holds the rows of each session once more: they all have the session's last millisecond as event time."""


def in_sessions(
    text: Text, relation: Relation, read: Iterable[exp.Expr], options: Options
) -> tuple[Relation, Windowed, str]:
    """The rows of each session, all with the session's last instant as event time.

    Args:
        text: of the statement.
        relation: rows with a window of sessions that are not aggregated yet.
        read: parts of the statement, whose columns the rows keep.
        options: lateness, and what happens to later rows.

    Returns:
        The rows; the window in which those of one session are; the column of the session's start, which is a key of theirs.
    """
    windowed = relation.windowed
    assert windowed is not None
    assert isinstance(windowed.window, Session)
    partition = windowed.partition or ()
    known, stream = relation.stream.schema.names, relation.stream
    wanted = [name for name in known if name in _columns(text, relation, read) and name not in partition]
    held = KeyedStream(stream, partition).window(
        windowed.window, allowed_lateness=options.lateness, late=options.late_of(stream), on_error=options.on_error
    )
    column = new_name(_ROWS, known)
    fields = [f"{exp.Literal.string(name).sql('spark')}, {itself(name)}" for name in wanted]
    rows: dict[str, Any] = {column: collect(f"named_struct({', '.join([*fields, _MARK])})")}
    taken = [*partition, column, *BOUNDS]
    labels = [new_name(name, taken) for name in wanted]
    mark = new_name("session_row", [*taken, *labels])
    every = held.aggregate(**rows).unnest(itself(column), *labels, mark)
    start = new_name("session_start", [*taken, *labels])
    columns: dict[str, Any] = {name: itself(name) for name in partition}
    columns |= {name: itself(label) for name, label in zip(wanted, labels, strict=True)}
    columns[start] = itself(BOUNDS[0])
    names = tuple(replace(n, time=False) for n in relation.names if not n.column or n.column in columns)
    return replace(relation, stream=every.select(**columns), names=names), Windowed(window=_EACH), start


def _columns(text: Text, relation: Relation, read: Iterable[exp.Expr]) -> set[str]:
    """The columns of the stream that parts of a statement read."""
    located = [
        relation.find(text, column)
        for part in read
        for column in part.find_all(exp.Column)
        if not isinstance(column.this, exp.Star)
    ]
    names = [one[0] for one in located if one is not None]
    if any(name.text and not name.column for name in names):
        return set(relation.stream.schema.names)
    return {name.column for name in names}
