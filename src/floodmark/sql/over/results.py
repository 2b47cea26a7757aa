"""What an OVER says: the key and the order of a row, its frame, and the results that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from floodmark.spec.expressions import itself
from floodmark.spec.windowing.aggregates import ORDERED, count
from floodmark.spec.windowing.frames import Frame, OverRow, dense_rank, lag, lead, nth_value, rank, row_number
from floodmark.sql.functions import argument_of
from floodmark.sql.measures import is_aggregate, measure
from floodmark.sql.over.frames import CURRENT_ROW, ends_elsewhere, frame_of
from floodmark.sql.reading.spellings import COMPOSED
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import EVENT_TIME, Relation, Sorted
from floodmark.sql.text import Text, derived_name, new_name
from floodmark.sql.windows import is_clock

_POSITIONS = {exp.RowNumber: row_number, exp.Rank: rank, exp.DenseRank: dense_rank}
_EVERYWHERE = Sorted(text="1", column="", time=False, descending=False, nulls_first=True)
"""An order in which all rows of a key are equal."""
_FIRSTS = (exp.Lag, exp.Lead, exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.NthValue)

Changing = Literal["never", "where needed", "always"]
"""Whether results over rows may change: never; in another order than that of event time, or over rows that are taken back; always."""
NEVER: Changing = "never"
WHERE_NEEDED: Changing = "where needed"
ALWAYS: Changing = "always"


@dataclass(frozen=True, slots=True)
class Share:
    """A function of OVER that is an expression over a result of the row and the number of rows of its key.

    Args:
        word: its name.
        row: the result of the row.
        form: ``{0}`` is that result, ``{1}`` the number of rows, ``{n}`` the number in parentheses.
    """

    word: str
    row: Callable[[], OverRow]
    form: str


_SMALL, _LARGER = "({1} DIV {n})", "({1} % {n})"
SHARES: dict[type[exp.Expr], Share] = {
    exp.PercentRank: Share(
        "PERCENT_RANK()", rank, "CASE WHEN {1} = 1 THEN CAST(0 AS double) ELSE ({0} - 1) / ({1} - 1) END"
    ),
    exp.CumeDist: Share("CUME_DIST()", count, "({0} / {1})"),
    exp.Ntile: Share(
        "NTILE(n)",
        row_number,
        f"CASE WHEN {{0}} <= {_LARGER} * ({_SMALL} + 1) THEN ({{0}} - 1) DIV ({_SMALL} + 1) + 1 "
        f"ELSE ({{0}} - 1 - {_LARGER} * ({_SMALL} + 1)) DIV greatest({_SMALL}, 1L) + {_LARGER} + 1 END",
    ),
}  # the first {_LARGER} groups of NTILE have one row more than the others


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
class Part:
    """One result of each row that an OVER is made of."""

    division: Division
    row: OverRow
    frame: Frame


@dataclass(frozen=True, slots=True)
class Results:
    """What an OVER is: results of each row, and the text in which ``{0}``, ``{1}`` stand for their columns."""

    parts: tuple[Part, ...]
    form: str = "{0}"


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


def needs_later_rows(node: exp.Window) -> bool:
    """Whether the result of a row depends on rows behind it."""
    return isinstance(node.this, (exp.Lead, exp.NthValue, *SHARES)) or ends_elsewhere(node)


def results_of(text: Text, node: exp.Window, relation: Relation, changing: Changing) -> Results:
    """The results that an OVER is made of."""
    share = SHARES.get(type(node.this))
    if isinstance(node.this.this if isinstance(node.this, exp.Filter) else node.this, COMPOSED):
        fix = "Write what it is made of: array_join(COLLECT_LIST(x) OVER w, ','), or STDDEV(x) OVER w * STDDEV(x) OVER w, with WINDOW w AS (...)."
        raise unsayable(text, node, text.of(node), fix)
    if share is None:
        node = forwards(text, node, relation, changing)
        division = _division(text, node, relation, changing)
        timed = division.order is None or division.order[0].time
        return Results((Part(division, _measure(text, node, relation), frame_of(text, node, timed=timed)),))
    word = share.word
    if changing == NEVER:
        fix = f"A later row changes {word} of those before it: say so, at the end: EMIT CHANGES."
        raise unsayable(text, node, f"{word} of results that do not change", fix)
    if node.args.get("spec") is not None or node.args.get("order") is None:
        fix = f"Write {word} OVER (PARTITION BY k ORDER BY x): it is over all rows of the key."
        raise unsayable(text, node, f"{word} with a frame, or without ORDER BY", fix)
    division = _division(text, node, relation, ALWAYS)
    whole = Part(Division(division.keys, (_EVERYWHERE,)), count(), Frame())
    return Results((Part(division, share.row(), Frame()), whole), share.form.replace("{n}", str(_tiles(text, node))))


def _tiles(text: Text, node: exp.Window) -> int:
    """The number of NTILE; 0 for another function."""
    if not isinstance(node.this, exp.Ntile):
        return 0
    number = node.this.this
    if not (isinstance(number, exp.Literal) and number.is_int and int(number.this) > 0):
        raise unsayable(text, node, "NTILE of another number than a whole one from 1", "Write NTILE(4).")
    return int(number.this)


def forwards(text: Text, node: exp.Window, relation: Relation, changing: Changing) -> exp.Window:
    """An OVER whose frame ends behind the row as one over rows before it, where that has the same results: in the reversed order, or without an order."""
    spec = node.args.get("spec")
    if spec is None or not ends_elsewhere(node) or spec.args.get("exclude"):
        return node
    if changing == NEVER:
        fix = "A row would wait for later ones: say that they change its result, at the end: EMIT CHANGES. Or end the frame with the row: ROWS 10 PRECEDING."
        raise unsayable(text, node, "a frame that does not end with the row, of results that do not change", fix)
    kind, start, end = (spec.args.get(name) for name in ("kind", "start", "end"))
    whole = start == "UNBOUNDED" and end == "UNBOUNDED"
    inner, order = node.this, node.args.get("order")
    first = isinstance(inner, (exp.First, exp.FirstValue))
    of_order = _is_of_order(text, inner, relation)
    reversible = kind == "RANGE" and not of_order and (start == CURRENT_ROW or end == "UNBOUNDED")
    if not (reversible or (whole and (first or not of_order))):
        return node  # the other way round, rows that are equal in the order would be, too
    made = exp.Window(this=inner, partition_by=node.args.get("partition_by"), order=order)
    made.meta.update(node.meta)
    if whole:
        made.set("order", order if first else None)
        return made
    made.set("order", order and exp.Order(expressions=[_reversed(part) for part in order.expressions]))
    side = {"PRECEDING": "FOLLOWING", "FOLLOWING": "PRECEDING"}.get(str(spec.args.get("start_side")))
    made.set("spec", exp.WindowSpec(kind=kind, start=end, start_side="PRECEDING", end=start, end_side=side))
    return made


def _is_of_order(text: Text, node: exp.Expr, relation: Relation) -> bool:
    """Whether a function of the same rows in another order has another result."""
    if isinstance(node, _FIRSTS) or not is_aggregate(node):
        return True
    return getattr(measure(text, node, relation), "function", "") in ORDERED


def _reversed(part: exp.Expr) -> exp.Expr:
    """A part of ORDER BY the other way round."""
    turned = exp.Ordered(this=part.this, desc=not part.args.get("desc"), nulls_first=not part.args.get("nulls_first"))
    turned.meta.update(part.meta)
    return turned


def _division(text: Text, node: exp.Window, relation: Relation, changing: Changing) -> Division:
    """The keys of an OVER, and its order."""
    order = node.args.get("order")
    by = order.expressions if order is not None else []
    time = next((name.name for name in relation.names if name.time), EVENT_TIME)
    fix = (
        f"Rows come in order of event time: ORDER BY {time}. By another order later rows change results of earlier ones: say so, at the end, "
        "by EMIT CHANGES, where the state holds all rows; or take the first n, by ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n."
    )
    if not by and changing != NEVER and is_aggregate(node.this) and not isinstance(node.this, _FIRSTS):
        return Division(partition_of(text, node, relation), (_EVERYWHERE,))
    if not by or (len(by) != 1 and changing == NEVER):
        raise unsayable(text, node, "OVER without ORDER BY one column", fix)
    if isinstance(node.this, (exp.Lead, exp.NthValue)) and changing == NEVER:
        wait = "A row would wait for later ones: say that they change its result, at the end: EMIT CHANGES."
        word = "LEAD" if isinstance(node.this, exp.Lead) else "NTH_VALUE"
        raise unsayable(text, node, f"{word} of results that do not change", wait)
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
    if isinstance(inner, exp.NthValue):
        n = inner.args.get("offset")
        if not (isinstance(n, exp.Literal) and n.is_int and int(n.this) > 0):
            raise unsayable(text, node, "NTH_VALUE of another number than a whole one from 1", "Write NTH_VALUE(x, 2).")
        return nth_value(relation.scalar(text, inner.this), int(n.this))
    if isinstance(inner, exp.IgnoreNulls):
        fix = "Leave out nulls in the expression: MAX_BY(x, CASE WHEN x IS NOT NULL THEN ts END) OVER (... ROWS UNBOUNDED PRECEDING) is the last value so far."
        raise unsayable(text, node, "IGNORE NULLS", fix)
    if not is_aggregate(inner):
        fix = (
            "There are the aggregates of GROUP BY, ROW_NUMBER, RANK, DENSE_RANK, NTILE, PERCENT_RANK, CUME_DIST, LAG, LEAD, FIRST_VALUE, LAST_VALUE "
            "and NTH_VALUE."
        )
        raise unsayable(text, node, f"{inner.key.upper()} over rows", fix)
    return measure(text, inner, relation)
