"""Process functions on keyed streams, alone or connected to another stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.time import span
from floodmark.spec import steps
from floodmark.spec.builder import Builder
from floodmark.spec.checks import columns_of, new_columns, unfit_setting
from floodmark.spec.contract import Contract
from floodmark.spec.contract import schema as contract_schema
from floodmark.spec.expressions import check
from floodmark.spec.matching import DELETED, Deduplicate, History
from floodmark.spec.process import (
    BroadcastProcessFunction,
    CoProcessFunction,
    Process,
    ProcessFunction,
    StatefulFunction,
)
from floodmark.spec.schema import Column, Schema
from floodmark.spec.tagged import tagged

if TYPE_CHECKING:
    from floodmark.spec.stream import KeyedStream, Stream

Sides = Mapping[str, type[Contract]]
_UNORDERED = ("array", "binary", "boolean", "double", "float")  # NaN is not less, not equal and not greater
_OWN = frozenset({"late", "current", "quarantine"})


@dataclass(frozen=True, slots=True)
class Broadcast(Builder):
    """A stream every key sees: ``Stream.broadcast()``."""

    stream: Stream[Any]


@dataclass(frozen=True, slots=True)
class Connected(Builder):
    """Two streams, connected: the rows of both come to one process function."""

    builds = '.key_by("column").connect(other)'

    left: KeyedStream
    right: KeyedStream | Broadcast

    def process(
        self,
        function: CoProcessFunction | BroadcastProcessFunction,
        schema: type[Contract],
        *,
        sides: Sides | None = None,
        uid: str | None = None,
        order: steps.Order | None = None,
        on_error: steps.OnError = "stop",
    ) -> Stream[Any]:
        """Rows of both streams through a ``CoProcessFunction``, or with a broadcast stream a ``BroadcastProcessFunction``.

        Settings as of ``KeyedStream.process``. Order: by event time, as how two inputs interleave is not recorded;
        ``order="arrival"`` takes rows as they come (not with a broadcast stream), and ``validate`` flags it.
        """
        where = self.left.stream.where("process")
        if isinstance(self.right, Broadcast):
            if order == "arrival":
                fix = "Leave order out: rows and rules come by event time, so that a replay applies the same rule to the same row."
                raise DefinitionError(where, "order by event time", "arrival", fix, code="DEFINITION-055")
            parent, ports = tagged(self.left, self.right.stream, (), ("element", "broadcast"), where)
            kind: type[StatefulFunction] = BroadcastProcessFunction
        else:
            parent, ports = tagged(self.left, self.right.stream, self.right.keys, ("left", "right"), where)
            kind = CoProcessFunction
        settings: dict[str, Any] = {"sides": sides, "uid": uid, "order": order, "on_error": on_error}
        return processed(self.left, parent, ports, Process.of(function, kind, where), schema, where, **settings)


def processed(  # noqa: PLR0913 - settings by name
    keyed: KeyedStream,
    parent: steps.Step,
    ports: tuple[steps.Port, ...],
    function: Process,
    schema: type[Contract],
    where: str,
    *,
    sides: Sides | None,
    uid: str | None,
    order: steps.Order | None,
    on_error: steps.OnError,
) -> Stream[Any]:
    """The step of a process function, checked."""
    if not isinstance(sides or {}, Mapping) or not all(isinstance(name, str) for name in sides or {}):
        fix = 'sides={"freezing": Alert}, where Alert is a Contract.'
        raise DefinitionError(where, "side outputs by name", repr(sides), fix, code="DEFINITION-051")
    for given in (schema, *(sides or {}).values()):
        fix = "process(Rises(), schema=Rise), where Rise is a Contract."
        columns_of(given, where, fix)
    wrong = next(
        (name for name in sides or {} if not name.isidentifier() or name.startswith("_") or name in _OWN), None
    )
    if wrong is not None:
        fix = "Choose another name: letters, digits and underscores; late, current and quarantine are floodmark's."
        raise DefinitionError(where, "names of side outputs", repr(wrong), fix, code="DEFINITION-064")
    if order not in (None, *get_args(steps.Order)) or on_error not in get_args(steps.OnError):
        fix = 'order is "arrival" or "event_time", on_error "stop" or "quarantine".'
        raise unfit_setting(where, f"{order!r}, {on_error!r}", fix)
    outputs = tuple((name, _with_keys(keyed, given)) for name, given in (sides or {}).items())
    settings: dict[str, Any] = {"ports": ports, "sides": outputs, "order": order, "on_error": on_error}
    return keyed._then(uid, parent, _with_keys(keyed, schema), function=function, **settings)  # noqa: SLF001 - its other half


def _with_keys(keyed: KeyedStream, schema: type[Contract]) -> Schema:
    head = [keyed.stream.schema[key] for key in keyed.keys]
    return Schema((*head, *(c for c in contract_schema(schema).columns if c.name not in keyed.keys)))


class Processes(Builder):
    """Process functions, one stream's or two connected ones'; mixed into ``KeyedStream``."""

    stream: Stream[Any]
    keys: tuple[str, ...]
    __slots__ = ()

    def process(
        self,
        function: ProcessFunction,
        schema: type[Contract],
        *,
        sides: Sides | None = None,
        uid: str | None = None,
        order: steps.Order | None = None,
        on_error: steps.OnError = "stop",
    ) -> Stream[Any]:
        """The rows of each key, one after the other, through code of yours with state and timers.

        Args:
            function: an instance; its class's source, its settings and its state's layout are part of the version.
            schema: contract of the rows it yields; the key's columns need not be in it.
            sides: side output -> contract of its rows; each becomes a table ``<operator>__<name>``.
            uid: names the state of this step; by default the operator's name.
            order: ``"arrival"`` takes rows as they come, ``"event_time"`` sorts them by it. By default as they come where that is
                recorded (one landed log), else sorted: there a row waits until progress reaches its event time.
            on_error: what an exception in a row's callback does: ``"stop"`` ends the run with it, ``"quarantine"`` sets the row aside in
                ``<operator>__quarantine`` with what it has changed undone. Timers stop the run all the same.

        Shape: the key's columns, then the contract's others.
        State: what the function keeps; freed when it clears it, or by time to live.
        Time: a row keeps the stamps of the row that caused it; of a timer at t it has the event time t. Late rows come too:
            compare ``ctx.timestamp`` with ``ctx.watermark``. A bounded run covers all of time.
        Source: Flink ``KeyedProcessFunction``.

        Raises:
            DefinitionError: DEFINITION-051, 055, 064, 120..123.
        """
        keyed = keyed_stream(self)
        where = self.stream.where("process")
        settings: dict[str, Any] = {"sides": sides, "uid": uid, "order": order, "on_error": on_error}
        return processed(
            keyed, self.stream.step, (), Process.of(function, ProcessFunction, where), schema, where, **settings
        )

    def deduplicate(
        self, within: str | timedelta, *, uid: str | None = None, order: steps.Order | None = None
    ) -> Stream[Any]:
        """The first row of each key; rows of the key that follow are passed over until progress has reached its event time + ``within``.

        Args:
            within: how long a key is remembered after its first row; what is delivered again comes within it.
            uid: names the state of this step; by default the operator's name.
            order: as of ``process``: which of them is the first.

        Shape: the keys, then the other columns. State: a mark per key, for ``within``.
        Source: Spark ``dropDuplicatesWithinWatermark``.

        Raises:
            DefinitionError: DEFINITION-055, not a positive duration.
        """
        where = self.stream.where("deduplicate")
        length = span(within, f"{where}, within")
        if length <= 0:
            fix = 'For example key_by("order_id").deduplicate("1 day").'
            raise DefinitionError(where, "a positive duration", repr(within), fix, code="DEFINITION-055")
        schema = self.stream.schema
        rest = tuple(c for c in schema.columns if c.name not in self.keys)
        columns = Schema((*(schema[key] for key in self.keys), *rest))
        return self._then(uid, self.stream.step, columns, function=Process(Deduplicate(length)), order=order)

    def scd2(
        self,
        *,
        deleted: str | None = None,
        track: Sequence[str] | None = None,
        sequence: str | None = None,
        uid: str | None = None,
    ) -> Stream[Any]:
        """The history of each key, one row per version: a slowly changing dimension of type 2.

        Args:
            deleted: SQL over a row: it ends the key's version and begins none, ``"change = 'delete'"``.
            track: the columns whose change begins a version; a change of others replaces the columns of the version it comes in. None: all,
                the column of the event time too: leave it out by ``select``, ``valid_from`` says it.
            sequence: the column that says which of several rows of one instant is the last, ``"_commit_version"`` by an alias: the greatest, null
                first. It is no part of a version. None, and where it is equal: one that is the same in every run.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, the other columns, ``valid_from``, ``valid_to`` (exclusive; null: still valid). The table ``__current`` has a row per
        key and ``valid_from``; in the log a version that ends is taken back and written again with its end.
        Time: a version begins at the event time of its row. Rows are taken in order of event time, so each waits until progress reaches it;
        one that is older than the version at hand is late: it is dropped and counted. Of several rows of one instant the last one counts.
        State: the version at hand of every key, for ever, also of deleted ones.
        Source: Databricks ``AUTO CDC ... STORED AS SCD TYPE 2``, ``SEQUENCE BY``.

        Raises:
            DefinitionError: DEFINITION-022 unknown column or one that has no order, 041 an expression, 050 a column ``valid_from`` or ``valid_to`` is there already.
        """
        where, stream = self.stream.where("scd2"), self.stream
        condition = deleted if deleted is not None else "false"
        check(condition, stream.schema, f"{where}, deleted", boolean=True)
        if sequence is not None and stream.schema.types.get(sequence, "array").startswith(_UNORDERED):
            kind = stream.schema.types.get(sequence)
            fix = stream.schema.nearest(sequence) if kind is None else f"Columns: {stream.schema.describe()}."
            got = repr(sequence) if kind is None else f"{sequence!r}, {kind}"
            expected = "a column of numbers, text or times"
            raise DefinitionError(f"{where}, sequence", expected, got, fix, code="DEFINITION-022")
        rest = tuple(c for c in stream.schema.columns if c.name not in {*self.keys, sequence})
        names = tuple(c.name for c in rest)
        for name in track if track is not None else ():
            if name not in names:
                fix = closest(name, names) + f"Columns of a version: {', '.join(names)}."
                expected = "a column that is no key"
                raise DefinitionError(f"{where}, track", expected, repr(name), fix, code="DEFINITION-022")
        taken = [name for name in ("valid_from", "valid_to") if name in stream.schema][:1]
        new_columns(taken, where, "new columns valid_from and valid_to", "Rename it before: select(...).")
        expressions = (
            *((c.name, f"`{c.name}`") for c in stream.schema.columns),
            (DELETED, f"coalesce({condition}, false)"),
        )
        marked = Schema((*stream.schema.columns, Column(name=DELETED, type="boolean", nullable=False)))
        bounds = [Column(name=n, type="timestamp", nullable=n == "valid_to") for n in ("valid_from", "valid_to")]
        function = History(names, names if track is None else tuple(track), sequence)
        columns = Schema((*(stream.schema[key] for key in self.keys), *rest, *bounds))
        parent = steps.Project(stream.step, expressions, marked)
        return self._then(uid, parent, columns, function=Process(function), order="event_time")

    def connect(self, other: KeyedStream | Broadcast) -> Connected:
        """This stream and another for one function: keyed alike they share its state; ``rules.broadcast()`` is seen by every key.

        Example: ``readings.key_by("sensor").connect(switches.key_by("sensor")).process(Filter(), schema=Reading)``
        """
        if not isinstance(other, (Broadcast, Processes)):
            fix = 'connect(other.key_by("sensor")), or connect(rules.broadcast()).'
            raise DefinitionError(
                self.stream.where("connect"), "a keyed or a broadcast stream", told(other), fix, code="DEFINITION-124"
            )
        return Connected(keyed_stream(self), other)

    def _then(
        self,
        uid: str | None,
        parent: steps.Step,
        schema: Schema,
        node: type[steps.Stateful] = steps.KeyedProcess,
        **settings: Any,
    ) -> Stream[Any]:
        """The stream of a stateful step over these keys; its state has the operator's name by default."""
        step = node(parent=parent, uid=uid or self.stream.operator, keys=self.keys, schema=schema, **settings)
        return replace(self.stream, step=step)


def keyed_stream(processes: Any) -> KeyedStream:
    """The stream that it is mixed into."""
    keyed: KeyedStream = processes
    return keyed


def told(other: object) -> str:
    """Something that is no keyed stream, for errors."""
    schema = getattr(other, "schema", None)
    return f"one of {schema.describe()}, without a key" if isinstance(schema, Schema) else repr(other)
