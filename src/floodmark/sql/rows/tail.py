"""ORDER BY and LIMIT at the end of a statement: rows in order of event time, and the first rows of all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from floodmark.spec.graph.over import over_rows
from floodmark.spec.graph.stream import KeyedStream, Stream
from floodmark.spec.keyed.over import Measure
from floodmark.spec.windowing.frames import Frame, row_number
from floodmark.sql.dialect import CHANGES
from floodmark.sql.options import Options
from floodmark.sql.over import sort_of, sorted_by
from floodmark.sql.refusals import LIMITED, SORTED, unsayable
from floodmark.sql.relation import EVENT_TIME, Relation
from floodmark.sql.text import Text, new_name
from floodmark.sql.windows import is_clock


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a statement.

    Args:
        order: the parts of ORDER BY.
        limit: the number of LIMIT; None for all rows.
    """

    order: tuple[exp.Expr, ...] = ()
    limit: exp.Expr | None = None

    def __bool__(self) -> bool:
        return bool(self.order) or self.limit is not None

    def over(self, text: Text, result: Relation, before: Relation, emit: str, options: Options) -> Relation:
        """The rows of a SELECT as its end says.

        Args:
            text: of the statement.
            result: the rows.
            before: the rows of FROM, whose times the order may name too.
            emit: what EMIT says.
            options: of the step with state.

        Raises:
            DefinitionError: DEFINITION-382, an order in which a stream does not come, first rows without EMIT CHANGES.
        """
        if self.limit is None:
            return self._sorted(text, result, before, emit, options)
        if emit != CHANGES:
            raise unsayable(text, self.limit, "LIMIT", LIMITED)
        if not (isinstance(self.limit, exp.Literal) and self.limit.is_int and int(self.limit.this) > 0):
            raise unsayable(text, self.limit, "LIMIT by another number than a whole one from 1", "Write LIMIT 10.")
        clocked = self._clocked(text, result, before)
        parts = () if clocked else tuple(sort_of(text, part, result) for part in self.order)
        stream, by = sorted_by(result.stream, parts)
        latest = clocked and bool(self.order[0].args.get("desc"))
        first = KeyedStream(stream, ()).top(int(self.limit.this), by, latest=latest)
        names = tuple(replace(name, time=False) for name in result.names)
        return replace(result, stream=_only(first, result.stream), names=names, spans=None)

    def _sorted(self, text: Text, result: Relation, before: Relation, emit: str, options: Options) -> Relation:
        """The rows in the order of ORDER BY, which is that in which they come, or that of event time."""
        ascending = len(self.order) == 1 and not self.order[0].args.get("desc")
        if ascending and self._clocked(text, result, before):
            return result
        if not ascending or emit == CHANGES or not self._timed(text, result, before):
            raise unsayable(text, self.order[0], "ORDER BY", SORTED)
        stream: Stream[Any] = result.stream
        number = new_name("row_number", stream.schema.names)
        measures = [Measure(number, row_number(), Frame())]
        ordered = over_rows(KeyedStream(stream, ()), measures, late=options.late_of(stream), on_error=options.on_error)
        return replace(result, stream=_only(ordered, stream))

    def _clocked(self, text: Text, result: Relation, before: Relation) -> bool:
        column = self.order[0].this if len(self.order) == 1 else None
        if not isinstance(column, exp.Expr):
            return False
        located = [side.find(text, column) for side in (result, before)] if isinstance(column, exp.Column) else [None]
        return is_clock(column, next((name for name in located if name is not None), None))

    def _timed(self, text: Text, result: Relation, before: Relation) -> bool:
        column = self.order[0].this
        if not isinstance(column, exp.Column):
            return False
        located = [name for side in (result, before) if (name := side.find(text, column)) is not None]
        return located[0][0].time if located else column.name.lower() == EVENT_TIME


def _only(stream: Stream[Any], like: Stream[Any]) -> Stream[Any]:
    """The columns of another stream alone."""
    names = like.schema.names
    return stream if stream.schema.names == names else stream.select(*names)


def taken(tree: exp.Expr) -> Tail:
    """ORDER BY and LIMIT of a SELECT, which are taken out of it."""
    if not isinstance(tree, exp.Select):
        return Tail()
    order, limit = tree.args.get("order"), tree.args.get("limit")
    tree.set("order", None)
    if isinstance(limit, exp.Limit):
        tree.set("limit", None)
    number = limit.expression if isinstance(limit, exp.Limit) else None
    return Tail(tuple(order.expressions) if order is not None else (), number)
