"""Numbers of rows by an order, of which the first ones are taken: ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= n."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph import steps
from floodmark.spec.graph.stream import KeyedStream, Stream
from floodmark.spec.values.schema import Schema
from floodmark.spec.windowing.aggregates import first, last, max_by, min_by
from floodmark.sql.dialect import CHANGES
from floodmark.sql.joining.joins import conjuncts
from floodmark.sql.options import Options
from floodmark.sql.over.computed import named, partitioned, sorted_by
from floodmark.sql.over.results import partition_of, sort_of
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import BOUNDS, WINDOW_TIME, Name, Ranked, Relation
from floodmark.sql.text import Text, derived_name, new_name
from floodmark.sql.windows import is_clock

_WAYS = (
    'Keep the first of a day by the header line `-- within: 1 day` (or within="1 day"), with ORDER BY the event time; or the first or last so far, '
    "which later rows change, by EMIT CHANGES at the end; or the first or last of a window: PARTITION BY window_start, window_end, k."
)
_NUMBERINGS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_ONE = "CAST(1 AS bigint)"


@dataclass(frozen=True, slots=True)
class Firsts:
    """The rows of a numbering that are taken.

    Args:
        ranked: the numbering.
        n: the greatest number.
        left: conditions over the number that are still to be filtered by.
        shown: whether the statement reads the number.
    """

    ranked: Ranked
    n: int
    left: tuple[exp.Expr, ...] = ()
    shown: bool = False


def is_numbering(node: exp.Expr) -> bool:
    """Whether an expression numbers rows, of which the statement around it may take the first ones."""
    return isinstance(node, exp.Window) and type(node.this) in _NUMBERINGS and not node.args.get("spec")


def ranked_of(text: Text, name: str, written: exp.Window, relation: Relation, select: exp.Select) -> Ranked:
    """The numbering of a column of SELECT."""
    node = named(select, written)
    if type(node.this) not in _NUMBERINGS or node.args.get("spec") is not None:
        fix = "Of ROW_NUMBER, RANK and DENSE_RANK the first rows are taken; other results over rows are columns of a SELECT."
        raise unsayable(text, written, "OVER", fix)
    windowed = any(_is_bound(text, part, relation) for part in node.args.get("partition_by") or ())
    rows = exp.Window(
        this=node.this,
        partition_by=[part for part in node.args.get("partition_by") or () if not _is_bound(text, part, relation)],
    )
    order = node.args.get("order")
    by = order.expressions if order is not None else []
    if not by:
        raise unsayable(
            text, written, "a number of rows without ORDER BY", "Order by the event time, or by other columns."
        )
    numbering, keys = _NUMBERINGS[type(node.this)], partition_of(text, rows, relation)
    clocks = [part for part in by if is_clock(part.this, _located(text, part.this, relation))]
    if clocks:
        if len(by) > 1:
            raise unsayable(text, written, "ORDER BY the clock and other columns", "Order by the one or the others.")
        descending = bool(by[0].args.get("desc"))
        return Ranked(name=name, numbering=numbering, keys=keys, windowed=windowed, order=(), last=descending)
    parts = tuple(sort_of(text, part, relation) for part in by)
    return Ranked(name=name, numbering=numbering, keys=keys, windowed=windowed, order=parts)


def selected(ranked: Ranked, columns: list[tuple[str, str]], schema: Schema) -> tuple[Ranked, list[tuple[str, str]]]:
    """(numbering, columns of its SELECT, those before it) -> the numbering over these, and the columns with those that it needs too."""
    columns = list(columns)

    def column(text: str) -> str:
        for name, rendered in columns:
            if rendered == text:
                return name
        plain = text.strip("`")
        name = new_name(plain if plain in schema else derived_name(text), [name for name, _ in columns])
        columns.append((name, text))
        return name

    keys = tuple((name, itself(name)) for name in (column(text) for _, text in ranked.keys))
    order = []
    for by in ranked.order:
        name = column(by.text)
        order.append(replace(by, column=name, text=itself(name)))
    return replace(ranked, keys=keys, order=tuple(order)), columns


def _located(text: Text, node: exp.Expr, relation: Relation) -> tuple[Name, exp.Expr] | None:
    return relation.find(text, node) if isinstance(node, exp.Column) else None


def _is_bound(text: Text, node: exp.Expr, relation: Relation) -> bool:
    located = _located(text, node, relation)
    return located is not None and not located[0].text


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


def firsts_of(
    text: Text, node: exp.Select, conditions: list[exp.Expr], relation: Relation, *, changing: bool
) -> tuple[list[exp.Expr], Firsts | None]:
    """(conditions of WHERE) -> those that are over no number, and the rows that are taken of a numbering; None for all of them.

    Without a greatest number all rows are numbered, where results may be ``changing``.
    """
    qualify = node.args.get("qualify")
    if qualify is not None:
        return conditions, _qualified(text, node, qualify, relation)
    ranked = relation.ranked
    if ranked is None:
        return conditions, None
    over = [condition for condition in conditions if _reads(condition, ranked)]
    bounds = {id(condition): _most(condition, ranked) for condition in over}
    known = [most for most in bounds.values() if most is not None]
    others = [condition for condition in conditions if condition not in over]
    if not known:
        if over and not changing:
            fix = f"Take the first ones: WHERE {ranked.name} <= 3; or say that later rows change numbers, at the end: EMIT CHANGES."
            raise unsayable(text, over[0], "rows by their number without a greatest one", fix)
        return conditions, None
    left = tuple(condition for condition in over if not _is_from_one(condition, ranked))
    selected = [*node.expressions, *others, *(part for part in (node.args.get("group"),) if part is not None)]
    shown = bool(left) or any(_reads(part, ranked) or _is_star(part) for part in selected)
    return others, Firsts(ranked, min(known), left, shown)


def _qualified(text: Text, node: exp.Select, qualify: exp.Expr, relation: Relation) -> Firsts:
    """The rows that QUALIFY takes, by an OVER of its own or by the name of one in SELECT."""
    parts = [qualify.this] if isinstance(qualify.this, exp.Window) else list(conjuncts(qualify.this))
    windows = {item.alias: item.this for item in node.expressions if isinstance(item, exp.Alias)}

    def of(condition: exp.Expr) -> tuple[exp.Window, int] | None:
        own = next(condition.find_all(exp.Window), None)
        names = [column.name for column in condition.find_all(exp.Column)]
        alias = next((name for name in names if isinstance(windows.get(name), exp.Window)), "") if own is None else ""
        window = own if own is not None else windows.get(alias)
        most = _bound(
            condition, lambda part: part is own or (bool(alias) and isinstance(part, exp.Column) and part.name == alias)
        )
        return (window, most) if isinstance(window, exp.Window) and most is not None and is_numbering(window) else None

    numbered = next((part for part in parts if of(part) is not None), None)
    others = tuple(part for part in parts if part is not numbered)
    over = any(part.find(exp.Window) or _reads_any(part, windows) for part in others)
    if numbered is None or over:
        fix = (
            "Write QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) = 1; conditions over other results are a WHERE around them: "
            "SELECT * FROM (SELECT *, SUM(x) OVER (PARTITION BY k ORDER BY ts) AS total FROM t) WHERE total > 100."
        )
        raise unsayable(text, qualify, "QUALIFY of more than the first rows of a numbering", fix)
    window, most = of(numbered) or (None, 0)
    assert window is not None
    number = next((name for name, value in windows.items() if isinstance(value, exp.Window)), "")
    ranked = ranked_of(text, number or "row_number", window, relation, node)
    return Firsts(ranked, most, others, shown=bool(number))


def _reads_any(node: exp.Expr, windows: dict[str, exp.Expr]) -> bool:
    return any(isinstance(windows.get(column.name), exp.Window) for column in node.find_all(exp.Column))


def _reads(node: exp.Expr, ranked: Ranked) -> bool:
    return any(_is_number(column, ranked) for column in node.find_all(exp.Column))


def _is_number(node: exp.Expr, ranked: Ranked) -> bool:
    """Whether an expression is the number, and no column of that name in another table."""
    if not isinstance(node, exp.Column) or node.name.lower() != ranked.name.lower():
        return False
    return not node.table or node.table.lower() == ranked.table.lower()


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _most(condition: exp.Expr, ranked: Ranked) -> int | None:
    """The greatest number for which a condition may hold; None if it says none."""
    return _bound(condition, lambda part: _is_number(part, ranked))


def _bound(condition: exp.Expr, is_number: Any) -> int | None:
    if isinstance(condition, exp.Between) and is_number(condition.this):
        return _whole(condition.args["high"])
    if isinstance(condition, (exp.EQ, exp.LTE, exp.LT)) and is_number(condition.this):
        most = _whole(condition.expression)
        return most if most is None else most - isinstance(condition, exp.LT)
    if isinstance(condition, (exp.EQ, exp.GTE, exp.GT)) and is_number(condition.expression):
        most = _whole(condition.this)
        return most if most is None else most - isinstance(condition, exp.GT)
    return None


def _is_from_one(condition: exp.Expr, ranked: Ranked) -> bool:
    """Whether a condition takes all numbers from 1 up to its bound."""
    most = _most(condition, ranked)
    if isinstance(condition, exp.Between):
        return _whole(condition.args["low"]) == 1
    return most is not None and (most == 1 or not isinstance(condition, exp.EQ))


def _whole(node: exp.Expr) -> int | None:
    return int(node.this) if isinstance(node, exp.Literal) and node.is_int else None


def first_rows(
    text: Text, node: exp.Select, relation: Relation, firsts: Firsts, emits: tuple[str, str], options: Options
) -> Relation:
    """The first rows of each key; ``emits``: EMIT of the SELECT, and that of the whole statement."""
    ranked, emit = firsts.ranked, emits[0]
    if firsts.n < 1:
        raise unsayable(text, node, "the first rows, none of them", f"Take at least one: WHERE {ranked.name} <= 1.")
    windowed, relation = relation.windowed, replace(relation, ranked=None)
    if windowed is not None and not ranked.windowed:
        fix = "Write PARTITION BY window_start, window_end, k ORDER BY a column."
        raise unsayable(text, node, "ROW_NUMBER beside a window", fix)
    if windowed is None and emit != CHANGES and not of_windows(relation, ranked):
        if _is_within(firsts, options) or emits[1] != CHANGES:
            return _within(text, node, relation, firsts, options)
        emit = CHANGES
    if _is_aggregated(relation.stream.step, firsts) and (windowed is not None or emit == CHANGES):
        return _aggregated(relation, firsts, options)
    return _several(relation, firsts, emit, options)


def _is_aggregated(step: steps.Step, firsts: Firsts) -> bool:
    """Whether the first row is one aggregate per column: by one column without nulls, or in the order in which rows come."""
    ranked = firsts.ranked
    if firsts.n != 1 or ranked.numbering != "row_number" or any(text != itself(key) for key, text in ranked.keys):
        return False
    if {name for name, _ in ranked.keys} >= set(step.schema.names):
        return False
    if not ranked.order:
        return True
    by = ranked.order[0]
    return len(ranked.order) == 1 and bool(by.column) and (by.time or never_null(step, by.column))


def _aggregated(relation: Relation, firsts: Firsts, options: Options) -> Relation:
    """The first or last row of each key, as an aggregate per column."""
    stream, ranked, windowed = relation.stream, firsts.ranked, relation.windowed
    keys = [name for name, _ in ranked.keys]
    by = ranked.order[0] if ranked.order else None
    descending = by.descending if by is not None else ranked.last
    pick, arrived = (max_by, last) if descending else (min_by, first)
    picked: dict[str, Any] = {
        name: pick(itself(name), itself(by.column)) if by is not None else arrived(itself(name))
        for name in stream.schema.names
        if name not in keys
    }
    keyed = KeyedStream(stream, tuple(keys))
    if windowed is None and not options.ttl:
        return _named(relation, keyed.rolling(**picked), firsts, _ONE)
    if windowed is None:
        life, settings = options.life(stream)
        return _named(relation, keyed.window(life, **settings).aggregate(**picked), firsts, _ONE)
    held = keyed.window(windowed.window, **_settings(relation, options))
    return _named(relation, held.aggregate(**picked), firsts, _ONE)


def _several(relation: Relation, firsts: Firsts, emit: str, options: Options) -> Relation:
    """The first rows of each key by any order."""
    ranked, windowed = firsts.ranked, relation.windowed
    stream, by = sorted_by(relation.stream, ranked.order)
    number = new_name(ranked.name, [*stream.schema.names, *BOUNDS]) if firsts.shown else ""
    keyed = partitioned(stream, dict(ranked.keys))
    settings: dict[str, Any] = {"number": number, "numbering": ranked.numbering, "latest": ranked.last}
    if windowed is not None:
        first_ones = keyed.window(windowed.window, **_settings(relation, options)).top(firsts.n, by, **settings)
    elif options.ttl and emit == CHANGES:
        life, own = options.life(stream)
        first_ones = keyed.window(life, **own).top(firsts.n, by, **settings)
    else:
        first_ones = keyed.top(firsts.n, by, at_once=emit != CHANGES, **settings)
    return _named(relation, first_ones, firsts, itself(number), number)


def of_windows(relation: Relation, ranked: Ranked) -> bool:
    """Whether a numbering is of the results of each window: PARTITION BY has its end or its start, and all results of a window come at once."""
    keys = {name for name, text in ranked.keys if text == itself(name)}
    return relation.spans is not None and any(
        name.bound in BOUNDS[:2] and name.column in keys for name in relation.names
    )


def _settings(relation: Relation, options: Options) -> dict[str, Any]:
    assert relation.windowed is not None
    settings: dict[str, Any] = {"late": options.late_of(relation.stream), "on_error": options.on_error}
    clock: dict[str, Any] = {"time": "processing"}
    return settings | (clock if relation.windowed.clocked else {"allowed_lateness": options.lateness})


def _is_within(firsts: Firsts, options: Options) -> bool:
    """Whether the first row of each key within a time is taken."""
    ranked = firsts.ranked
    clocked, timed = not ranked.order, len(ranked.order) == 1 and ranked.order[0].time
    descending = ranked.last or any(by.descending for by in ranked.order)
    return bool(options.within and ranked.keys and not descending and (timed or clocked) and firsts.n == 1)


def _within(text: Text, node: exp.Select, relation: Relation, firsts: Firsts, options: Options) -> Relation:
    """The first row of each key within a time."""
    ranked, stream = firsts.ranked, relation.stream
    if _is_within(firsts, options):
        order: Any = "event_time" if ranked.order else "arrival"
        kept_rows = partitioned(stream, dict(ranked.keys)).deduplicate(options.within, order=order)
        return _named(relation, kept_rows, firsts, _ONE, timed=True)
    raise DefinitionError(
        text.at(node),
        "the first row of a key within a time",
        f"the first {firsts.n if firsts.n > 1 else 'row'} over all of time",
        _WAYS,
        code="DEFINITION-395",
    )


def _named(
    relation: Relation, stream: Stream[Any], firsts: Firsts, number: str, column: str = "", *, timed: bool = False
) -> Relation:
    """The first rows under the names of the relation, with the bounds of the window and the number where it is read."""
    table = next(iter(relation.tables), "")
    shown = Name(table=table, name=firsts.ranked.name, text=number, column=column)
    names = []
    for name in firsts.ranked.among(relation.names, shown) if firsts.shown else relation.names:
        if name is shown:
            names.append(name)
        elif not name.text and name.name in BOUNDS:
            text = WINDOW_TIME if name.name == BOUNDS[2] else name.name
            names.append(replace(name, text=text, column="" if name.time else name.name))
        elif name.column in stream.schema:
            names.append(name if timed else replace(name, time=False))
    return Relation(stream=stream, names=tuple(names))
