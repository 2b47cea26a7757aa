"""OVER: results of each row over the rows of its key before it, in order of event time or, where results may change, in any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span
from floodmark.spec.expressions import itself
from floodmark.spec.graph.over import over_rows
from floodmark.spec.graph.stream import KeyedStream, Stream
from floodmark.spec.keyed.over import Measure
from floodmark.spec.windowing.frames import Frame, OverRow, dense_rank, lag, lead, rank, row_number
from floodmark.sql.functions import argument_of
from floodmark.sql.measures import is_aggregate, measure
from floodmark.sql.options import Options
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import EVENT_TIME, Item, Name, Relation, Sorted
from floodmark.sql.text import Text, derived_name, new_name
from floodmark.sql.windows import is_clock, length

_POSITIONS = {exp.RowNumber: row_number, exp.Rank: rank, exp.DenseRank: dense_rank}
_NUMBERED = {"row_number": row_number, "rank": rank, "dense_rank": dense_rank}
_OTHERS = (exp.Ntile, exp.NthValue, exp.CumeDist, exp.PercentRank)
_FIRSTS = (exp.Lag, exp.Lead, exp.First, exp.FirstValue, exp.Last, exp.LastValue)
_CURRENT = "CURRENT ROW"

Changing = Literal["never", "where needed", "always"]
"""Whether results over rows may change: never; in another order than that of event time, or over rows that are taken back; always."""
NEVER: Changing = "never"
WHERE_NEEDED: Changing = "where needed"
ALWAYS: Changing = "always"


@dataclass(frozen=True, slots=True)
class Division:
    """What OVER says of a row's key and order.

    Args:
        keys: (column of the stream, its expression).
        order: of rows whose results may change; None for that of event time.
    """

    keys: tuple[tuple[str, str], ...]
    order: tuple[Sorted, ...] | None


@dataclass(frozen=True, slots=True)
class Computed:
    """A relation with results over its rows.

    Args:
        relation: with a column for each of them.
        columns: text of the OVER -> its column.
    """

    relation: Relation
    columns: dict[str, str]

    def scalar(self, text: Text, node: exp.Expr) -> str:
        """The text of an expression over the columns of the stream, checked."""
        read = self.relation.read(text)

        def replacement(part: exp.Expr) -> str | None:
            return itself(self.columns[text.of(part)]) if isinstance(part, exp.Window) else read(part)

        return self.relation.scalar(text, node, replacement)


def overs(node: exp.Expr) -> Iterator[exp.Window]:
    """Every OVER in an expression."""
    yield from node.find_all(exp.Window)


def named(select: exp.Select, node: exp.Window) -> exp.Window:
    """An OVER with what WINDOW says of its name."""
    alias = node.args.get("alias")
    if alias is None:
        return node
    for window in select.args.get("windows") or ():
        if window.this.name.lower() == alias.name.lower():
            own = {name: node.args.get(name) or window.args.get(name) for name in ("partition_by", "order", "spec")}
            whole = exp.Window(this=node.this, **{name: value for name, value in own.items() if value})
            whole.meta.update(node.meta)
            return whole
    return node


def over_relation(
    text: Text, select: exp.Select, relation: Relation, items: list[Item], options: Options, changing: Changing
) -> Computed:
    """The rows of a SELECT with a column for each OVER in its columns.

    Raises:
        DefinitionError: DEFINITION-382, another order or frame than a stream has.
    """
    if relation.windowed is not None:
        fix = "Leave the window out, or aggregate over it: GROUP BY window_start, window_end."
        raise unsayable(text, select, "OVER the rows of windows", fix)
    columns, measures, first = dict[str, str](), list[Measure](), None
    written = [node for _, value in items for node in overs(value)]
    if changing != NEVER and any(isinstance(node.this, exp.Lead) for node in written):
        changing = ALWAYS
    taken = [*relation.stream.schema.names, *(name for name, value in items if not isinstance(value, exp.Window))]
    names = {text.of(value): name for name, value in reversed(items) if isinstance(value, exp.Window)}
    for own in written:
        key = text.of(own)
        if key in columns:
            continue
        node = named(select, own)
        divided = _division(text, node, relation, changing)
        if first is not None and divided != first:
            fix = "Write the same PARTITION BY and ORDER BY in each OVER; results by other keys are those of a second operator."
            raise unsayable(text, own, "OVER with another PARTITION BY", fix)
        first = divided
        columns[key] = new_name(names.get(key) or derived_name(key), [*taken, *columns.values()])
        timed = divided.order is None or divided.order[0].time
        measures.append(Measure(columns[key], _measure(text, node, relation), _frame(text, node, timed=timed)))
    assert first is not None
    return Computed(_computed(relation, first, measures, options), columns)


def _computed(relation: Relation, divided: Division, measures: list[Measure], options: Options) -> Relation:
    """A relation with results over its rows; its times are none any more where results change after them."""
    stream = relation.stream
    if divided.order is None:
        keyed = partitioned(stream, dict(divided.keys))
        over = over_rows(keyed, measures, late=options.late_of(stream), on_error=options.on_error)
        return replace(relation, stream=over)
    stream, by = sorted_by(stream, divided.order)
    over = over_rows(partitioned(stream, dict(divided.keys)), measures, order=by, on_error=options.on_error)
    names = tuple(replace(name, time=False) for name in relation.names)
    return replace(relation, stream=over, names=names, spans=None)


def sorted_by(stream: Stream[Any], order: Sequence[Sorted]) -> tuple[Stream[Any], list[str]]:
    """The stream with a column for each expression of an order, and the order as of ``top``."""
    by = []
    for part in order:
        column = part.column
        if not column:
            column = new_name(f"{derived_name(part.text)}_order", stream.schema.names)
            computed: dict[str, Any] = {column: part.text}
            stream = stream.with_columns(**computed)
        by.append(f"{column} {'DESC' if part.descending else 'ASC'} NULLS {'FIRST' if part.nulls_first else 'LAST'}")
    return stream, by


def sort_of(text: Text, part: exp.Expr, relation: Relation) -> Sorted:
    """A part of ORDER BY."""
    located = relation.find(text, part.this) if isinstance(part.this, exp.Column) else None
    return Sorted(
        text=relation.scalar(text, part.this),
        column=located[0].column if located is not None else "",
        time=located is not None and located[0].time,
        descending=bool(part.args.get("desc")),
        nulls_first=bool(part.args.get("nulls_first")),
    )


def partitioned(stream: Stream[Any], keys: dict[str, str]) -> KeyedStream:
    """(stream, column -> expression) -> the stream by these keys."""
    new: dict[str, Any] = {name: text for name, text in keys.items() if text != itself(name)}
    stream = stream.with_columns(**new) if new else stream
    return stream.key_by(*keys) if keys else KeyedStream(stream, ())


def partition_of(text: Text, node: exp.Window, relation: Relation) -> tuple[tuple[str, str], ...]:
    """PARTITION BY: (column of the stream, its expression)."""
    keys: dict[str, str] = {}
    for part in node.args.get("partition_by") or ():
        rendered = relation.scalar(text, part)
        column = rendered.strip("`")
        if rendered != itself(column) or column not in relation.stream.schema:
            column = new_name(f"{derived_name(rendered)}_key", relation.stream.schema.names, "key")
        keys[column] = rendered
    return tuple(keys.items())


def _division(text: Text, node: exp.Window, relation: Relation, changing: Changing) -> Division:
    """The keys of an OVER, and its order."""
    order = node.args.get("order")
    by = order.expressions if order is not None else []
    time = next((name.name for name in relation.names if name.time), EVENT_TIME)
    fix = (
        f"Rows come in order of event time: ORDER BY {time}. By another order later rows change results of earlier ones: say so, at the end, "
        "by EMIT CHANGES, where the state holds all rows; or take the first n, by ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n."
    )
    if not by and changing != NEVER and is_aggregate(node.this) and not isinstance(node.this, (*_OTHERS, *_FIRSTS)):
        everywhere = Sorted(text="1", column="", time=False, descending=False, nulls_first=True)
        return Division(partition_of(text, node, relation), (everywhere,))
    if not by or (len(by) != 1 and changing == NEVER):
        raise unsayable(text, node, "OVER without ORDER BY one column", fix)
    if isinstance(node.this, exp.Lead) and changing == NEVER:
        wait = "A row would wait for the next one: say that the next one changes its result, at the end: EMIT CHANGES."
        raise unsayable(text, node, "LEAD of results that do not change", wait)
    column = by[0].this
    timed = isinstance(column, exp.Column) and (
        column.name.lower() == EVENT_TIME or _is_time(relation.find(text, column))
    )
    keys = partition_of(text, node, relation)
    if timed and len(by) == 1 and not by[0].args.get("desc") and changing != ALWAYS:
        return Division(keys, None)
    if changing == NEVER:
        raise unsayable(text, by[0], "OVER in another order than that of event time", fix)
    clock = next((part for part in by if is_clock(part.this, _located(text, part.this, relation))), None)
    if clock is not None:
        raise unsayable(text, clock, "OVER in order of the clock", "Order by a column of the rows.")
    return Division(keys, tuple(sort_of(text, part, relation) for part in by))


def _located(text: Text, node: exp.Expr, relation: Relation) -> Any:
    return relation.find(text, node) if isinstance(node, exp.Column) else None


def _is_time(located: Any) -> bool:
    return located is not None and located[0].time


def _measure(text: Text, node: exp.Window, relation: Relation) -> OverRow:
    inner = node.this
    if type(inner) in _POSITIONS:
        return _POSITIONS[type(inner)]()
    if isinstance(inner, (exp.Lag, exp.Lead)):
        shift, word = (lag, "LAG") if isinstance(inner, exp.Lag) else (lead, "LEAD")
        offset, default = inner.args.get("offset"), inner.args.get("default")
        if offset is not None and not (isinstance(offset, exp.Literal) and offset.is_int):
            raise unsayable(text, node, f"{word} by another number than a whole one", f"Write {word}(x, 2).")
        value = None if default is None else argument_of(text, default, relation)
        return shift(relation.scalar(text, inner.this), int(offset.this) if offset is not None else 1, value)
    if not is_aggregate(inner) or isinstance(inner, _OTHERS):
        fix = (
            "There are the aggregates of GROUP BY, ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, FIRST_VALUE and LAST_VALUE."
        )
        raise unsayable(text, node, f"{inner.key.upper()} over rows", fix)
    return measure(text, inner, relation)


def _frame(text: Text, node: exp.Window, *, timed: bool) -> Frame:
    """The frame of an OVER; of rows in order of event time a RANGE is a duration, of others a number or a duration."""
    spec = node.args.get("spec")
    if spec is None:
        return Frame()
    kind, start, side = spec.args.get("kind"), spec.args.get("start"), spec.args.get("start_side")
    end = spec.args.get("end")
    fix = "Frames end with the row: ROWS 10 PRECEDING, RANGE INTERVAL '1' HOUR PRECEDING, ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW."
    if end not in {None, _CURRENT} or spec.args.get("exclude"):
        raise unsayable(text, node, "a frame with rows behind or without the row", fix)
    if kind not in {"ROWS", "RANGE"}:
        raise unsayable(text, node, f"{kind} as a frame", fix)
    if start == _CURRENT:
        return Frame("rows", 0) if kind == "ROWS" else Frame("range", 0)
    if side != "PRECEDING":
        raise unsayable(text, node, "a frame that begins behind the row", fix)
    if start == "UNBOUNDED":
        return Frame("rows" if kind == "ROWS" else "range")
    if kind == "ROWS":
        if not isinstance(start, exp.Literal) or not start.is_int:
            raise unsayable(text, node, "another number of rows than a whole one", fix)
        return Frame("rows", int(start.this))
    if isinstance(start, exp.Literal) and start.is_int and not timed:
        return Frame("values", int(start.this))
    return Frame("range", span(length(text, start), text.at(node)))


def numbered(text: Text, node: exp.Expr, relation: Relation, options: Options, changing: Changing) -> Relation:
    """The rows of a relation with the numbering that it says, where no first rows are taken of it."""
    ranked = relation.ranked
    if ranked is None:
        return relation
    timed = len(ranked.order) == 1 and ranked.order[0].time and not ranked.order[0].descending
    timed = timed and changing != ALWAYS
    if not (timed or (changing != NEVER and ranked.order)) or ranked.windowed or relation.windowed is not None:
        fix = (
            f"Take the first of each: SELECT * FROM (...) WHERE {ranked.name} <= 3; or number rows in order of event time; "
            "or say that later rows change numbers, at the end: EMIT CHANGES."
        )
        raise DefinitionError(
            text.at(node), "the first rows of each key", "numbers of all rows", fix, code="DEFINITION-384"
        )
    column = new_name(ranked.name, relation.stream.schema.names)
    measure_of_row = Measure(column, _NUMBERED[ranked.numbering](), Frame())
    divided = Division(ranked.keys, None if timed else ranked.order)
    relation = _computed(relation, divided, [measure_of_row], options)
    table = next(iter(relation.tables), "")
    number = Name(table=table, name=ranked.name, text=itself(column), column=column)
    return replace(relation, ranked=None, names=(*relation.names, number))
