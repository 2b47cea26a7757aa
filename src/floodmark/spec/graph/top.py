"""``top`` and ``distinct``: the first rows of each key by an order, and rows without repetitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError
from floodmark.core.types import parse
from floodmark.spec.graph.connected import Processes, keyed_stream
from floodmark.spec.keyed.process import Process
from floodmark.spec.keyed.top import By, Numbering, Ranking, Top, TopAtOnce, TopOfWindow, Unique
from floodmark.spec.rows.checks import new_columns, one_of, unfit_setting
from floodmark.spec.values.functions import Function
from floodmark.spec.values.schema import Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import Stream, WindowedStream

_BY = re.compile(r"^\s*(\S+)(?:\s+(ASC|DESC))?(?:\s+NULLS\s+(FIRST|LAST))?\s*$", re.IGNORECASE)


class Tops(Processes):
    """The first rows of each key; mixed into ``KeyedStream``."""

    __slots__ = ()

    def top(
        self,
        n: int,
        by: str | Sequence[str] = (),
        *,
        number: str = "",
        numbering: Numbering = "row_number",
        latest: bool = False,
        at_once: bool = False,
        uid: str | None = None,
    ) -> Stream[Any]:
        """The first ``n`` rows of each key so far. A row that is no longer one of them is retracted, and so is one whose number changes.

        Example: ``bids.key_by("auction").top(10, "price DESC", number="rank")``

        Args:
            n: rows of a key.
            by: columns of the order, ``"price DESC"``, ``"name NULLS LAST"``; nulls are less than all values unless said otherwise, NaN is
                greater than all numbers. Rows with equal values come in the order in which they landed; over outputs of operators and several
                inputs, where that is not recorded, in order of event time and then of their values. Without columns, in that order alone.
            number: a new column of the number of each row; by default there is none.
            numbering: ``"row_number"``; by ``"rank"`` and ``"dense_rank"`` rows with equal values have one number, and may be more than ``n``.
            latest: of rows with equal values the last comes first.
            at_once: the first ``n`` of the rows of one event time, once progress reaches it: final, without state. For results of a window,
                which have one event time. Late rows are dropped and counted.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, the other columns, then the number. The table ``__current`` has a row per key and number; without a number there is
        one only where ``n`` is 1.
        Time: a change has the event time of the row that causes it. Late rows count like others.
        State: the first rows of each key, for ever; all rows of an input whose rows may be retracted.
        Source: Flink top-n.

        Raises:
            DefinitionError: DEFINITION-022, 050, 053, 055.
        """
        keyed = keyed_stream(self)
        stream, where = keyed.stream, keyed.stream.at_step("top")
        ranking = _ranking(stream.schema, n, by, number, numbering, where, latest=latest)
        head, others = _columns(stream.schema, keyed.keys)
        names, schema = tuple(c.name for c in others), Schema((*head, *others, *_number(ranking)))
        settings: dict[str, Any] = {"function": Process(Top(ranking, names))}
        if at_once:
            settings = {"function": Process(TopAtOnce(ranking, names)), "order": "event_time"}
        return keyed._then(uid, stream.step, schema, **settings)  # noqa: SLF001 - its other half


def top_of_window(
    windowed: WindowedStream,
    n: int,
    by: str | Sequence[str],
    number: str,
    numbering: Numbering,
    uid: str | None,
    *,
    latest: bool,
) -> Stream[Any]:
    """As ``WindowedStream.top``."""
    keyed, where = windowed.keyed, windowed.keyed.stream.at_step("top")
    schema = keyed.stream.schema
    ranking = _ranking(schema, n, by, number, numbering, where, latest=latest)
    head = windowed._head()  # noqa: SLF001 - its other half
    names = {column.name for column in head}
    others = [c for c in schema.columns if c.name not in names]
    function = TopOfWindow(ranking, tuple(c.name for c in others))
    what: dict[str, Any] = {"function": Function(function, Code(text=function.text()))}
    return windowed._step(uid, [*head, *others, *_number(ranking)], **what)  # noqa: SLF001 - its other half


def distinct(stream: Stream[Any], uid: str | None) -> Stream[Any]:
    """As ``Stream.distinct``."""
    keyed = stream.key_by(*stream.schema.names)
    return keyed._then(uid, stream.step, stream.schema, function=Process(Unique()))  # noqa: SLF001 - its other half


def _columns(schema: Schema, keys: Sequence[str]) -> tuple[list[Column], list[Column]]:
    return [schema[key] for key in keys], [c for c in schema.columns if c.name not in keys]


def _number(ranking: Ranking) -> list[Column]:
    return [Column(name=ranking.number, type="bigint", nullable=False)] if ranking.number else []


def _ranking(
    schema: Schema, n: int, by: str | Sequence[str], number: str, numbering: Numbering, where: str, *, latest: bool
) -> Ranking:
    """The order, checked."""
    one_of(Numbering, numbering, "numbering", where)
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise unfit_setting(where, f"n={n!r}", "top(10, ...) has the first ten rows of each key.")
    columns = order_of(schema, by, where)
    taken = [number] if number and (number in schema or number.startswith("_")) else []
    new_columns(taken, where, "a new column for the number", "Give it another name.")
    return Ranking(columns, n, numbering, number, latest)


def order_of(schema: Schema, by: str | Sequence[str], where: str) -> tuple[By, ...]:
    """The columns of an order, checked.

    Raises:
        DefinitionError: DEFINITION-022, there is no such column; DEFINITION-053, its type has no order.
    """
    columns = []
    for text in (by,) if isinstance(by, str) else by:
        match = _BY.match(str(text))
        name = match[1].strip("`") if match else str(text)
        if match is None or name not in schema:
            raise DefinitionError(
                where, "columns of the stream", repr(text), schema.nearest(name), code="DEFINITION-022"
            )
        kind = schema.types[name]
        if not parse(kind, where).is_groupable:
            fix = "Order by a number, a text or a time; of an array, a map or a struct take what is in it."
            raise DefinitionError(
                where, "a column with an order", f"'{name}' of type {kind}", fix, code="DEFINITION-053"
            )
        descending = (match[2] or "").upper() == "DESC"
        nulls = (match[3] or "").upper()
        columns.append(By(name, descending, nulls == "FIRST" if nulls else not descending))
    return tuple(columns)
