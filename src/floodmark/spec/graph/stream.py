"""Stream: a fluent builder of an operator's steps. Building computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, get_args

from attrs import frozen
from typing_extensions import TypeVar

from floodmark.core.code import settings_of
from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span
from floodmark.core.types import parse
from floodmark.spec.expressions import check, itself, known_type
from floodmark.spec.graph import steps
from floodmark.spec.graph.applying import applied
from floodmark.spec.graph.calls import call
from floodmark.spec.graph.connected import Broadcast, Connected
from floodmark.spec.graph.joins import Joins
from floodmark.spec.graph.looked_up import looked_up
from floodmark.spec.graph.over import Overs
from floodmark.spec.graph.top import Tops, distinct, top_of_window
from floodmark.spec.graph.unnesting import unnested
from floodmark.spec.keyed.process import ProcessFunction
from floodmark.spec.keyed.top import Numbering
from floodmark.spec.rows.checks import columns_of, is_contract, new_columns, one_of, unfit_setting
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.contract import schema as contract_schema
from floodmark.spec.rows.lookup import LookupTable
from floodmark.spec.values.builder import Builder, check_names
from floodmark.spec.values.functions import Function, Pane
from floodmark.spec.values.schema import STAMPS, Column, Schema
from floodmark.spec.windowing.aggregates import AnyAggregate, result_type
from floodmark.spec.windowing.evictors import Evictor
from floodmark.spec.windowing.evictors import checked as checked_evictor
from floodmark.spec.windowing.frames import ALL_ROWS
from floodmark.spec.windowing.triggers import AfterCount, Clock, Trigger, never_fires, parts
from floodmark.spec.windowing.windows import Count, Global, Session, Window, bounded_in_time, declared, global_per

Row_co = TypeVar("Row_co", covariant=True, default=Any)


@dataclass(frozen=True, slots=True)
class Stream(Builder, Generic[Row_co]):
    """Rows of a contract in time. A stream may be bounded or unbounded: only a run decides that.

    Every method returns a new stream; nothing is read before a run. Expressions are Spark SQL text.
    """

    step: steps.Step
    operator: str

    def __post_init__(self) -> None:
        for schema in (self.step.schema, *(side for _, side in getattr(self.step, "sides", ()))):
            check_names(schema, self.at_step(type(self.step).__name__.lower()))

    @property
    def schema(self) -> Schema:
        """The columns at this point."""
        return self.step.schema

    def filter(self, condition: str, *, on_error: steps.OnError = "stop") -> Stream[Row_co]:
        """The rows for which ``condition`` is true (not false, not null).

        Args:
            condition: Spark SQL.
            on_error: a row for which the condition fails (a division by zero, a text that is no number): ``"stop"`` ends the run with
                an error that names the row, ``"quarantine"`` moves the row to ``<operator>__quarantine`` with Spark's message.

        Time: rows keep their stamps; progress advances also if no row matches.
        """
        where = self.at_step("filter")
        check(condition, self.schema, where, boolean=True)
        one_of(steps.OnError, on_error, "on_error", where)
        return Stream(steps.Filter(self.step, condition, on_error), self.operator)

    def select(self, *columns: str, on_error: steps.OnError = "stop", **named: str) -> Stream[Any]:
        """Only these columns: names as they are, ``name="expression"`` for new ones.

        Args:
            columns: names.
            on_error: as of ``filter``, for a row for which one of the expressions fails.
            named: expressions, Spark SQL.

        Raises:
            DefinitionError: DEFINITION-022 unknown column, DEFINITION-050 a name twice or reserved, DEFINITION-043 unknown type.
        """
        where = self.at_step("select")
        for name in columns:
            self._known(name, where)
        return self._project(tuple((c, itself(c)) for c in columns) + tuple(named.items()), where, on_error)

    def with_columns(self, *, on_error: steps.OnError = "stop", **named: str) -> Stream[Any]:
        """All columns, and ``name="expression"`` as new ones or in place of one; expressions see the columns as they were.

        Args:
            on_error: as of ``filter``, for a row for which one of the expressions fails.
            named: expressions, Spark SQL.
        """
        existing = tuple((c, named.get(c, itself(c))) for c in self.schema.names)
        new = tuple((name, text) for name, text in named.items() if name not in self.schema)
        return self._project(existing + new, self.at_step("with_columns"), on_error)

    def flat_map(
        self, function: steps.RowFunction, schema: type[Contract], *, on_error: steps.OnError = "stop"
    ) -> Stream[Any]:
        """Every row becomes the rows ``function`` yields for it.

        Args:
            function: from a read-only mapping of the row's columns to an iterable of mappings. Its source is part of the version;
                it must depend on its argument alone.
            schema: contract of the rows it yields; they keep the stamps (and so the event time) of the row they came from.
            on_error: what happens to a row for which the function raises, or yields other columns than the contract's: ``"stop"`` ends
                the run with the error, ``"quarantine"`` moves the row to ``<operator>__quarantine`` and continues. A retraction that
                fails is skipped, as the row it retracts was quarantined.

        Raises:
            DefinitionError: DEFINITION-051, not a function or not a contract; DEFINITION-055, another ``on_error``.
        """
        where = self.at_step("flat_map")
        if not callable(function) or not is_contract(schema):
            fix = "flat_map(split_words, schema=Word), where Word is a Contract and split_words yields dictionaries."
            got = f"{function!r} and {schema!r}"
            raise DefinitionError(where, "a function and the contract of its rows", got, fix, code="DEFINITION-051")
        one_of(steps.OnError, on_error, "on_error", where)
        return Stream(steps.FlatMap.of(self.step, function, contract_schema(schema), on_error), self.operator)

    def unnest(
        self,
        expression: str,
        *names: str,
        position: str = "",
        outer: bool = False,
        on_error: steps.OnError = "stop",
    ) -> Stream[Any]:
        """Every row once for each element of an array, or for each entry of a map.

        Example: ``messages.unnest("split(text, ' ')", "word", position="place")``

        Args:
            expression: Spark SQL, of the array or the map.
            names: of the new columns: one for an element; one for each field, where elements are structs; two for key and value.
            position: a new column of the position of the element, from 1.
            outer: a row without elements comes once, with nulls.
            on_error: as of ``filter``, for a row for which the expression fails.

        Shape: all columns, then the new ones. Time: rows keep the stamps of the row they come from. Source: SQL ``CROSS JOIN UNNEST``.

        Raises:
            DefinitionError: DEFINITION-041 neither array nor map, 050 a name that is taken, or too few.
        """
        return Stream(unnested(self, expression, names, position, on_error, outer=outer), self.operator)

    def apply(
        self,
        function: Callable[..., Any],
        *arguments: str,
        names: str | Sequence[str] = (),
        outer: bool = False,
        on_error: steps.OnError = "stop",
    ) -> Stream[Any]:
        """The result of a function that ``function`` has marked, as new columns: of a table function every row once for each row that it yields.

        Example: ``books.apply(slug, "title", names="slug")``

        Args:
            function: marked by ``@fm.function``. Its code is part of the version.
            arguments: expressions, Spark SQL; the function gets their values.
            names: of the new columns; by default those of the contract of a table function.
            outer: a row for which a table function yields none comes once, with nulls.
            on_error: as of ``flat_map``, for a row for which the function or an expression fails.

        Shape: all columns, then the new ones. Time: rows keep the stamps of the row they come from.

        Raises:
            DefinitionError: DEFINITION-050, 051.
        """
        new = (names,) if isinstance(names, str) else tuple(names)
        return Stream(applied(self, function, arguments, new, on_error, outer=outer), self.operator)

    def call(  # noqa: PLR0913 - settings by name
        self,
        function: Callable[..., Any],
        schema: type[Contract] | None = None,
        *,
        ordered: bool = True,
        concurrency: int = 100,
        timeout: str | timedelta = "30 seconds",
        retries: int = 3,
        on_error: steps.OnError = "stop",
        cache: tuple[str, ...] | str = (),
        cache_for: str | timedelta = "1 day",
        uid: str | None = None,
        version: str | None = None,
        keep: str | timedelta | None = None,
    ) -> Stream[Any]:
        """Every row becomes the answer of another system about the row: many calls at a time, each answer recorded.

        Args:
            function: ``async def locate(row)`` or ``async def locate(row, request)``; a plain function runs in threads. It receives a mapping of
                the row's columns and a ``Request``, whose ``key`` the system can drop repeated calls by. It returns a row, None for no row, or a
                list of rows.
            schema: contract of the answer; by default the one that the function is annotated to return.
            ordered: a call begins only once the row ``concurrency`` before it has been answered. False: a call begins whenever another one has
                ended. The rows are the same, in the order of the rows they come from.
            concurrency: calls at a time, of each worker process.
            timeout: longest wait for an answer.
            retries: calls after one that fails, after 0.1 s, 0.2 s and so on up to 10 s.
            on_error: what happens to a row whose last call fails: ``"stop"`` ends the run, and the next one asks again; ``"quarantine"`` moves the
                row to ``<operator>__quarantine``, which is recorded as its answer.
            cache: columns. The function receives these alone, is asked once for the same values within ``cache_for``, and its answer's columns are
                added to the row.
            cache_for: length of event time for which an answer about ``cache`` holds.
            uid: names the answers; by default the function's name. Another ``uid`` asks about all rows again.
            version: of the function, for its answers. By default another code asks again in a rebuild; with a version, answers stay until the
                version changes.
            keep: event time for which ``floodmark maintain`` leaves answers, counted back from the newest; a replay of older rows asks again. None:
                for as long as the lake.

        Time: rows keep the stamps of the row they come from. A micro-batch is committed, and its watermark published, once all of its rows are answered.
        State: answers, in files beside the tables of the lake; a replay, a restart, a rebuild and a bounded run read the answers of before.
        Source: Flink ``AsyncDataStream``, whose in-flight requests are asked again after a restore, as here.

        Raises:
            DefinitionError: DEFINITION-022, 050, 051, 055.
        """
        where = self.at_step("call")
        settings: dict[str, Any] = {
            "ordered": ordered,
            "concurrency": concurrency,
            "timeout": timeout,
            "retries": retries,
        }
        settings |= {"on_error": on_error, "cache": cache, "cache_for": cache_for, "uid": uid, "version": version}
        settings["keep"] = keep
        return Stream(call(self.step, function, schema, where, **settings), self.operator)

    def lookup(
        self,
        table: LookupTable,
        on: Mapping[str, str] | str,
        *,
        kind: Literal["inner", "left"] = "inner",
        columns: Iterable[str] | None = None,
        prefix: str = "",
    ) -> Stream[Any]:
        """Each row with the rows that a table outside of the lake has when the row is processed.

        Example: ``bids.lookup(rates, on="currency")``, ``bids.lookup(sides, on={"key": "auction % 100"}, kind="left")``

        Args:
            table: a Delta table or a file.
            on: a column of both; or column of the table -> expression over the row that it equals. Nulls equal nothing.
            kind: ``"inner"``: only rows that the table has a row for. ``"left"``: all rows, with nulls if it has none.
            columns: of the table; by default all of them.
            prefix: of their names.

        Shape: this stream's columns, those of the table, ``lookup_version``, string: the version of the Delta table, or the digest of the file.
        Time: rows keep the stamps of the row they come from. Which version a row finds is decided once, by the process that asks first, for each key and
        each ``holds`` of event time; a replay, a restart, a rebuild and a bounded run read that answer.
        State: answers, in files beside the tables of the lake.
        Source: Flink's lookup join.

        Raises:
            DefinitionError: DEFINITION-022, 050, 055, 471.
        """
        return Stream(looked_up(self, table, on, kind, columns, prefix), self.operator)

    def union(self, *others: Stream[Any]) -> Stream[Row_co]:
        """All rows of these streams; columns must agree in name, order and type. Time: the minimum of the inputs' progress.

        Raises:
            DefinitionError: DEFINITION-052, the schemas differ.
        """
        for other in others:
            theirs = other.schema.types if isinstance(other, Stream) else repr(other)
            if theirs != self.schema.types:
                fix = "Bring both to the same columns with select(...)."
                got = other.schema.describe() if isinstance(other, Stream) else repr(other)
                raise DefinitionError(
                    self.at_step("union"), f"streams of {self.schema.describe()}", got, fix, code="DEFINITION-052"
                )
        return Stream(steps.Union((self.step, *(other.step for other in others))), self.operator)

    def key_by(self, *columns: str) -> KeyedStream:
        """A stream partitioned by these columns: each combination of values is a key; null is a value like any other."""
        where = self.at_step("key_by")
        if not columns:
            fix = 'Name a column, key_by("origin"), or leave key_by out for one result over all rows.'
            raise DefinitionError(where, "at least one column", "none", fix, code="DEFINITION-053")
        for column in columns:
            self._known(column, where)
            kind = self.schema.types[column]
            if columns.count(column) > 1 or not parse(kind, where).is_groupable:
                got = f"'{column}' twice" if columns.count(column) > 1 else f"'{column}' of type {kind}"
                fix = 'Name each column once; of an array, a map or a struct take what is in it: with_columns(first="tags[0]").'
                raise DefinitionError(where, "columns that tell rows apart", got, fix, code="DEFINITION-053")
        return KeyedStream(self, columns)

    def broadcast(self) -> Broadcast:
        """This stream as input of every key of another: ``readings.key_by("sensor").connect(rules.broadcast())``. Meant for few rows."""
        return Broadcast(self)

    def window(self, window: Window, **settings: Any) -> WindowedStream:
        """Windows over all rows together, without a key; settings as of ``KeyedStream.window``."""
        return KeyedStream(self, ()).window(window, **settings)

    def process(self, function: ProcessFunction, schema: type[Contract], **settings: Any) -> Stream[Any]:
        """A process function over all rows together, without a key; settings as of ``KeyedStream.process``."""
        return KeyedStream(self, ()).process(function, schema, **settings)

    def learn(self, model: object, **settings: Any) -> Stream[Any]:
        """One model that learns from all rows together, without a key; settings as of ``KeyedStream.learn``."""
        return KeyedStream(self, ()).learn(model, **settings)

    def match_recognize(self, *, partition_by: str | tuple[str, ...] = (), **clause: Any) -> Stream[Any]:
        """``MATCH_RECOGNIZE``: the parts of the clause as of ``KeyedStream.match_recognize``, and ``partition_by``, columns; without any, all rows together."""
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        keyed = self.key_by(*columns) if columns else KeyedStream(self, ())
        return keyed.match_recognize(**clause)

    def connect(self, other: Broadcast) -> Connected:
        """This stream without a key, and the rows of ``rules.broadcast()``, as the two inputs of one function. See ``KeyedStream.connect``."""
        return KeyedStream(self, ()).connect(other)

    def top(self, n: int, by: str | Sequence[str] = (), **settings: Any) -> Stream[Any]:
        """The first ``n`` rows of all so far, without a key. See ``KeyedStream.top``."""
        return KeyedStream(self, ()).top(n, by, **settings)

    def sort(self, by: str | Sequence[str], *, first: int | None = None, uid: str | None = None) -> Stream[Any]:
        """All rows in an order, or the first of them, once the input ends.

        Example: ``flights.sort("dep_delay DESC", first=10)``

        Args:
            by: columns of the order, as of ``KeyedStream.top``.
            first: how many rows; None for all.
            uid: names the state of this step; by default the operator's name.

        Time: no row comes before the end of the input, which a bounded run has, and a source that ends.
        State: all rows, in one key group. Source: SQL ``ORDER BY``; Flink's sort of bounded input.

        Raises:
            DefinitionError: DEFINITION-022, 053, 055.
        """
        most = ALL_ROWS if first is None else first
        return KeyedStream(self, ()).window(Global()).top(most, by, uid=uid)

    def distinct(self, *, uid: str | None = None) -> Stream[Any]:
        """Each row once: a row with the values of an earlier one is dropped.

        Time: a row has the event time of the first one to come with its values. State: a count per different row, for ever. Where rows of the
        input are retracted, a row is retracted with the last one of its values. Source: SQL ``SELECT DISTINCT``.

        Raises:
            DefinitionError: DEFINITION-053, a column that cannot be told apart: an array, a map or a struct.
        """
        return distinct(self, uid)

    def over(self, **settings: Any) -> Stream[Any]:
        """Results of each row over all rows before it, without a key. See ``KeyedStream.over``."""
        return KeyedStream(self, ()).over(**settings)

    def regular_join(self, other: Stream[Any], **settings: Any) -> Stream[Any]:
        """All pairs of rows of two streams, without a key; settings as of ``KeyedStream.regular_join``. One key group has all of the state."""
        return KeyedStream(self, ()).regular_join(KeyedStream(other, ()), **settings)

    def rolling(self, *, uid: str | None = None, **aggregates: AnyAggregate) -> Stream[Any]:
        """Aggregates over all rows so far. See ``KeyedStream.rolling``."""
        return KeyedStream(self, ()).rolling(uid=uid, **aggregates)

    def _project(self, columns: tuple[tuple[str, str], ...], where: str, on_error: steps.OnError) -> Stream[Any]:
        names = [name for name, _ in columns]
        wrong = [n for n in names if names.count(n) > 1 or n in STAMPS or n.startswith("_")]
        fix = "Give each column one name; names that begin with an underscore are floodmark's."
        new_columns(dict.fromkeys(wrong) or ([] if names else ["no column"]), where, "different names", fix)
        one_of(steps.OnError, on_error, "on_error", where)
        out = []
        for name, text in columns:
            kind = known_type(text, self.schema, f"{where}, column '{name}'", name=name)
            plain = next((c for c in self.schema.columns if c.name == text.strip("`")), None)
            out.append(Column(name=name, type=kind, description=plain.description if plain else ""))
        return Stream(steps.Project(self.step, columns, Schema(tuple(out)), on_error), self.operator)

    def _known(self, column: object, where: str) -> None:
        if not isinstance(column, str) or column not in self.schema:
            fix = ("Write the column's name as text. " if not isinstance(column, str) else "") + self.schema.nearest(
                str(column)
            )
            raise DefinitionError(where, "columns of the stream", repr(column), fix, code="DEFINITION-022")

    def at_step(self, step: str) -> str:
        """The operator and step, for error messages."""
        return f"operator '{self.operator}', step '{step}'"


@dataclass(frozen=True, slots=True)
class KeyedStream(Joins, Overs, Tops):
    """A stream taken per key."""

    builds = '.key_by("column")'

    stream: Stream[Any]
    keys: tuple[str, ...]

    def window(  # noqa: PLR0913 - settings by name
        self,
        window: Window,
        *,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
        accumulation: steps.Accumulation = "accumulating",
        allowed_lateness: str | timedelta = "0 s",
        late: steps.Late = "drop",
        time: Clock = "event",
        order: steps.Order | None = None,
        on_error: steps.OnError = "stop",
    ) -> WindowedStream:
        """Group the rows of each key into windows.

        Args:
            window: ``Tumbling``, ``Sliding``, ``Cumulative``, ``Calendar``, ``Session``, ``Count``, ``Global`` or a ``WindowAssigner`` of your own. In an
                asset with partitions ``Global()`` is one window per partition.
            trigger: when a window fires; by default at its end (``Count``: when it is full, ``Global``: at the end of input), and again for
                each late row.
            evictor: rows a window evicts when it fires; until then its state holds all its rows.
            accumulation: ``"accumulating"``: a later pane replaces an earlier one (the old value is retracted, the new one follows);
                ``"discarding"``: each pane holds only rows since the previous pane.
            allowed_lateness: rows at most this late still revise the result.
            late: what happens to later rows: ``"drop"`` counts them, ``"side_output"`` writes those that are late for all their windows
                to ``<operator>__late``.
            time: ``"processing"`` uses the clock instead of the event time; no row is late then, and only a replay of recorded ticks
                gives the same answer.
            order: ``"arrival"`` processes rows in the order they landed, ``"event_time"`` sorts them by event time. By default arrival
                where it is recorded (one landed log), else sorted. Ignored by windows whose answer does not depend on order.
            on_error: what an exception in your code does, or a row whose expression fails (of an aggregate, a gap, an evictor):
                ``"stop"`` ends the run with the exception. ``"quarantine"`` moves the row or the pane to ``<operator>__quarantine``. The
                row, if an expression fails, or ``reduce``, ``Aggregate.add`` or ``merge``, a window assigner, a session's gap or a
                trigger's ``on_element``: the row then counts in no window. The pane, if a window function or ``Aggregate.result`` fails:
                the window's last good value stays. If windows hold all their rows, a failing fold is found when a pane is computed. A
                trigger's timers always stop the run. Cost, with functions over each row: a copy of the key's state per row.

        Time: the window [s, e) fires when progress reaches e - 1 ms; its state is freed ``allowed_lateness`` later.
        Source: Flink, windows, allowed lateness and ``sideOutputLateData``; lateness is decided by the row's own stamp.

        Raises:
            DefinitionError: DEFINITION-032..035, 054, 055, 123, 135.
        """
        where = self.stream.at_step("window")
        lateness = span(allowed_lateness, f"{where}, allowed_lateness")
        if not isinstance(window, get_args(Window)):
            fix = 'For example .window(Tumbling("1 hour")).'
            expected = "Tumbling, Sliding, Cumulative, Calendar, Session, Count, Global or a WindowAssigner"
            raise DefinitionError(where, expected, repr(window), fix, code="DEFINITION-054")
        choices: list[tuple[object, tuple[object, ...]]] = [
            (late, get_args(steps.Late)),
            (accumulation, get_args(steps.Accumulation)),
            (time, get_args(Clock)),
        ]
        choices += [(order, (None, *get_args(steps.Order))), (on_error, get_args(steps.OnError))]
        wrong = [repr(value) for value, known in choices if value not in known]
        clocked = time == "processing"
        if lateness < 0 or wrong or (clocked and (lateness or order == "event_time")):
            fix = (
                'allowed_lateness is zero or more; in processing time it is zero and rows come as they arrive; late is "drop" or "side_output", accumulation '
                '"accumulating" or "discarding", time "event" or "processing", order "arrival" or "event_time", on_error "stop" or "quarantine".'
            )
            got = ", ".join(wrong) or f"allowed_lateness={describe_span(lateness)}, order={order!r} in {time} time"
            raise unfit_setting(where, got, fix)
        if isinstance(window, Session) and isinstance(window.gap, str):
            kind = known_type(window.gap, self.stream.schema, f"{where}, gap")
            if not parse(kind).is_numeric:
                fix = 'Milliseconds: Session("gap_seconds * 1000", per_row=True).'
                got = f"'{window.gap}' of type {kind}"
                raise DefinitionError(f"{where}, gap", "a number of milliseconds", got, fix, code="DEFINITION-030")
        if evictor is not None:
            checked_evictor(evictor, self.stream.schema, where)
            if isinstance(window, Count):
                fix = "Use Global() with a trigger and the evictor, or Count() alone."
                got = f"Count() with {type(evictor).__name__}"
                raise DefinitionError(
                    where, "Count(), which keeps its last rows itself", got, fix, code="DEFINITION-058"
                )
        _check_comparable(window, where)
        resolved = declared(window)
        _check_keys(self.keys, resolved, where)
        _check_trigger(trigger, resolved, where, divided=resolved is not window)
        settings: dict[str, Any] = {"allowed_lateness": lateness, "late": late, "trigger": trigger, "evictor": evictor}
        settings |= {"accumulation": accumulation, "time": time, "order": order, "on_error": on_error}
        return WindowedStream(self, resolved, settings)

    def rolling(self, *, uid: str | None = None, **aggregates: AnyAggregate) -> Stream[Any]:
        """Aggregates over all rows of a key so far, emitted for every row; the last value of each key is in ``<output>__current``.

        Shape: the keys, then one column per aggregate. State: one accumulator per key, for ever.
        Time: a value has the event time of the row that caused it.
        Source: Flink ``KeyedStream.sum``, ``minBy``; a bounded run ends with the same last values.
        """
        with global_per(None):
            windowed = self.window(Global(), trigger=AfterCount(1))
        return windowed.aggregate(uid=uid, **aggregates)


def _check_comparable(value: Window | Trigger, where: str) -> None:
    """Refuse a window or trigger of the user that cannot be hashed, or whose attributes cannot be part of the version."""
    try:
        hash(value)
    except TypeError:
        fix = "Make it @dataclass(frozen=True), or a plain class."
        got = f"{type(value).__name__}, which cannot be hashed"
        raise DefinitionError(
            where, "a window and a trigger that can be compared", got, fix, code="DEFINITION-035"
        ) from None
    _check_settings(value, where)


def _check_settings(value: object, where: str) -> None:
    """Refuse attributes of an object of the user's class that cannot be part of the operator's version."""
    if not type(value).__module__.startswith("floodmark.spec."):
        settings_of(getattr(value, "__dict__", {}), f"{where}, {type(value).__name__}")


def _check_keys(keys: tuple[str, ...], window: Window, where: str) -> None:
    bounds = steps.BOUNDS if bounded_in_time(window) else ()
    for key in keys:
        if key.lower() in bounds:
            fix = f'Give it another name first: .with_columns(of_{key}="{itself(key)}").key_by("of_{key}").'
            expected = f"keys beside {' and '.join(bounds)}, which every window adds"
            raise DefinitionError(where, expected, f"a key '{key}'", fix, code="DEFINITION-135")


def _check_trigger(trigger: object, window: Window, where: str, *, divided: bool) -> None:
    if trigger is None:
        return
    if not isinstance(trigger, Trigger):
        fix = 'For example trigger=AfterCount(100) or AfterWatermark().early(Every("1 minute")).'
        raise DefinitionError(where, "a trigger", repr(trigger), fix, code="DEFINITION-032")
    for part in parts(trigger):
        _check_comparable(part, where)
    why = never_fires(trigger, ends=bounded_in_time(window))
    if isinstance(window, Count):
        why = "Count() fires by its own count"
    if why:
        fix = (
            "Leave the trigger out: over asset partitions Global() is one window per partition, which fires at its end."
        )
        if not divided:
            fix = "Use Global() with a trigger of your own, or AfterWatermark() with .early(...); see the docs of triggers."
        raise DefinitionError(
            where, "a trigger that can fire", f"{trigger.describe()}: {why}", fix, code="DEFINITION-034"
        )


@dataclass(frozen=True, slots=True)
class WindowedStream(Builder):
    """A stream per key and window: call ``aggregate``, ``reduce`` or ``process`` on it."""

    builds = '.window(Tumbling("1 hour"))'

    keyed: KeyedStream
    window: Window
    settings: dict[str, Any]

    def aggregate(self, *, uid: str | None = None, **aggregates: AnyAggregate) -> Stream[Any]:
        """One row per key and window.

        Args:
            uid: names the state of this step; by default the operator's name.
            aggregates: ``departures=count(), mean_delay=mean("dep_delay")``.

        Shape: the keys, ``window_start``, ``window_end`` (not for ``Global`` and ``Count``), then one column per aggregate.
        State: per open window and key one accumulator; until the window's end, plus the allowed lateness. With an evictor, all rows.

        Raises:
            DefinitionError: DEFINITION-040..043, 050, 056.
        """
        where = self.keyed.stream.at_step("aggregate")
        if not aggregates:
            raise DefinitionError(
                where, "at least one", "none", "Write aggregate(rows=count()).", code="DEFINITION-056"
            )
        return self._step(
            uid, [*self._head(), *self._measured(aggregates, where)], aggregates=tuple(aggregates.items())
        )

    def reduce(
        self, function: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]], *, uid: str | None = None
    ) -> Stream[Any]:
        """Fold the rows of a window two by two into one of the same columns. Source: Flink ``ReduceFunction``.

        Args:
            function: (row so far, next row) -> row; the first row of a window is not passed to it. For sessions, whose parts are reduced
                on their own, the function must be associative and commutative.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, ``window_start``, ``window_end``, then the other columns of the input. State: one row per window.
        """
        where, head = self.keyed.stream.at_step("reduce"), self._head()
        self._keeps_no_rows(where)
        names = {c.name for c in head}
        value_columns = [c for c in self.keyed.stream.schema.columns if c.name not in names]
        return self._step(uid, [*head, *value_columns], function=Function.of(function, where), reduces=True)

    def process(
        self,
        function: Callable[[Pane, Any], Iterable[Mapping[str, Any]]],
        schema: type[Contract],
        *,
        uid: str | None = None,
        **aggregates: AnyAggregate,
    ) -> Stream[Any]:
        """Any number of rows per pane, from all its rows. Source: Flink ``ProcessWindowFunction``.

        Args:
            function: (pane, rows) -> rows. ``rows`` are all rows of the window in order of arrival, read only; with ``aggregates`` the
                second argument is one mapping of their results instead, and the state holds no rows. It must depend on its arguments alone.
            schema: contract of the rows it yields.
            uid: names the state of this step; by default the operator's name.
            aggregates: computed row by row.

        Shape: the keys, ``window_start``, ``window_end`` (not for ``Global`` and ``Count``), then the contract's columns.
        State: every row of a window until it is freed; with ``aggregates`` one accumulator.

        Raises:
            DefinitionError: DEFINITION-050, 051, 057.
        """
        where, head = self.keyed.stream.at_step("process"), self._head()
        fix = "process(median_of, schema=Median), where Median is a Contract and median_of yields dictionaries."
        columns = columns_of(schema, where, fix).columns
        if aggregates:
            self._keeps_no_rows(where)
            self._measured(aggregates, where)
        names = {c.name for c in head}
        own = [c for c in columns if c.name not in names]
        settings = {"function": Function.of(function, where), "aggregates": tuple(aggregates.items())}
        return self._step(uid, [*head, *own], **settings)

    def top(
        self,
        n: int,
        by: str | Sequence[str] = (),
        *,
        number: str = "",
        numbering: Numbering = "row_number",
        latest: bool = False,
        uid: str | None = None,
    ) -> Stream[Any]:
        """The first ``n`` rows of each key and window, once the window fires; settings as of ``KeyedStream.top``.

        Shape: the keys, ``window_start``, ``window_end`` (not for ``Global`` and ``Count``), the other columns, then the number.
        State: every row of a window until it is freed.
        """
        return top_of_window(self, n, by, number, numbering, uid, latest=latest)

    def _head(self) -> list[Column]:
        bounds = steps.BOUNDS if bounded_in_time(self.window) else ()
        key_columns = [self.keyed.stream.schema[key] for key in self.keyed.keys]
        return key_columns + [Column(name=name, type="timestamp", nullable=False) for name in bounds]

    def _measured(self, aggregates: Mapping[str, AnyAggregate], where: str) -> list[Column]:
        columns: list[Column] = []
        taken = {c.name for c in self._head()}
        for name, aggregate in aggregates.items():
            wrong = [repr(name)] if name in taken or name.startswith("_") else []
            fix = "Rename the aggregate; keys, window_start and window_end are there already."
            new_columns(wrong, where, "a new column name", fix)
            kind = result_type(aggregate, self.keyed.stream.schema, f"{where}, column '{name}'")
            _check_settings(aggregate, f"{where}, column '{name}'")
            columns.append(Column(name=name, type=kind))
        return columns

    def _keeps_no_rows(self, where: str) -> None:
        evictor = self.settings["evictor"]
        if evictor is not None:
            fix = "Use process(function, schema) over all rows, or aggregate(...), which computes them anew from what the evictor leaves."
            got = f"{type(evictor).__name__} over rows that are aggregated as they come"
            raise DefinitionError(where, "an evictor only where rows are kept", got, fix, code="DEFINITION-058")

    def _step(self, uid: str | None, columns: list[Column], **what: Any) -> Stream[Any]:
        stream = self.keyed.stream
        step = steps.WindowAggregate(
            parent=stream.step,
            uid=uid or stream.operator,
            keys=self.keyed.keys,
            window=self.window,
            schema=Schema(tuple(columns)),
            **({"aggregates": ()} | self.settings | what),
        )
        return Stream(step, stream.operator)


@frozen(init=False)
class Outputs:
    """Several named results of one operator.

    Example: ``Outputs(severe=flights.filter("dep_delay >= 60"), normal=flights.filter("dep_delay < 60"))``
    """

    streams: tuple[tuple[str, Stream[Any]], ...]

    def __init__(self, **streams: Stream[Any]) -> None:
        self.__attrs_init__(tuple(streams.items()))


Body = Callable[..., Stream[Any] | Outputs]
