"""Process functions and joins on keyed streams: how two streams become the one input of a stateful step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError, closest
from floodmark.core.time import describe_span, span
from floodmark.spec import steps
from floodmark.spec.builder import Builder
from floodmark.spec.checks import columns_of, new_columns, one_of, unfit_setting
from floodmark.spec.contract import Contract
from floodmark.spec.contract import schema as contract_schema
from floodmark.spec.expressions import check
from floodmark.spec.functions import Function, Pane
from floodmark.spec.matching import DELETED, CoGroup, Deduplicate, History, TemporalJoin, WindowJoin
from floodmark.spec.process import (
    BroadcastProcessFunction,
    CoProcessFunction,
    Process,
    ProcessFunction,
    StatefulFunction,
)
from floodmark.spec.schema import Column, Schema
from floodmark.spec.windows import Window, bounded_in_time

if TYPE_CHECKING:
    from floodmark.spec.stream import KeyedStream, Stream

Sides = Mapping[str, type[Contract]]
Include = Literal["both", "lower", "upper", "neither"]
_LONGEST = 1_000 * 366 * 86_400_000
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


def tagged(
    left: KeyedStream,
    right: Stream[Any],
    keys: Sequence[str],
    names: tuple[str, str],
    where: str,
    *,
    last: bool = False,
) -> tuple[steps.Step, tuple[steps.Port, ...]]:
    """The rows of two streams as one: keys, the tag, then the columns of each, null for the other's rows.

    Args:
        left: whose keys give theirs their names.
        right: the other one.
        keys: its key columns, in the order of ``left``'s; none for a broadcast stream.
        names: of the two.
        where: for errors.
        last: rows of ``left`` come after those of the other where all else is equal, and so does its port.

    Raises:
        DefinitionError: DEFINITION-124, the keys do not go together.
    """
    shapes = left.stream.schema, right.schema
    if keys:
        types = [[shape[key].type for key in own] for shape, own in zip(shapes, (left.keys, keys), strict=True)]
        if types[0] != types[1]:
            got = [
                ", ".join(f"{k} {t}" for k, t in zip(own, kinds, strict=True))
                for own, kinds in zip((left.keys, keys), types, strict=True)
            ]
            fix = "key_by as many columns on both sides, of the same types; cast them with with_columns(...)."
            raise DefinitionError(where, "keys that go together", " and ".join(got), fix, code="DEFINITION-124")
    head = [replace(shapes[0][key], nullable=True) for key in left.keys]
    own = (dict(zip(left.keys, left.keys, strict=True)), dict(zip(keys, left.keys, strict=bool(keys))))
    ports, more = [], []
    for tag, shape in enumerate(shapes):
        columns = {c.name: own[tag].get(c.name) or f"_{names[tag]}_{c.name}" for c in shape.columns}
        ports.append(steps.Port(names[tag], tuple(columns.items()), broadcast=not keys and tag == 1))
        more += [replace(c, name=columns[c.name], nullable=True) for c in shape.columns if c.name not in own[tag]]
    schema = Schema((*head, Column(name=steps.TAG, type="int", nullable=False), *more))
    parts = []
    for tag, stream in enumerate((left.stream, right)):
        given = {target: f"`{name}`" for name, target in ports[tag].columns} | {
            steps.TAG: str(1 - tag if last else tag)
        }
        texts = tuple((column.name, given.get(column.name, "NULL")) for column in schema.columns)
        parts.append(steps.Project(stream.step, texts, schema))
    return steps.Union(tuple(parts)), tuple(reversed(ports) if last else ports)


class Joins(Builder):
    """Process functions and joins; mixed into ``KeyedStream``."""

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
        keyed = _keyed(self)
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
        told = Schema((*stream.schema.columns, Column(name=DELETED, type="boolean", nullable=False)))
        bounds = [Column(name=n, type="timestamp", nullable=n == "valid_to") for n in ("valid_from", "valid_to")]
        function = History(names, names if track is None else tuple(track), sequence)
        columns = Schema((*(stream.schema[key] for key in self.keys), *rest, *bounds))
        parent = steps.Project(stream.step, expressions, told)
        return self._then(uid, parent, columns, function=Process(function), order="event_time")

    def connect(self, other: KeyedStream | Broadcast) -> Connected:
        """This stream and another for one function: keyed alike they share its state; ``rules.broadcast()`` is seen by every key.

        Example: ``readings.key_by("sensor").connect(switches.key_by("sensor")).process(Filter(), schema=Reading)``
        """
        if not isinstance(other, (Broadcast, Joins)):
            fix = 'connect(other.key_by("sensor")), or connect(rules.broadcast()).'
            raise DefinitionError(
                self.stream.where("connect"), "a keyed or a broadcast stream", _told(other), fix, code="DEFINITION-124"
            )
        return Connected(_keyed(self), other)

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
            lower: ``"-1 hour"``: the right row may be so much earlier.
            upper: ``"15 minutes"``: it may be so much later.
            kind: ``"inner"``, or what becomes of rows without a partner: ``"left"``, ``"right"``, ``"full"`` give them nulls; ``"semi"`` and
                ``"anti"`` give left rows alone, those with a partner or those without.
            include: which of the bounds count.
            prefix: before the names of the right's columns, its keys apart.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, the left's other columns, the right's.
        Time: a pair has the later of its event times; a row without a partner the time at which none can come any more. Late rows (event
            time not after their watermark) are dropped and counted: their partners may be gone.
        State: a left row until progress reaches its time + upper, a right row until its time - lower.
        Source: Flink ``intervalJoin``; which kinds are defined: SQL.

        Raises:
            DefinitionError: DEFINITION-050 a name twice, 055, 124.
        """
        where = self.stream.where("interval_join")
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
        """An interval join, whatever it is called."""
        keyed, other = _keyed(self), _other(other, where)
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
        """Pairs of rows of one key that are at most ``ttl`` apart in event time, whichever comes first: a regular join with bounded state.

        Settings, shape, time and state as of ``interval_join(other, -ttl, ttl)``, which it is.

        Raises:
            DefinitionError: DEFINITION-125, no ttl: every row of both sides would be kept for ever.
        """
        where = self.stream.where("join")
        if ttl is None or span(ttl, f"{where}, ttl") <= 0:
            kept = " and ".join(s.stream.schema.describe() for s in (_keyed(self), _other(other, where)))
            got = f"none: every row of both streams ({kept}) would be kept for ever"
            fix = (
                'Say how far apart rows may be: join(other, ttl="1 day"), or interval_join, window_join, temporal_join.'
            )
            raise DefinitionError(where, "a bound on the state", got, fix, code="DEFINITION-125")
        bound = span(ttl)
        return self._joined_within(other, (-bound, bound), where, kind=kind, prefix=prefix, uid=uid)

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
        """All pairs of rows of one key in the same window, when it fires; sessions are of the rows of both.

        Args:
            other: keyed alike.
            window: ``Tumbling``, ``Sliding``, ``Calendar`` or ``Session``.
            kind: as of ``interval_join``.
            prefix: before the names of the right's columns, its keys apart.
            uid: names the state of this step; by default the operator's name.
            settings: as of ``KeyedStream.window``.

        Shape: the keys, ``window_start``, ``window_end``, the left's other columns, the right's. Order: by event time, left before right.
        State: every row of both until its window is freed. Source: Flink ``join(...).where(...).window(...)``.

        Raises:
            DefinitionError: DEFINITION-050, 054, 055, 124.
        """
        where = self.stream.where("window_join")
        keyed, other = _keyed(self), _other(other, where)
        one_of(steps.JoinKind, kind, "kind", where)
        parent, ports = tagged(keyed, other.stream, other.keys, ("left", "right"), where)
        schema = _joined(keyed, other, kind, prefix, where)
        rest = tuple(c for c in schema.columns if c.name not in self.keys)
        function = WindowJoin(kind, ports, _places(keyed, other, kind, prefix))
        return self._grouped(parent, window, Function(function, Code(text=function.text())), rest, uid, where, settings)

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
        """The rows of both streams of one key and window through a function, also where one has none.

        Args:
            other: keyed alike.
            window: ``Tumbling``, ``Sliding``, ``Calendar`` or ``Session``.
            function: (pane, rows of the left, rows of the right) -> rows.
            schema: contract of the rows it yields.
            uid: names the state of this step; by default the operator's name.
            settings: as of ``KeyedStream.window``.

        Shape: the keys, ``window_start``, ``window_end``, the contract's other columns. Source: Flink ``coGroup``.
        """
        where = self.stream.where("co_group")
        keyed, other = _keyed(self), _other(other, where)
        fix = "co_group(other, Tumbling(...), compare, schema=Comparison), where Comparison is a Contract."
        columns = columns_of(schema, where, fix).columns
        parent, ports = tagged(keyed, other.stream, other.keys, ("left", "right"), where)
        head = {*self.keys, "window_start", "window_end"}
        rest = tuple(c for c in columns if c.name not in head)
        found = Function.of(function, where)
        return self._grouped(parent, window, Function(CoGroup(function, ports), found.code), rest, uid, where, settings)

    def temporal_join(
        self,
        versions: KeyedStream,
        *,
        kind: Literal["inner", "left"] = "inner",
        valid_until: str | None = None,
        allowed_lateness: str | timedelta = "0 s",
        prefix: str = "",
        uid: str | None = None,
    ) -> Stream[Any]:
        """Each row with the version of its key that was valid at the row's event time.

        Args:
            versions: keyed alike; each row is a version from its event time on, until the next one of its key.
            kind: ``"left"`` keeps rows without a version, with nulls.
            valid_until: a timestamp column of ``versions``: it ends there, exclusive (null: it does not).
            allowed_lateness: rows this late still find their version; later ones are dropped and counted.
            prefix: before the names of the versions' columns, its keys apart.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, this stream's other columns, those of the version.
        Order: by event time, a version before a row of the same time; so a row waits until progress reaches its event time.
        State: per key the newest version and those younger than ``allowed_lateness``.
        Source: Flink event-time temporal join.

        Raises:
            DefinitionError: DEFINITION-022, 050, 055, 124.
        """
        where = self.stream.where("temporal_join")
        keyed, other = _keyed(self), _other(versions, where)
        lateness = span(allowed_lateness, f"{where}, allowed_lateness")
        if kind not in {"inner", "left"} or lateness < 0:
            got = f"kind={kind!r}, allowed_lateness={describe_span(lateness)}"
            fix = 'kind is "inner" or "left", allowed_lateness zero or more.'
            raise unfit_setting(where, got, fix)
        if valid_until is not None and other.stream.schema.types.get(valid_until) != "timestamp":
            expected, fix = "a timestamp column of the versions", other.stream.schema.nearest(valid_until)
            raise DefinitionError(where, expected, repr(valid_until), fix, code="DEFINITION-022")
        parent, ports = tagged(keyed, other.stream, other.keys, ("row", "version"), where, last=True)
        function = TemporalJoin(kind, lateness, valid_until, _places(keyed, other, kind, prefix))
        schema = _joined(keyed, other, kind, prefix, where)
        return self._then(uid, parent, schema, function=Process(function), ports=ports, order="event_time")

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

    def _grouped(
        self,
        parent: steps.Step,
        window: Window,
        function: Function,
        rest: tuple[Column, ...],
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
        keyed = type(_keyed(self))(replace(self.stream, step=parent), self.keys)
        windowed = keyed.window(window, **settings)
        return windowed._step(uid, [*windowed._head(), *rest], function=function)  # noqa: SLF001 - its other half


def _keyed(joins: Any) -> KeyedStream:
    found: KeyedStream = joins
    return found


def _other(other: object, where: str) -> KeyedStream:
    if not isinstance(other, Joins):
        fix = 'Key it too: other.key_by("tail").'
        raise DefinitionError(where, "a keyed stream", _told(other), fix, code="DEFINITION-124")
    return _keyed(other)


def _told(other: object) -> str:
    """Something that is no keyed stream, for errors."""
    schema = getattr(other, "schema", None)
    return f"one of {schema.describe()}, without a key" if isinstance(schema, Schema) else repr(other)


def _places(left: KeyedStream, right: KeyedStream, kind: str, prefix: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Per side, (column of its rows, column of the result); keys are not among them."""
    found = [tuple((c.name, c.name) for c in left.stream.schema.columns if c.name not in left.keys)]
    rest = [c.name for c in right.stream.schema.columns if c.name not in right.keys]
    found.append(() if kind in {"semi", "anti"} else tuple((name, prefix + name) for name in rest))
    return tuple(found)


def _joined(left: KeyedStream, right: KeyedStream, kind: str, prefix: str, where: str) -> Schema:
    """The columns of pairs: the keys, the left's others, the right's others; what may be missing is nullable."""
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
