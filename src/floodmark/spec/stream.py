"""Stream: what an operator is written against. A fluent builder of steps; it computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic

from typing_extensions import TypeVar

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.time import describe_span, span
from floodmark.spec import steps
from floodmark.spec.aggregates import AnyAggregate, result_type
from floodmark.spec.contract import Contract
from floodmark.spec.contract import schema as contract_schema
from floodmark.spec.expressions import check
from floodmark.spec.schema import STAMPS, Column, Schema
from floodmark.spec.windows import Calendar, Global, Sliding, Tumbling, Window

Row_co = TypeVar("Row_co", covariant=True, default=Any)


@dataclass(frozen=True, slots=True)
class Stream(Generic[Row_co]):
    """Rows of a contract in time; bounded or not is not its business.

    Every method returns a new stream; nothing is read before a run. Expressions are Spark SQL text.
    """

    step: steps.Step
    operator: str

    @property
    def schema(self) -> Schema:
        """The columns at this point."""
        return self.step.schema

    def filter(self, condition: str) -> Stream[Row_co]:
        """The rows for which ``condition`` is true (not false, not null).

        Time: rows keep their stamps; a filter that matches nothing still lets time pass.
        """
        check(condition, self.schema, self.where("filter"), boolean=True)
        return Stream(steps.Filter(self.step, condition), self.operator)

    def select(self, *columns: str, **named: str) -> Stream[Any]:
        """Only these columns: names as they are, ``name="expression"`` for new ones.

        Raises:
            DefinitionError: DEFINITION-022 unknown column, DEFINITION-050 a name twice or reserved, DEFINITION-043 unknown type.
        """
        where = self.where("select")
        for column in columns:
            self._known(column, where)
        return self._project(tuple((c, c) for c in columns) + tuple(named.items()), where)

    def with_columns(self, **named: str) -> Stream[Any]:
        """All columns, and ``name="expression"`` as new ones or in place of one; expressions see the columns as they were."""
        kept = tuple((c, named.get(c, c)) for c in self.schema.names)
        new = tuple((name, text) for name, text in named.items() if name not in self.schema)
        return self._project(kept + new, self.where("with_columns"))

    def flat_map(self, function: steps.RowFunction, schema: type[Contract]) -> Stream[Any]:
        """Every row becomes the rows ``function`` yields for it.

        Args:
            function: from a read-only mapping of the row's columns to an iterable of mappings. Its source is part of the version;
                it must depend on its argument alone.
            schema: contract of the rows it yields; they keep the stamps (and so the event time) of the row they came from.

        Raises:
            DefinitionError: DEFINITION-051, not a function or not a contract.
        """
        where = self.where("flat_map")
        if not callable(function) or not (isinstance(schema, type) and issubclass(schema, Contract)):
            fix = "flat_map(split_words, schema=Word), where Word is a Contract and split_words yields dictionaries."
            got = f"{function!r} and {schema!r}"
            raise DefinitionError(where, "a function and the contract of its rows", got, fix, code="DEFINITION-051")
        return Stream(steps.FlatMap.of(self.step, function, contract_schema(schema)), self.operator)

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
                    self.where("union"), f"streams of {self.schema.describe()}", got, fix, code="DEFINITION-052"
                )
        return Stream(steps.Union((self.step, *(other.step for other in others))), self.operator)

    def key_by(self, *columns: str) -> KeyedStream:
        """Work on each combination of values of these columns by itself; null is a value like any other."""
        where = self.where("key_by")
        if not columns:
            fix = 'Name a column, key_by("origin"), or leave key_by out for one result over all rows.'
            raise DefinitionError(where, "at least one column", "none", fix, code="DEFINITION-053")
        for column in columns:
            self._known(column, where)
        return KeyedStream(self, columns)

    def window(
        self, window: Window, *, allowed_lateness: str | timedelta = "0 s", late: steps.Late = "drop"
    ) -> WindowedStream:
        """Windows over all rows together, without a key. See ``KeyedStream.window``."""
        return KeyedStream(self, ()).window(window, allowed_lateness=allowed_lateness, late=late)

    def _project(self, columns: tuple[tuple[str, str], ...], where: str) -> Stream[Any]:
        names = [name for name, _ in columns]
        wrong = [n for n in names if names.count(n) > 1 or n in STAMPS or n.startswith("_")]
        if wrong or not names:
            fix = "Give each column one name; names that begin with an underscore are floodmark's."
            got = ", ".join(dict.fromkeys(wrong)) or "no column"
            raise DefinitionError(where, "different names", got, fix, code="DEFINITION-050")
        out = []
        for name, text in columns:
            kind = check(text, self.schema, f"{where}, column '{name}'")
            if not kind:
                fix = f'Say the type: {name}="CAST({text} AS double)".'
                place = f"{where}, column '{name}'"
                raise DefinitionError(place, "an expression of known type", repr(text), fix, code="DEFINITION-043")
            plain = next((c for c in self.schema.columns if c.name == text), None)
            out.append(Column(name=name, type=kind, description=plain.description if plain else ""))
        return Stream(steps.Project(self.step, columns, Schema(tuple(out))), self.operator)

    def _known(self, column: object, where: str) -> None:
        if not isinstance(column, str) or column not in self.schema:
            fix = closest(str(column), self.schema.names) + f"Columns: {self.schema.describe()}."
            if not isinstance(column, str):
                fix = f"Write the column's name as text. {fix}"
            raise DefinitionError(where, "columns of the stream", repr(column), fix, code="DEFINITION-022")

    def where(self, step: str) -> str:
        """The operator and step, for error messages."""
        return f"operator '{self.operator}', step '{step}'"


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """A stream taken per key."""

    stream: Stream[Any]
    keys: tuple[str, ...]

    def window(
        self, window: Window, *, allowed_lateness: str | timedelta = "0 s", late: steps.Late = "drop"
    ) -> WindowedStream:
        """Group the rows of each key into windows of event time.

        Args:
            window: ``Tumbling``, ``Sliding``, ``Calendar`` or ``Global``.
            allowed_lateness: rows this late still revise the result: the old value is retracted, the new one follows.
            late: what becomes of rows later than that: ``"drop"`` counts them, ``"side_output"`` keeps those late for all
                their windows in ``<output>__late``.

        Time: the result of [s, e) comes out when progress reaches e - 1 ms; state is freed ``allowed_lateness`` later.
        Source: Flink, allowed lateness and ``sideOutputLateData``; lateness is judged by the row's own stamp.
        """
        where = self.stream.where("window")
        lateness = span(allowed_lateness, f"{where}, allowed_lateness")
        if not isinstance(window, (Tumbling, Sliding, Calendar, Global)):
            fix = 'For example .window(Tumbling("1 hour")).'
            expected = "Tumbling, Sliding, Calendar or Global"
            raise DefinitionError(where, expected, repr(window), fix, code="DEFINITION-054")
        if lateness < 0 or late not in {"drop", "side_output"}:
            fix = 'allowed_lateness is zero or more; late is "drop" or "side_output".'
            got = f"allowed_lateness={describe_span(lateness)}, late={late!r}"
            raise DefinitionError(where, "valid settings", got, fix, code="DEFINITION-055")
        return WindowedStream(self, window, lateness, late)


@dataclass(frozen=True, slots=True)
class WindowedStream:
    """A stream per key and window, waiting for what to compute."""

    keyed: KeyedStream
    window: Window
    allowed_lateness: int
    late: steps.Late

    def aggregate(self, *, uid: str | None = None, **aggregates: AnyAggregate) -> Stream[Any]:
        """One row per key and window.

        Args:
            uid: names the state of this step; by default the operator's name.
            aggregates: ``departures=count(), mean_delay=mean("dep_delay")``.

        Shape: the keys, ``window_start``, ``window_end`` (not for ``Global``), then one column per aggregate.
        State: per open window and key one accumulator; until the window's end, plus the allowed lateness.

        Raises:
            DefinitionError: DEFINITION-040..043, 050, 056.
        """
        stream = self.keyed.stream
        where = stream.where("aggregate")
        if not aggregates:
            raise DefinitionError(
                where, "at least one", "none", "Write aggregate(rows=count()).", code="DEFINITION-056"
            )
        bounds = () if isinstance(self.window, Global) else ("window_start", "window_end")
        columns = [stream.schema[key] for key in self.keyed.keys]
        columns += [Column(name=name, type="timestamp", nullable=False) for name in bounds]
        for name, aggregate in aggregates.items():
            if name in {c.name for c in columns} or name.startswith("_"):
                fix = "Rename the aggregate; keys, window_start and window_end are there already."
                raise DefinitionError(where, "a new column name", repr(name), fix, code="DEFINITION-050")
            columns.append(Column(name=name, type=result_type(aggregate, stream.schema, f"{where}, column '{name}'")))
        step = steps.WindowAggregate(
            parent=stream.step,
            uid=uid or stream.operator,
            keys=self.keyed.keys,
            window=self.window,
            allowed_lateness=self.allowed_lateness,
            late=self.late,
            aggregates=tuple(aggregates.items()),
            schema=Schema(tuple(columns)),
        )
        return Stream(step, stream.operator)


@dataclass(frozen=True, slots=True, init=False)
class Outputs:
    """Several named results of one operator.

    Example: ``Outputs(severe=flights.filter("dep_delay >= 60"), normal=flights.filter("dep_delay < 60"))``
    """

    streams: tuple[tuple[str, Stream[Any]], ...]

    def __init__(self, **streams: Stream[Any]) -> None:
        object.__setattr__(self, "streams", tuple(streams.items()))


Body = Callable[..., Stream[Any] | Outputs]
