"""ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) = 1: the first or the last row of each key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph import steps
from floodmark.spec.graph.stream import Stream
from floodmark.spec.windowing.aggregates import first, last, max_by, min_by
from floodmark.sql.dialect import CHANGES
from floodmark.sql.options import Options
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import BOUNDS, EVENT_TIME, Name, Ranked, Relation
from floodmark.sql.text import Text
from floodmark.sql.windows import is_clock

_WAYS = (
    'Keep the first of a day by the header line `-- within: 1 day` (or within="1 day"), with ORDER BY the event time; or the first or last so far, '
    "which later rows change, by EMIT CHANGES at the end; or the first or last of a window: PARTITION BY window_start, window_end, k."
)


def ranked_of(text: Text, name: str, node: exp.Window, relation: Relation) -> Ranked:
    """The numbering of a column of SELECT."""
    if not isinstance(node.this, exp.RowNumber) or node.args.get("spec") is not None:
        fix = "Of ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) the first is kept; other results over rows are columns of a SELECT."
        raise unsayable(text, node, "OVER", fix)
    keys, windowed = [], False
    for part in node.args.get("partition_by") or ():
        located = relation.find(text, part) if isinstance(part, exp.Column) else None
        if located is None or (not located[0].column and located[0].text):
            raise unsayable(text, part, "PARTITION BY an expression", "Compute the column in a subquery and name it.")
        windowed |= not located[0].text
        keys += [located[0].column] if located[0].text else []
    order = node.args.get("order")
    by = order.expressions if order is not None else []
    if len(by) != 1:
        raise unsayable(
            text,
            node,
            "ROW_NUMBER without ORDER BY one column",
            "Order by the event time, or by a column without nulls.",
        )
    column = by[0].this
    located = relation.find(text, column) if isinstance(column, exp.Column) else None
    if is_clock(column, located):
        return Ranked(
            name=name, keys=tuple(keys), windowed=windowed, by="", time=False, last=bool(by[0].args.get("desc"))
        )
    if located is None or not located[0].column:
        raise unsayable(
            text,
            column,
            "ORDER BY another expression",
            f"Order by a column of the rows; {EVENT_TIME} is no column here.",
        )
    if not located[0].time and not never_null(relation.stream.step, located[0].column):
        fix = f"A row without it has no place in the order: take the others, WHERE {located[0].name} IS NOT NULL in the subquery."
        raise unsayable(text, column, f"ORDER BY '{located[0].name}', which may be null", fix)
    desc = bool(by[0].args.get("desc"))
    return Ranked(name=name, keys=tuple(keys), windowed=windowed, by=located[0].column, time=located[0].time, last=desc)


def never_null(step: steps.Step, column: str) -> bool:
    """Whether a column of a step has a value in every row: by its contract, or by a filter ``column IS NOT NULL``."""
    match step:
        case steps.Filter(condition=condition) if condition.lower() == f"{itself(column)} is not null".lower():
            return True
        case steps.Filter() | steps.Expect():
            return never_null(step.parent, column)
        case steps.Project(columns=columns):
            text = dict(columns)[column].strip("`")
            return text in step.parent.schema and never_null(step.parent, text)
        case steps.Read(schema=schema):
            return not schema[column].nullable
        case _:
            return False


def rank_of(
    text: Text, conditions: list[exp.Expr], relation: Relation, qualify: exp.Expr | None
) -> tuple[list[exp.Expr], Ranked | None]:
    """(conditions of WHERE) -> those that are no ``rn = 1``, and the numbering whose first row is kept; None for none."""
    if qualify is not None:
        node = qualify.this
        window = next(node.find_all(exp.Window), None)
        if window is None or not _is_first(node, window):
            raise unsayable(
                text, qualify, "QUALIFY", "Write QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) = 1."
            )
        return conditions, ranked_of(text, "row_number", window, relation)
    if relation.ranked is None:
        return conditions, None
    left = []
    ranked = None
    for condition in conditions:
        columns = [column for column in condition.find_all(exp.Column) if column.name == relation.ranked.name]
        if columns and _is_first(condition, columns[0]):
            ranked = relation.ranked
        elif columns:
            fix = f"Keep the first of each: WHERE {relation.ranked.name} = 1. The first n are those of an aggregate: TOP_N(x, n) in a window."
            raise unsayable(text, condition, "several rows of each key", fix)
        else:
            left.append(condition)
    return left, ranked


def _is_first(node: exp.Expr, number: exp.Expr) -> bool:
    """Whether a condition is ``number = 1``, ``number <= 1`` or ``number < 2``."""
    least: dict[type[exp.Expr], str] = {exp.EQ: "1", exp.LTE: "1", exp.LT: "2"}
    if type(node) not in least:
        return False
    first, second = node.this, node.expression
    return first is number and isinstance(second, exp.Literal) and second.this == least[type(node)]


def ranked_rows(
    text: Text, node: exp.Select, relation: Relation, ranked: Ranked, emit: str, options: Options
) -> Relation:
    """The first or last row of each key."""
    relation = replace(relation, ranked=None)
    stream, schema = relation.stream, relation.stream.schema
    pick = max_by if ranked.last else min_by
    arrived = last if ranked.last else first
    picked: dict[str, Any] = {
        name: pick(itself(name), itself(ranked.by)) if ranked.by else arrived(itself(name))
        for name in schema.names
        if name not in ranked.keys
    }
    if ranked.windowed and relation.windowed is not None and picked:
        keyed = stream.key_by(*ranked.keys) if ranked.keys else stream
        settings: dict[str, Any] = {"late": options.late_of(stream), "on_error": options.on_error}
        settings |= {"time": "processing"} if relation.windowed.clocked else {"allowed_lateness": options.lateness}
        return _named(relation, keyed.window(relation.windowed.window, **settings).aggregate(**picked), ranked)
    if ranked.windowed or relation.windowed is not None:
        fix = "Write PARTITION BY window_start, window_end, k ORDER BY a column."
        raise unsayable(text, node, "ROW_NUMBER beside a window", fix)
    if emit == CHANGES and picked:
        return _named(
            relation, stream.key_by(*ranked.keys).rolling(**picked) if ranked.keys else stream.rolling(**picked), ranked
        )
    clocked = not ranked.by
    if options.within and ranked.keys and not ranked.last and (ranked.time or clocked):
        order: Any = "arrival" if clocked else "event_time"
        kept_rows = stream.key_by(*ranked.keys).deduplicate(options.within, order=order)
        return replace(relation, stream=kept_rows)
    raise DefinitionError(
        text.at(node),
        "the first row of a key within a time",
        "ROW_NUMBER over all of time",
        _WAYS,
        code="DEFINITION-395",
    )


def _named(relation: Relation, stream: Stream[Any], ranked: Ranked) -> Relation:
    names = [replace(name, time=False) for name in relation.names if name.column in stream.schema]
    tables = relation.tables or [""]
    bounds = [
        Name(table=tables[0], name=name, column=name, text=name, bound=name) for name in BOUNDS[:2] if ranked.windowed
    ]
    spans = relation.windowed.window if ranked.windowed and relation.windowed is not None else None
    return Relation(stream=stream, names=(*names, *bounds), spans=spans)
