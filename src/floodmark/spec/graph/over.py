"""``over``: results of each row over the rows of its key before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve

from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span
from floodmark.core.types import parse
from floodmark.spec.expressions import itself, known_type
from floodmark.spec.graph import steps
from floodmark.spec.graph.connected import Processes, keyed_stream
from floodmark.spec.graph.top import order_of
from floodmark.spec.keyed.over import LATE, Measure, Over, OverChanging
from floodmark.spec.keyed.process import Process
from floodmark.spec.keyed.top import Ranking
from floodmark.spec.rows.checks import new_columns, one_of, unfit_setting
from floodmark.spec.values.schema import Column, Schema
from floodmark.spec.windowing.aggregates import Aggregate, result_type
from floodmark.spec.windowing.frames import ALL_ROWS, Frame, OverRow, Position, texts

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import KeyedStream, Stream

_PREFIX = "_over_"
"""Begins the names of columns that hold expressions of measures."""


class Overs(Processes):
    """Results over rows; mixed into ``KeyedStream``."""

    __slots__ = ()

    def over(
        self,
        *,
        rows: int | Literal["all"] | None = None,
        within: str | timedelta | int | None = None,
        following: str | timedelta | int = 0,
        order: str | Sequence[str] | None = None,
        late: steps.Late = "drop",
        on_error: steps.OnError = "stop",
        uid: str | None = None,
        **measures: OverRow,
    ) -> Stream[Any]:
        """Each row with results over the rows of its key up to it, in order of event time; rows of one event time in the order in which they landed.

        Example: ``bids.key_by("auction").over(rows=10, mean_price=mean("price"), before=lag("price"))``

        Args:
            rows: of that many rows before it and the row itself; ``"all"``: of all rows up to it.
            within: of the rows whose event time is at most so far before its own, and of all rows of its own event time. Without ``rows`` and
                ``within``: of all rows up to its event time. A whole number: of the rows whose number in ``order`` is at most so much less.
            following: with ``order``, also of rows behind the row: that many with ``rows``; those at most so far behind with ``within``. Less than
                zero: the frame ends so far before the row.
            order: columns of another order than that of event time, as of ``top``: ``"price DESC"``. Results then change with later rows.
            late: what happens to late rows: ``"drop"`` counts them, ``"side_output"`` writes them to ``<operator>__late``.
            on_error: what happens to a row for which an expression fails: as of ``filter``.
            uid: names the state of this step; by default the operator's name.
            measures: aggregates, and ``lag``, ``row_number``, ``rank``, ``dense_rank``; with ``order`` also ``lead`` and ``nth_value``.

        Shape: the keys, the other columns, then one column per measure; a row for each row on time.
        Time: a row is emitted once progress reaches its event time, with its own event time; its result is final. A late row has no place
            among rows that were emitted already: it is in no result. Over outputs of operators and several inputs, rows of one event time come
            in the order of their values, as the order in which they landed is not recorded.
        State: the rows of the longest frame, in parts of which a micro-batch writes the newest; without ``rows`` and ``within`` an accumulator
            per key, for ever. With ``within`` alone a key is freed so long after its last row.
        With ``order`` a row comes at once. A later row, or a retraction of one, takes back the rows whose results it changes and emits them anew,
            net per micro-batch, each with its own event time; rows minus retractions are the results over all rows so far, late ones too.
            Rows of equal values in ``order`` have one order among each other, for all frames, ascending or descending: the row that landed first is
            the first, also for ``first``, ``last``, ``lag``, ``lead`` and ``row_number``; where the order of landing is not recorded, the row of
            lesser values. Frames by ``within`` need an order by one timestamp. State: all rows
            of a key with their results, for ever; a change of a key computes its results anew, in time of the number of its rows.
        Source: SQL:2003 window functions; Flink ``OVER`` for progress and late rows.

        Raises:
            DefinitionError: DEFINITION-040..043, 050, 055, 056.
        """
        keyed = keyed_stream(self)
        where = keyed.stream.at_step("over")
        frame = _with_rows_behind(_frame(rows, within, where), following, where)
        settings: dict[str, Any] = {"order": order, "late": late, "on_error": on_error, "uid": uid}
        return over_rows(keyed, [Measure(name, of, frame) for name, of in measures.items()], **settings)


def over_rows(
    keyed: KeyedStream,
    measures: Sequence[Measure],
    *,
    order: str | Sequence[str] | None = None,
    late: steps.Late = "drop",
    on_error: steps.OnError = "stop",
    uid: str | None = None,
) -> Stream[Any]:
    """The stream of ``over``, each measure with a frame of its own; ``order`` None is that of event time."""
    stream, where = keyed.stream, keyed.stream.at_step("over")
    one_of(steps.Late, late, "late", where)
    one_of(steps.OnError, on_error, "on_error", where)
    if not measures:
        fix = 'Write over(rows=10, mean_price=mean("price")).'
        raise DefinitionError(where, "at least one measure", "none", fix, code="DEFINITION-056")
    measures = [_plain(measure, stream.schema, f"{where}, column '{measure.name}'") for measure in measures]
    names = [measure.name for measure in measures]
    taken = [n for n in names if n in stream.schema or n.startswith("_") or names.count(n) > 1]
    new_columns(dict.fromkeys(taken), where, "a new column name", "Give the measure another name.")
    results = [Column(name=m.name, type=_type(m.of, stream.schema, f"{where}, column '{m.name}'")) for m in measures]
    types = {
        text: known_type(text, stream.schema, f"{where}, column '{m.name}'") for m in measures for text in texts(m.of)
    }
    if order is None and any(map(_waits, measures)):
        fix = 'Give order="ts": results of a row then change when the row behind it comes.'
        got = "lead, nth_value or following in order of event time, of which a row would wait for the next one"
        raise unfit_setting(where, got, fix)
    parent, columns = _computed(stream, types, on_error)
    schema = stream.schema
    head, others = [schema[key] for key in keyed.keys], [c for c in schema.columns if c.name not in keyed.keys]
    if order is not None:
        ranking = _order(measures, schema, order, late, where)
        changing = OverChanging(tuple(measures), columns, types, ranking=ranking, own=tuple(c.name for c in others))
        return keyed._then(uid, parent, Schema((*head, *others, *results)), function=Process(changing))  # noqa: SLF001 - its other half
    function = Over(tuple(measures), columns, types, late=late == "side_output")
    sides = ((LATE, Schema((*head, *others))),) if function.late else ()
    settings: dict[str, Any] = {"function": Process(function), "order": "event_time", "sides": sides}
    return keyed._then(uid, parent, Schema((*head, *others, *results)), **settings)  # noqa: SLF001 - its other half


def _order(
    measures: Sequence[Measure], schema: Schema, order: str | Sequence[str], late: steps.Late, where: str
) -> Ranking:
    """The order of results that change, checked."""
    by = order_of(schema, order, where)
    if not by:
        fix = 'Write order="price DESC"; without order rows come in order of event time.'
        raise unfit_setting(where, "an order without columns", fix)
    if late == "side_output":
        raise unfit_setting(where, 'late="side_output" with an order', "Leave it out: late rows count like others.")
    units = {m.frame.unit for m in measures if m.frame.following not in {0, ALL_ROWS} or m.frame.preceding}
    units |= {"values" for m in measures if m.frame == Frame("values", 0)}
    kind = parse(schema.types[by[0].column]) if len(by) == 1 else None
    if "values" in units and not (kind is not None and (kind.is_integer or kind.name == "decimal")):
        fix = "Order by one column of whole numbers or of decimals; or count rows: rows=10, ROWS 10 PRECEDING."
        raise unfit_setting(where, "a frame of a distance of numbers in another order", fix)
    if "range" in units and not (kind is not None and kind.name == "timestamp"):
        fix = "Order by one column of type timestamp; or count rows: rows=10, ROWS 10 PRECEDING."
        raise unfit_setting(where, "a frame of a length of time in another order", fix)
    return Ranking(by, 1)


def _computed(
    stream: Stream[Any], types: Mapping[str, str], on_error: steps.OnError
) -> tuple[steps.Step, dict[str, str]]:
    """The step with a column for each expression that is no column; expression -> its column."""
    columns = {text: name for text in types if (name := text.strip("`")) in stream.schema}
    new = [text for text in types if text not in columns]
    if not new:
        return stream.step, columns
    columns |= {text: f"{_PREFIX}{number}" for number, text in enumerate(new)}
    expressions = (*((name, itself(name)) for name in stream.schema.names), *((columns[text], text) for text in new))
    added = (Column(name=columns[text], type=types[text]) for text in new)
    return steps.Project(stream.step, expressions, Schema((*stream.schema.columns, *added)), on_error), columns


def _frame(rows: object, within: str | timedelta | int | None, where: str) -> Frame:
    if rows is not None and within is not None:
        fix = "Frames of both kinds are two steps: .over(rows=10, ...) and .over(within=...)."
        raise unfit_setting(where, "both rows and within", fix)
    if isinstance(within, int) and not isinstance(within, bool):
        if within < 0:
            raise unfit_setting(where, f"within={within}", "within=5 is the rows whose number is at most 5 less.")
        return Frame("values", within)
    if within is not None:
        if not isinstance(within, (str, timedelta)):
            raise unfit_setting(where, f"within={within!r}", 'Write within="1 hour", or a whole number of the order.')
        length = span(within, f"{where}, within")
        if length < 0:
            raise unfit_setting(
                where, f"within={describe_span(length)}", 'within="1 hour" is the hour before each row.'
            )
        return Frame("range", length)
    if rows is None or rows == "all":
        return Frame("range" if rows is None else "rows")
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 0:
        raise unfit_setting(where, f"rows={rows!r}", 'rows=10 is the row and 10 before it; rows="all" all up to it.')
    return Frame("rows", rows)


def _with_rows_behind(frame: Frame, following: object, where: str) -> Frame:
    """A frame that ends behind the row, or before it."""
    if following == 0:
        return frame
    if frame.unit == "range" and frame.preceding is not None and isinstance(following, (str, timedelta)):
        return evolve(frame, following=span(following, f"{where}, following"))
    if not isinstance(following, int) or isinstance(following, bool) or frame.unit == "range":
        fix = 'Write over(rows=2, following=2, ...), over(within="1 hour", following="1 hour", ...), or whole numbers of the order for both.'
        raise unfit_setting(where, f"following={following!r}", fix)
    return evolve(frame, following=following)


def _waits(measure: Measure) -> bool:
    """Whether the result of a row depends on rows that are not before it."""
    of = measure.of
    return bool(measure.frame.following) or (isinstance(of, Position) and of.function in {"lead", "nth_value"})


def _plain(measure: Measure, schema: Schema, where: str) -> Measure:
    """The measure as it is told apart from others: positions know no frame, a whole number as default is of the type of its expression."""
    of = measure.of
    if not isinstance(of, Position) or of.function == "nth_value":
        return measure
    if of.default is not None:
        kind, default = (known_type(text, schema, where) for text in (of.expression or "", of.default))
        if kind != default and parse(kind).is_numeric and parse(default).is_integer:
            of = evolve(of, default=f"CAST({of.default} AS {kind})")
    return Measure(measure.name, of, Frame())


def _type(of: object, schema: Schema, where: str) -> str:
    """The type of a measure's column."""
    if not isinstance(of, Position):
        if isinstance(of, Aggregate) or of is not None:
            return result_type(of, schema, where)
        raise unfit_setting(where, "None", 'Write total=sum("price").')
    if of.function not in {"lag", "lead", "nth_value"}:
        return "bigint"
    kind = known_type(of.expression or "", schema, where)
    if not isinstance(of.n, int) or of.n < (of.function == "nth_value"):
        fix = 'lag("price", 1) is the price of the row before, lead("price", 1) that of the row behind.'
        raise unfit_setting(where, f"{of.function} of {of.n!r} rows", fix)
    default = None if of.default is None else known_type(of.default, schema, f"{where}, default")
    if default not in {None, kind, "void"}:
        fix = f'Write {of.function}("{of.expression}", {of.n}, "CAST({of.default} AS {kind})").'
        raise DefinitionError(where, f"a default of type {kind}", f"one of {default}", fix, code="DEFINITION-041")
    return kind
