"""Joins of keyed streams: by an interval, by windows, by versions, and of all rows of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span
from floodmark.spec.expressions import check, expression
from floodmark.spec.expressions.interpreted import own_row, uninterpreted
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.graph import steps
from floodmark.spec.graph.connected import describe_argument, keyed_stream
from floodmark.spec.graph.patterned import Patterns
from floodmark.spec.graph.tagged import tagged
from floodmark.spec.keyed.matching import CoGroup, TemporalJoin, TemporalJoinOfChanges, WindowJoin
from floodmark.spec.keyed.process import Process
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.rows.checks import columns_of, new_columns, one_of, unfit_setting
from floodmark.spec.rows.contract import Contract
from floodmark.spec.values.functions import Function, Pane
from floodmark.spec.values.schema import Column, Schema
from floodmark.spec.windowing.windows import Window, bounded_in_time

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import KeyedStream, Stream

Include = Literal["both", "lower", "upper", "neither"]
_LONGEST = 1_000 * 366 * 86_400_000


class Joins(Patterns):
    """Joins; mixed into ``KeyedStream``."""

    __slots__ = ()

    def interval_join(
        self,
        other: KeyedStream,
        lower: str | timedelta,
        upper: str | timedelta,
        *,
        kind: steps.JoinKind = "inner",
        include: Include = "both",
        prefix: str = "",
        uid: str | None = None,
    ) -> Stream[Any]:
        """Pairs of rows of one key with ``left + lower <= right <= left + upper`` in event time.

        Args:
            other: keyed alike: as many columns, of the same types.
            lower: ``"-1 hour"``: the right row may be an hour earlier than the left row.
            upper: ``"15 minutes"``: the right row may be 15 minutes later than the left row.
            kind: ``"inner"``: pairs alone. ``"left"``, ``"right"``, ``"full"``: rows of that side (both sides) without a partner too, with
                nulls. ``"semi"``, ``"anti"``: left rows alone, with or without a partner.
            include: which of the bounds belong to the interval.
            prefix: of the names of the right's columns that are no keys.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, the left's other columns, the right's.
        Time: a pair has the later of its two event times; a row without a partner has the last instant at which a partner was possible.
            Late rows (event time not after their watermark) are dropped and counted: their partners may be evicted.
        State: a left row until progress reaches its time + upper, a right row until its time - lower.
        Source: Flink ``intervalJoin``; which kinds are defined: SQL.

        Raises:
            DefinitionError: DEFINITION-050 a name twice, 055, 124.
        """
        where = self.stream.at_step("interval_join")
        low, high = (span(given, f"{where}, {name}") for given, name in ((lower, "lower"), (upper, "upper")))
        one_of(Include, include, "include", where)
        low += include in {"upper", "neither"}
        high -= include in {"lower", "neither"}
        if low > high or max(abs(low), abs(high)) > _LONGEST:
            got = f"from {lower} to {upper}, {include} included"
            fix = 'The lower bound comes first, and neither is longer than 1,000 years: interval_join(other, "-1 hour", "15 minutes").'
            raise DefinitionError(where, "an interval", got, fix, code="DEFINITION-055")
        return self._joined_within(other, (low, high), where, kind=kind, prefix=prefix, uid=uid)

    def _joined_within(
        self,
        other: KeyedStream,
        bounds: tuple[int, int],
        where: str,
        *,
        kind: steps.JoinKind,
        prefix: str,
        uid: str | None,
    ) -> Stream[Any]:
        """The step of ``interval_join`` and of ``join``."""
        keyed, other = keyed_stream(self), _other(other, where)
        one_of(steps.JoinKind, kind, "kind", where)
        parent, ports = tagged(keyed, other.stream, other.keys, ("left", "right"), where)
        schema = _joined(keyed, other, kind, prefix, where)
        bound = {"lower": bounds[0], "upper": bounds[1]}
        return self._then(uid, parent, schema, steps.IntervalJoin, kind=kind, ports=ports, **bound)

    def join(
        self,
        other: KeyedStream,
        *,
        ttl: str | timedelta | None = None,
        kind: steps.JoinKind = "inner",
        prefix: str = "",
        uid: str | None = None,
    ) -> Stream[Any]:
        """Pairs of rows of one key that are at most ``ttl`` apart in event time, in either order: a regular join with bounded state.

        The same as ``interval_join(other, -ttl, ttl)``: settings, shape, time and state.

        Raises:
            DefinitionError: DEFINITION-125, no ttl: the state would hold every row of both sides for ever.
        """
        where = self.stream.at_step("join")
        if ttl is None or span(ttl, f"{where}, ttl") <= 0:
            stream_columns = " and ".join(
                s.stream.schema.describe() for s in (keyed_stream(self), _other(other, where))
            )
            got = f"none: every row of both streams ({stream_columns}) would be kept for ever"
            fix = (
                'Say how far apart rows may be: join(other, ttl="1 day"), or interval_join, window_join, temporal_join; or write '
                "regular_join(other), whose results change and whose state is every row of both streams."
            )
            raise DefinitionError(where, "a bound on the state", got, fix, code="DEFINITION-125")
        bound = span(ttl)
        return self._joined_within(other, (-bound, bound), where, kind=kind, prefix=prefix, uid=uid)

    def regular_join(
        self,
        other: KeyedStream,
        *,
        kind: steps.JoinKind = "inner",
        on: str = "",
        ttl: str | timedelta | None = None,
        prefix: str = "",
        uid: str | None = None,
    ) -> Stream[Any]:
        """All pairs of rows of one key, however far apart in time. Results change: each row, and each retraction, emits what it changes at once.

        Args:
            other: keyed alike.
            kind: as of ``interval_join``. A row without a partner is emitted at once, and retracted when a partner comes.
            on: a further condition, Spark SQL over the columns of both by their names in the result (for ``"semi"`` and ``"anti"`` too).
            ttl: pairs are at most that far apart in event time; rows that come later than that, by their own watermark, are dropped and
                counted. None: no bound.
            prefix: of the names of the right's columns that are no keys.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, the left's other columns, the right's. Each side is a multiset: two equal rows make twice the pairs.
        Time: a pair has the later of its two event times, a row without a partner its own. Rows come in order of arrival; rows minus
            retractions are at each cut the bounded result, whichever order that is. Changes of one micro-batch that cancel are not emitted.
        State: every row of both sides, for ever; with ``ttl`` until progress is twice that beyond its event time. A micro-batch reads and
            writes the rows of the keys it touches; of a side with many rows it writes the parts with the rows that it changes, and reads the
            other side where its rows make pairs.
        Source: SQL; Flink ``StreamingJoinOperator``. Inputs whose rows are retracted may be read. Null is equal to nothing.

        Raises:
            DefinitionError: DEFINITION-050 a name twice, 055 no positive ttl, 124, 460 a condition that cannot be computed row by row; those
                of expressions.
        """
        where = self.stream.at_step("regular_join")
        keyed, other = keyed_stream(self), _other(other, where)
        one_of(steps.JoinKind, kind, "kind", where)
        bound = None if ttl is None else span(ttl, f"{where}, ttl")
        if bound is not None and bound <= 0:
            fix = 'For example regular_join(other, ttl="30 days"); leave ttl out for no bound.'
            raise unfit_setting(where, f"ttl={ttl!r}", fix)
        parent, ports = tagged(keyed, other.stream, other.keys, ("left", "right"), where)
        both = _joined(keyed, other, "inner", prefix, where)
        tree = _row_condition(on, both, where) if on else None
        function = RegularJoin(kind, _places(keyed, other, "inner", prefix), on, tree, bound)
        schema = _joined(keyed, other, kind, prefix, where)
        return self._then(uid, parent, schema, function=Process(function), ports=ports, order="arrival")

    def window_join(
        self,
        other: KeyedStream,
        window: Window,
        *,
        kind: steps.JoinKind = "inner",
        prefix: str = "",
        uid: str | None = None,
        **settings: Any,
    ) -> Stream[Any]:
        """All pairs of rows of one key in the same window, emitted when the window fires; the rows of both streams make up a session.

        Args:
            other: keyed alike.
            window: ``Tumbling``, ``Sliding``, ``Cumulative``, ``Calendar`` or ``Session``.
            kind: as of ``interval_join``.
            prefix: of the names of the right's columns that are no keys.
            uid: names the state of this step; by default the operator's name.
            settings: as of ``KeyedStream.window``.

        Shape: the keys, ``window_start``, ``window_end``, the left's other columns, the right's. Order: by event time, left before right.
        State: every row of both until its window is freed. Source: Flink ``join(...).where(...).window(...)``.

        Raises:
            DefinitionError: DEFINITION-050, 054, 055, 124.
        """
        where = self.stream.at_step("window_join")
        keyed, other = keyed_stream(self), _other(other, where)
        one_of(steps.JoinKind, kind, "kind", where)
        parent, ports = tagged(keyed, other.stream, other.keys, ("left", "right"), where)
        schema = _joined(keyed, other, kind, prefix, where)
        value_columns = tuple(c for c in schema.columns if c.name not in self.keys)
        function = WindowJoin(kind, ports, _places(keyed, other, kind, prefix))
        return self._grouped(
            parent, window, Function(function, Code(text=function.text())), value_columns, uid, where, settings
        )

    def co_group(
        self,
        other: KeyedStream,
        window: Window,
        function: Callable[
            [Pane, Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], Iterable[Mapping[str, Any]]
        ],
        schema: type[Contract],
        *,
        uid: str | None = None,
        **settings: Any,
    ) -> Stream[Any]:
        """The rows of both streams of one key and window through a function, also if one stream has no row in the window.

        Args:
            other: keyed alike.
            window: ``Tumbling``, ``Sliding``, ``Cumulative``, ``Calendar`` or ``Session``.
            function: (pane, rows of the left, rows of the right) -> rows.
            schema: contract of the rows it yields.
            uid: names the state of this step; by default the operator's name.
            settings: as of ``KeyedStream.window``.

        Shape: the keys, ``window_start``, ``window_end``, the contract's other columns. Source: Flink ``coGroup``.
        """
        where = self.stream.at_step("co_group")
        keyed, other = keyed_stream(self), _other(other, where)
        fix = "co_group(other, Tumbling(...), compare, schema=Comparison), where Comparison is a Contract."
        columns = columns_of(schema, where, fix).columns
        parent, ports = tagged(keyed, other.stream, other.keys, ("left", "right"), where)
        head = {*self.keys, *steps.BOUNDS}
        value_columns = tuple(c for c in columns if c.name not in head)
        checked = Function.of(function, where)
        return self._grouped(
            parent, window, Function(CoGroup(function, ports), checked.code), value_columns, uid, where, settings
        )

    def temporal_join(
        self,
        versions: KeyedStream,
        *,
        kind: Literal["inner", "left"] = "inner",
        valid_until: str | None = None,
        allowed_lateness: str | timedelta = "0 s",
        prefix: str = "",
        changes: bool = False,
        uid: str | None = None,
    ) -> Stream[Any]:
        """Each row with the version of its key that was valid at the row's event time.

        Args:
            versions: keyed alike; each row is a version, valid from its event time until the event time of the key's next row.
            kind: ``"inner"``: only rows that have a version. ``"left"``: all rows, with nulls if there is no version.
            valid_until: a timestamp column of ``versions``: the version's end, exclusive; null: the key's next row ends it.
            allowed_lateness: rows at most this late are still joined; later rows are dropped and counted.
            prefix: of the names of the versions' columns that are no keys.
            changes: whether rows of this stream may be taken back, as those of a table that is read with its changes: what a row was joined with
                is then taken back, whatever versions have come since.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, this stream's other columns, the version's other columns.
        Order: by event time, a version before a row of the same time; so a row waits until progress reaches its event time.
        State: per key the newest version and the versions younger than ``allowed_lateness``; with ``changes`` all rows too, for ever.
        Source: Flink event-time temporal join.

        Raises:
            DefinitionError: DEFINITION-022, 050, 055, 124.
        """
        where = self.stream.at_step("temporal_join")
        keyed, other = keyed_stream(self), _other(versions, where)
        lateness = span(allowed_lateness, f"{where}, allowed_lateness")
        if kind not in {"inner", "left"} or lateness < 0:
            got = f"kind={kind!r}, allowed_lateness={describe_span(lateness)}"
            fix = 'kind is "inner" or "left", allowed_lateness zero or more.'
            raise unfit_setting(where, got, fix)
        if valid_until is not None and other.stream.schema.types.get(valid_until) != "timestamp":
            expected, fix = "a timestamp column of the versions", other.stream.schema.nearest(valid_until)
            raise DefinitionError(where, expected, repr(valid_until), fix, code="DEFINITION-022")
        parent, ports = tagged(keyed, other.stream, other.keys, ("row", "version"), where, last=True)
        join = TemporalJoinOfChanges if changes else TemporalJoin
        function = join(kind, lateness, valid_until, _places(keyed, other, kind, prefix))
        schema = _joined(keyed, other, kind, prefix, where)
        return self._then(uid, parent, schema, function=Process(function), ports=ports, order="event_time")

    def _grouped(
        self,
        parent: steps.Step,
        window: Window,
        function: Function,
        value_columns: tuple[Column, ...],
        uid: str | None,
        where: str,
        settings: dict[str, Any],
    ) -> Stream[Any]:
        """A window over the tagged rows of two streams."""
        refused = {"late": "side_output", "time": "processing"}
        wrong = next((f"{name}={value!r}" for name, value in refused.items() if settings.get(name) == value), None)
        if wrong or not bounded_in_time(window):
            got = wrong or f"{type(window).__name__}()"
            fix = "Use Tumbling, Sliding, Calendar or Session of event time; late rows are dropped and counted."
            raise DefinitionError(where, "windows of event time", got, fix, code="DEFINITION-054")
        keyed = type(keyed_stream(self))(replace(self.stream, step=parent), self.keys)
        windowed = keyed.window(window, **settings)
        return windowed._step(uid, [*windowed._head(), *value_columns], function=function)  # noqa: SLF001 - its other half


def _row_condition(text: str, schema: Schema, where: str) -> Typed:
    """The tree of the further condition of a regular join, which is computed row by row."""
    at = f"{where}, on"
    check(text, schema, at, boolean=True)
    tree = own_row(text, schema, at)
    if tree is None:
        what = uninterpreted(expression(text, schema, at).tree) or "one of too many levels"
        fix = "Make it a column of its side before the join, with_columns(name=...), and name that column."
        raise DefinitionError(at, "what floodmark computes row by row", what, fix, code="DEFINITION-460")
    return tree


def _other(other: object, where: str) -> KeyedStream:
    if not isinstance(other, Joins):
        fix = 'Key it too: other.key_by("tail").'
        raise DefinitionError(where, "a keyed stream", describe_argument(other), fix, code="DEFINITION-124")
    return keyed_stream(other)


def _places(left: KeyedStream, right: KeyedStream, kind: str, prefix: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Per side, (column of its rows, column of the result) for all columns but the keys."""
    places = [tuple((c.name, c.name) for c in left.stream.schema.columns if c.name not in left.keys)]
    others = [c.name for c in right.stream.schema.columns if c.name not in right.keys]
    places.append(() if kind in {"semi", "anti"} else tuple((name, prefix + name) for name in others))
    return tuple(places)


def _joined(left: KeyedStream, right: KeyedStream, kind: str, prefix: str, where: str) -> Schema:
    """The columns of pairs: keys, other columns of the left, other columns of the right. Columns of a side that may lack a partner are nullable."""
    places = _places(left, right, kind, prefix)
    optional = (kind in {"right", "full"}, kind in {"left", "full"})
    columns = [left.stream.schema[key] for key in left.keys]
    for side, stream in enumerate((left.stream, right.stream)):
        for name, target in places[side]:
            column = stream.schema[name]
            columns.append(replace(column, name=target, nullable=column.nullable or optional[side]))
    names = [c.name for c in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        fix = f'Say prefix="other_", or rename them before: other.select(..., other_{twice[0]}="{twice[0]}").'
        new_columns([f"{', '.join(twice)} on both sides"], where, "different names", fix)
    fix = "Choose a prefix of letters and digits; names that begin with an underscore are floodmark's."
    odd = (name for name in names if name.startswith("_") or not name.isidentifier())
    new_columns(odd, where, "names of columns", fix)
    return Schema(tuple(columns))
