"""OVER: results of each row over the rows of its key before it, in order of event time or, where results may change, in any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph.over import over_rows
from floodmark.spec.graph.stream import KeyedStream, Stream
from floodmark.spec.keyed.over import Measure
from floodmark.spec.windowing.frames import Frame, dense_rank, rank, row_number
from floodmark.sql.options import Options
from floodmark.sql.over.results import ALWAYS, NEVER, Changing, Division, needs_later_rows, results_of
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import Item, Name, Relation, Sorted
from floodmark.sql.text import Text, derived_name, new_name

_NUMBERED = {"row_number": row_number, "rank": rank, "dense_rank": dense_rank}


@dataclass(frozen=True, slots=True)
class Computed:
    """A relation with results over its rows.

    Args:
        relation: with a column for each of them.
        columns: text of the OVER -> the expression over the columns of its results.
    """

    relation: Relation
    columns: dict[str, str]

    def scalar(self, text: Text, node: exp.Expr) -> str:
        """The text of an expression over the columns of the stream, checked."""
        read = self.relation.read(text)

        def replacement(part: exp.Expr) -> str | None:
            return self.columns[text.of(part)] if isinstance(part, exp.Window) else read(part)

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
    """The rows of a SELECT with the results of each OVER in its columns: one step for each key and order, one after the other.

    Raises:
        DefinitionError: DEFINITION-382, another order or frame than a stream has.
    """
    if relation.windowed is not None:
        fix = "Leave the window out, or aggregate over it: GROUP BY window_start, window_end."
        raise unsayable(text, select, "OVER the rows of windows", fix)
    written = {text.of(node): node for _, value in reversed(items) for node in reversed(list(overs(value)))}
    nodes = [(key, named(select, node)) for key, node in reversed(written.items())]
    if changing != NEVER and any(needs_later_rows(node) for _, node in nodes):
        changing = ALWAYS
    results = [(key, results_of(text, node, relation, changing)) for key, node in nodes]
    divisions = {part.division for _, result in results for part in result.parts}
    if len(divisions) > 1 and any(division.order is not None for division in divisions):
        results = [(key, results_of(text, node, relation, ALWAYS)) for key, node in nodes]
    taken = [*relation.stream.schema.names, *(name for name, value in items if not isinstance(value, exp.Window))]
    names = {text.of(value): name for name, value in reversed(items) if isinstance(value, exp.Window)}
    columns, measures = dict[str, str](), dict[Division, list[Measure]]()
    for key, result in results:
        own: list[str] = []
        for part in result.parts:
            name = names.get(key) or derived_name(key)
            name = name if len(result.parts) == 1 else f"{name}_{len(own) + 1}"
            own.append(new_name(name, taken))
            taken.append(own[-1])
            measures.setdefault(part.division, []).append(Measure(own[-1], part.row, part.frame))
        columns[key] = result.form.format(*map(itself, own))
    for division, own_measures in measures.items():
        relation = _computed(relation, division, own_measures, options)
    return Computed(relation, columns)


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


def partitioned(stream: Stream[Any], keys: dict[str, str]) -> KeyedStream:
    """(stream, column -> expression) -> the stream by these keys."""
    new: dict[str, Any] = {name: text for name, text in keys.items() if text != itself(name)}
    stream = stream.with_columns(**new) if new else stream
    return stream.key_by(*keys) if keys else KeyedStream(stream, ())


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
    number = Name(table=ranked.table, name=ranked.name, text=itself(column), column=column)
    return replace(relation, ranked=None, names=ranked.among(relation.names, number))
