"""Process functions on keyed streams, alone or connected to another stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.time import span
from floodmark.spec.expressions import check
from floodmark.spec.graph import steps
from floodmark.spec.graph.learned import learn, score
from floodmark.spec.graph.ruled import with_rules
from floodmark.spec.graph.tagged import tagged
from floodmark.spec.keyed.matching import DELETED, Deduplicate, History
from floodmark.spec.keyed.process import (
    BroadcastProcessFunction,
    CoProcessFunction,
    Process,
    ProcessFunction,
    StatefulFunction,
)
from floodmark.spec.rows.checks import columns_of, new_columns, unfit_setting
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.contract import schema as contract_schema
from floodmark.spec.values.builder import Builder
from floodmark.spec.values.schema import Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import KeyedStream, Stream

Sides = Mapping[str, type[Contract]]
_UNORDERED = ("array", "binary", "boolean", "double", "float")  # NaN is not less, not equal and not greater
_OWN = frozenset({"late", "current", "quarantine"})


@dataclass(frozen=True, slots=True)
class Broadcast(Builder):
    """A stream whose rows every key receives: ``Stream.broadcast()``."""

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

        Settings as of ``KeyedStream.process``. Order: by event time, as the order between two inputs is not recorded;
        ``order="arrival"`` processes rows in the order they are read (not with a broadcast stream), and ``validate`` flags it.
        """
        where = self.left.stream.at_step("process")
        if isinstance(self.right, Broadcast):
            if order == "arrival":
                fix = "Leave order out: rows and rules come by event time, so that a replay applies the same rule to the same row."
                raise DefinitionError(where, "order by event time", "arrival", fix, code="DEFINITION-055")
            parent, ports = tagged(self.left, self.right.stream, (), ("element", "broadcast"), where, broadcast=True)
            kind: type[StatefulFunction] = BroadcastProcessFunction
        else:
            parent, ports = tagged(self.left, self.right.stream, self.right.keys, ("left", "right"), where)
            kind = CoProcessFunction
        settings: dict[str, Any] = {"sides": sides, "uid": uid, "order": order, "on_error": on_error}
        return processed(self.left, parent, ports, Process.of(function, kind, where), schema, where, **settings)

    def score(
        self,
        model: str,
        *,
        features: tuple[str, ...],
        prediction: str = "prediction",
        type: type[Any] | str = float,  # noqa: A002 - as of states
        uid: str | None = None,
        on_error: steps.OnError = "stop",
    ) -> Stream[Any]:
        """Every row with the prediction of a fitted model, by the version that is valid at the row's event time.

        Example: ``flights.key_by("origin").connect(models.broadcast()).score("delay", features=("wind", "evening"))``

        Args:
            model: its name; the broadcast stream has versions of it, ``Stream[ModelVersion]``.
            features: columns, those that it was fitted on in their order.
            prediction: name of the new column.
            type: of the prediction: ``float``, or of the labels of a classifier.
            uid: names the state of this step; by default the operator's name.
            on_error: what a feature that is null, NaN or infinite does, or an exception of the model: ``"stop"`` or ``"quarantine"``.

        Shape: the keys, the other columns, the prediction, and ``model_version``; both null before the first version.
        Time: rows and versions are taken in order of event time, each once progress of both inputs has reached it. A version counts from its own
            event time on, inclusive; one that is published later than that counts from the progress at which it landed: a replay and a bounded run
            predict the same. State: the newest version, its bytes included, once per key group: without a key once.

        Raises:
            DefinitionError: DEFINITION-022, 050, 056, 124.
        """
        if not isinstance(self.right, Broadcast):
            fix = "connect(models.broadcast()), where models: Stream[ModelVersion]."
            where = self.left.stream.at_step("score")
            raise DefinitionError(
                where, "a broadcast stream of versions", describe_argument(self.right), fix, code="DEFINITION-124"
            )
        settings: dict[str, Any] = {"uid": uid, "on_error": on_error}
        return score(self.left, self.right.stream, model, features, prediction, type, settings)

    def with_rules(
        self, key: str, *, deleted: str | None = None, prefix: str = "rule_", uid: str | None = None
    ) -> Stream[Any]:
        """Every row once per rule that is valid at its event time, with the rule's columns: the parameters of a pattern, or of a condition.

        Example: ``readings.key_by("machine").connect(rules.broadcast()).with_rules("rule", deleted="NOT active", uid="rules")``, and then
        ``.filter("kind = rule_kind").key_by("machine", "rule").pattern(begin("high").where("value > threshold").times(3).within("1 hour"))``

        Args:
            key: column of the rules by which a rule is one: a later row of the same value replaces it.
            deleted: SQL condition over a rule's row: such a row ends the rule.
            prefix: stands before names of the rules' columns that rows have, too.
            uid: names the state of this step; give one where another stateful step follows.

        Shape: the keys, the other columns, the columns of the rule. A row without a valid rule is dropped.
        Time: rows and rules are taken in order of event time. A rule counts from its own event time on, inclusive; one that lands when progress has
            passed it counts from that progress: a replay applies the same rule to the same row. State: the rules, once per key group.
        Source: Flink, the broadcast state pattern.

        Raises:
            DefinitionError: DEFINITION-022, 024, 050, 124.
        """
        if not isinstance(self.right, Broadcast):
            where = self.left.stream.at_step("with_rules")
            fix = "connect(rules.broadcast())."
            got = describe_argument(self.right)
            raise DefinitionError(where, "a broadcast stream of rules", got, fix, code="DEFINITION-124")
        return with_rules(self.left, self.right.stream, key, deleted, prefix, uid)


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
    """The stream of a process function's step, once settings and contracts are checked."""
    if not isinstance(sides or {}, Mapping) or not all(isinstance(name, str) for name in sides or {}):
        fix = 'sides={"freezing": Alert}, where Alert is a Contract.'
        raise DefinitionError(where, "side outputs by name", repr(sides), fix, code="DEFINITION-051")
    for contract in (schema, *(sides or {}).values()):
        fix = "process(Rises(), schema=Rise), where Rise is a Contract."
        columns_of(contract, where, fix)
    wrong = next(
        (name for name in sides or {} if not name.isidentifier() or name.startswith("_") or name in _OWN), None
    )
    if wrong is not None:
        fix = "Choose another name: letters, digits and underscores; late, current and quarantine are floodmark's."
        raise DefinitionError(where, "names of side outputs", repr(wrong), fix, code="DEFINITION-064")
    if order not in (None, *get_args(steps.Order)) or on_error not in get_args(steps.OnError):
        fix = 'order is "arrival" or "event_time", on_error "stop" or "quarantine".'
        raise unfit_setting(where, f"{order!r}, {on_error!r}", fix)
    outputs = tuple((name, _with_keys(keyed, contract)) for name, contract in (sides or {}).items())
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
            order: ``"arrival"`` processes rows in the order they landed, ``"event_time"`` sorts them by event time. By default arrival
                where it is recorded (one landed log), else sorted: a row then waits until progress reaches its event time.
            on_error: what an exception in a row's callback does: ``"stop"`` ends the run with it, ``"quarantine"`` moves the row to
                ``<operator>__quarantine`` and undoes its changes of state. Exceptions in timers always stop the run.

        Shape: the key's columns, then the contract's others.
        State: the function's declared states; freed when the function clears them, or by time to live.
        Time: a yielded row has the stamps of the row that caused it; one that a timer at t causes has the event time t. Late rows are
            processed too: compare ``ctx.timestamp`` with ``ctx.watermark``. A bounded run of an interval processes all rows and emits those of
            the interval; a function with a timer of processing time runs over all of time only.
        Source: Flink ``KeyedProcessFunction``.

        Raises:
            DefinitionError: DEFINITION-051, 055, 064, 120..123.
        """
        keyed = keyed_stream(self)
        where = self.stream.at_step("process")
        settings: dict[str, Any] = {"sides": sides, "uid": uid, "order": order, "on_error": on_error}
        return processed(
            keyed, self.stream.step, (), Process.of(function, ProcessFunction, where), schema, where, **settings
        )

    def learn(
        self,
        model: object,
        *,
        features: tuple[str, ...],
        target: str | None = None,
        prediction: str = "prediction",
        uid: str | None = None,
        order: steps.Order | None = None,
        on_error: steps.OnError = "stop",
    ) -> Stream[Any]:
        """Every row with the prediction of its key's model, which then learns from the row: an online model, row by row.

        Example: ``flights.key_by("carrier").learn(StandardScaler() | LinearRegression(), features=("distance", "hour"), target="delay")``

        Args:
            model: of river's interface, or a ``ModelState`` with its bound and its migration. Each key begins with a clone of it.
            features: columns that the model is given: numbers, booleans, texts.
            target: column that it learns to predict. A row whose target is null is predicted and not learned from. None for models that learn
                without labels: detectors of anomalies, whose score is the prediction, and clusterings.
            prediction: name of the new column: of the target's type for a classifier, else ``double``, of a clustering ``bigint``.
            uid: names the state of this step; by default the operator's name.
            order: as of ``process``.
            on_error: what a feature that is null, NaN or infinite does, or an exception of the model: ``"stop"`` ends the run, ``"quarantine"``
                moves the row to ``<operator>__quarantine``, and the model learns nothing from it.

        Shape: the keys, the other columns, the prediction, and ``learned``: from how many rows the model had learned before it predicted.
        State: the model and its number of rows per key, for ever. Time: a prediction has the stamps of its row. Rows are in the order of ``process``;
            the model depends on their order, so bounded and unbounded runs give the same predictions and cuts change none.
        Source: river, prequential evaluation.

        Raises:
            DefinitionError: DEFINITION-022, 050, 055, 056, 440..443.
        """
        settings: dict[str, Any] = {"uid": uid, "order": order, "on_error": on_error}
        return learn(keyed_stream(self), model, features, target, prediction, settings)

    def deduplicate(
        self, within: str | timedelta, *, uid: str | None = None, order: steps.Order | None = None
    ) -> Stream[Any]:
        """The rows of each key without duplicates: a row is dropped if an emitted row of its key is at most ``within`` before or after it.

        Args:
            within: event time between a row and its repetition, at most.
            uid: names the state of this step; by default the operator's name.
            order: as of ``process``; decides which row of a key is the first.

        Shape: the keys, then the other columns. State: a mark per emitted row, until progress reaches its event time + ``within``.
        Time: the distance of event times decides, whatever the rows of other keys. A late row is compared with the marks that are left.
        Source: Spark ``dropDuplicatesWithinWatermark``, which compares with progress.

        Raises:
            DefinitionError: DEFINITION-055, not a positive duration.
        """
        where = self.stream.at_step("deduplicate")
        length = span(within, f"{where}, within")
        if length <= 0:
            fix = 'For example key_by("order_id").deduplicate("1 day").'
            raise DefinitionError(where, "a positive duration", repr(within), fix, code="DEFINITION-055")
        schema = self.stream.schema
        value_columns = tuple(c for c in schema.columns if c.name not in self.keys)
        columns = Schema((*(schema[key] for key in self.keys), *value_columns))
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
            deleted: SQL condition over a row, ``"change = 'delete'"``: such a row ends the key's version and begins none.
            track: the columns whose change begins a new version; a change of other columns is written into the valid version. None: all
                columns, also the event time's: drop that one by ``select``, as ``valid_from`` holds the same instant.
            sequence: the column that orders rows of one instant, null first: the row with the greatest value counts (``"_commit_version"`` by
                an alias). It is no column of a version. None, or equal values: the row is chosen by its content, the same in every run.
            uid: names the state of this step; by default the operator's name.

        Shape: the keys, the other columns, ``valid_from``, ``valid_to`` (exclusive; null: still valid). The table ``__current`` has a row per
        key and ``valid_from``; in the output log a version that ends is retracted and written again with its end.
        Time: a version begins at the event time of its row. Rows are processed in order of event time, so each waits until progress reaches
        it; a row older than the key's latest version is late: it is dropped and counted. Of several rows of one instant the last one counts.
        State: the latest version of every key, for ever, also of deleted keys.
        Source: Databricks ``AUTO CDC ... STORED AS SCD TYPE 2``, ``SEQUENCE BY``.

        Raises:
            DefinitionError: DEFINITION-022 a column that is unknown or has no order, 041 an expression, 050 a column ``valid_from`` or ``valid_to`` exists.
        """
        where, stream = self.stream.at_step("scd2"), self.stream
        condition = deleted if deleted is not None else "false"
        check(condition, stream.schema, f"{where}, deleted", boolean=True)
        if sequence is not None and stream.schema.types.get(sequence, "array").startswith(_UNORDERED):
            kind = stream.schema.types.get(sequence)
            fix = stream.schema.nearest(sequence) if kind is None else f"Columns: {stream.schema.describe()}."
            got = repr(sequence) if kind is None else f"{sequence!r}, {kind}"
            expected = "a column of numbers, text or times"
            raise DefinitionError(f"{where}, sequence", expected, got, fix, code="DEFINITION-022")
        version_columns = tuple(c for c in stream.schema.columns if c.name not in {*self.keys, sequence})
        names = tuple(c.name for c in version_columns)
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
        columns = Schema((*(stream.schema[key] for key in self.keys), *version_columns, *bounds))
        parent = steps.Project(stream.step, expressions, marked)
        return self._then(uid, parent, columns, function=Process(function), order="event_time")

    def connect(self, other: KeyedStream | Broadcast) -> Connected:
        """This stream and another as the two inputs of one function. Streams keyed alike share its state per key; every key receives ``rules.broadcast()``.

        Example: ``readings.key_by("sensor").connect(switches.key_by("sensor")).process(Filter(), schema=Reading)``
        """
        if not isinstance(other, (Broadcast, Processes)):
            fix = 'connect(other.key_by("sensor")), or connect(rules.broadcast()).'
            raise DefinitionError(
                self.stream.at_step("connect"),
                "a keyed or a broadcast stream",
                describe_argument(other),
                fix,
                code="DEFINITION-124",
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
        """The stream of a stateful step over these keys; ``uid`` defaults to the operator's name."""
        step = node(parent=parent, uid=uid or self.stream.operator, keys=self.keys, schema=schema, **settings)
        return replace(self.stream, step=step)


def keyed_stream(processes: Any) -> KeyedStream:
    """A ``Processes`` as the ``KeyedStream`` that it is mixed into, for mypy."""
    keyed: KeyedStream = processes
    return keyed


def describe_argument(other: object) -> str:
    """An argument that is no keyed stream, for errors: its columns if it is a stream, else its repr."""
    schema = getattr(other, "schema", None)
    return f"one of {schema.describe()}, without a key" if isinstance(schema, Schema) else repr(other)
