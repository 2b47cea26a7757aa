"""Operators: a decorated pure function from streams to streams, frozen into a graph."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import FunctionType
from typing import Any, Literal, overload

from floodmark.core.code import Followed, count_as_own
from floodmark.core.errors import DefinitionError, closest, shown
from floodmark.core.fingerprint import canonical, digest, hex_of, marked
from floodmark.spec.expressions import expression, implicit_casts
from floodmark.spec.graph import stages, steps
from floodmark.spec.graph.checked import check_depth, check_stages
from floodmark.spec.graph.stream import Body, Outputs, Stream
from floodmark.spec.keyed.matching import TemporalJoinOfChanges
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.patterns.recognised import RowMatching
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.contract import schema as contract_schema
from floodmark.spec.rows.criteria import unexpected
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.rows.lookup import Lookup, LookupTable
from floodmark.spec.rows.source import Source, check_name
from floodmark.spec.values.purity import impurities
from floodmark.spec.values.schema import QUARANTINE, Schema
from floodmark.spec.windowing.partitions import Partitions
from floodmark.spec.windowing.windows import Global, global_per


@dataclass(frozen=True, slots=True)
class Audit:
    """What an output has to pass before its readers read a row of it.

    Args:
        checks: names of its strict expectations.
        partitions: how it is divided into what is judged.
    """

    checks: tuple[str, ...]
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class OutputRef:
    """One output of an operator, to bind another operator's input to: ``hourly_departures["late"]``."""

    operator: Operator
    name: str


Side = Literal["late", "quarantine", "side"]

Isolation = Literal["read_committed", "read_uncommitted"]
"""Visibility of a table of last values: committed micro-batches only, or also values of a micro-batch before its commit, which a crash may replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A named result: one Delta table.

    Args:
        name: within the operator; ``""`` for a single output.
        table: its name in the lake.
        schema: columns without stamps.
        revisable: may hold retractions (refires), and so has a ``current`` table.
        side: kind of a side output: late rows, quarantined rows and panes, or rows that a process function sends there. None for a result.
        keys: columns that identify a result, for ``current``.
        multiset: without keys, so that ``current`` holds each row as often as it counts.
        partitions: how the table is divided; None for not at all.
    """

    name: str
    table: str
    schema: Schema
    revisable: bool
    side: Side | None = None
    keys: tuple[str, ...] = ()
    multiset: bool = False
    partitions: Partitions | None = None

    @property
    def current(self) -> Output | None:
        """The table of the last value per key, or of the rows that are not retracted, for people and BI; None if rows are never revised, or nothing says which row a retraction takes back."""
        if not self.revisable or not (self.keys or self.multiset):
            return None
        return replace(self, table=f"{self.table}__current", revisable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A named input: the table it reads and what its rows are.

    Args:
        name: the parameter's.
        table: source or output table it reads.
        schema: columns without stamps.
        upstream: the output it is bound to; None for a source.
        revisable: rows may be retracted.
        landed: the event time of its rows, and so of retractions, is that of their landing.
    """

    name: str
    table: str
    schema: Schema
    upstream: OutputRef | None = None
    revisable: bool = False
    landed: bool = False

    @property
    def inner(self) -> bool:
        """Whether its rows are those of another link of the same operator."""
        return self.upstream is not None and self.upstream.operator.whole is not None


@dataclass(frozen=True, eq=False)
class Operator:
    """A pure function from streams to streams: name, inputs, outputs and the graph of steps between them.

    Two operators are equal when their names and canonical forms are.
    """

    name: str
    inputs: tuple[Input, ...]
    results: tuple[tuple[str, steps.Step], ...]
    description: str = ""
    location: str = field(default="", compare=False)
    revision: int = 0
    """Incremented by hand for a change outside the operator's code; part of the version from 1 on."""
    partitions: Partitions | None = field(default=None, compare=False)
    """How its tables are divided. Affects the layout of tables alone, so it is not fingerprinted."""
    isolation: Isolation = field(default="read_committed", compare=False)
    """Isolation level of its ``current`` tables. Affects visibility alone, so it is not fingerprinted."""
    body: Body | None = field(default=None, compare=False, repr=False)
    """The function that was decorated; None for a graph that was built without one."""
    watched: Mapping[str, tuple[Expectation, ...]] = field(default_factory=dict, compare=False)
    """Output name -> expectations with ``on_fail="stop"`` or ``"warn"``. Affect no row, so they are not fingerprinted."""
    key_groups: int | None = field(default=None, compare=False)
    """Number of key groups that the operator declares; None for that of its stream, and for a new stream ``steps.KEY_GROUPS``."""
    audits: Mapping[str, Audit] = field(default_factory=dict, compare=False)
    """Input table -> what its rows have to pass before they are read. Decides when rows are read alone, so it is not fingerprinted."""
    declared: Operator | None = field(default=None, compare=False)
    """The operator as it was before ``expecting`` added steps: what other operators are bound to. None if it has no such steps."""
    whole: Operator | None = field(default=None, compare=False, repr=False)
    """The operator of which this one is a link; None for an operator of an author's."""

    @cached_property
    def stages(self) -> tuple[steps.Stateful, ...]:
        """The stateful steps, each behind those whose rows it reads."""
        return stages.stages_of(result for _, result in self.results)

    @property
    def stateful(self) -> steps.Stateful | None:
        """The last stage; None for an operator without state."""
        return self.stages[-1] if self.stages else None

    @cached_property
    def links(self) -> tuple[Operator, ...]:
        """The operators of at most one stage each that compute this one, one after the other; itself alone if it has no more stages.

        A link reads inputs of the operator, and the results of links before it as inputs bound to them.
        """
        by_stage: dict[steps.Stateful, Operator] = {}
        for stage in self.stages[:-1]:
            by_stage[stage] = self._link(((stages.name_of(stage), stage),), by_stage)
        last = self.stages[-1:]
        if all(set(stages.nearest(result)) == set(last) for _, result in self.results):
            return (*by_stage.values(), self._link(self.results, by_stage)) if by_stage else (self,)
        if not last:
            return (self,)
        by_stage[last[0]] = self._link(((stages.name_of(last[0]), last[0]),), by_stage)
        return (*by_stage.values(), self._link(self.results, by_stage))

    def _link(self, results: tuple[tuple[str, steps.Step], ...], before: Mapping[steps.Stateful, Operator]) -> Operator:
        """The link of some results, which reads the results of the links before it."""
        reads = {stage: steps.Read(stages.name_of(stage), stage.schema) for stage in before}
        cut = tuple((name, stages.apart(result, reads)) for name, result in results)
        names = {step.input for _, result in cut for step in steps.walk(result) if isinstance(step, steps.Read)}
        handed = [
            Input(
                name=stages.name_of(stage),
                table=link.outputs[0].table,
                schema=stage.schema,
                upstream=OutputRef(link, link.outputs[0].name),
                revisable=link.outputs[0].revisable,
            )
            for stage, link in before.items()
        ]
        inputs = tuple(one for one in (*self.inputs, *handed) if one.name in names)
        watched = {name: some for name, some in self.watched.items() if name in dict(results)}
        return Operator(
            self.name,
            inputs,
            cut,
            location=self.location,
            revision=self.revision,
            watched=watched,
            key_groups=self.key_groups,
            whole=self,
        )

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """Every table the operator writes: its results, then their late rows, then its quarantine."""
        walked = [step for _, result in self.results for step in steps.walk(result)]
        incoming = any(map(self.may_take_back, walked))
        written, output = [], partial(Output, partitions=self.partitions)
        for name, result in self.results:
            table = f"{self.name}__{name}" if name else self.name
            known = steps.key_of(result) if self.stages else ()
            key = tuple(n for n in result.schema.names if n in known)
            revisable = any(map(self.may_take_back, stages.nearest(result))) if self.stages else incoming
            written.append(
                output(
                    name=name,
                    table=table,
                    schema=result.schema,
                    revisable=revisable,
                    keys=key,
                    multiset=steps.is_multiset(result),
                )
            )
        sides: list[tuple[Side, str, Schema, bool]] = [
            ("late", "late", step.parent.schema, any(map(self.may_take_back, stages.nearest(step.parent))))
            for step in self.stages
            if step.late == "side_output"
        ]
        sides += [("side", name, schema, False) for step in self.stages for name, schema in step.sides]
        if any(map(steps.quarantines, walked)):
            sides.append(("quarantine", "quarantine", QUARANTINE, False))
        for side, name, schema, revisable in sides:
            table = f"{self.name}__{name}"
            written.append(output(name=name, table=table, schema=schema, revisable=revisable, side=side))
        return tuple(written)

    def may_take_back(self, step: steps.Step) -> bool:
        """Whether rows of an input or of a stage may be taken back."""
        if isinstance(step, steps.Read):
            return next(one.revisable for one in self.inputs if one.name == step.input)
        if not isinstance(step, steps.STATEFUL):
            return False
        return step.revises or (step.revises_with_input and any(map(self.may_take_back, stages.nearest(step.parent))))

    def __getitem__(self, name: str) -> OutputRef:
        self.output(name)
        return OutputRef(self, name)

    def output(self, name: str) -> Output:
        """The output of that name.

        Raises:
            DefinitionError: DEFINITION-063, no output has the name.
        """
        for output in self.outputs:
            if output.name == name:
                return output
        names = [o.name or "(the result)" for o in self.outputs]
        fix = closest(name, names) + f"Outputs: {', '.join(names)}."
        raise DefinitionError(f"operator '{self.name}'", "one of its outputs", repr(name), fix, code="DEFINITION-063")

    def sampled(self, groups: Iterable[int]) -> Operator:
        """(numbers of key groups) -> the same operator with the same version, computing those groups only."""
        some = tuple(groups)
        return replace(self, results=tuple((name, steps.sampled(result, some)) for name, result in self.results))

    def grouped(self, groups: int, key_groups: int | None = None) -> Operator:
        """(number of key groups) -> the same operator with the same version, its keys divided among that many key groups.

        Args:
            groups: number of key groups, or of bundles of them.
            key_groups: number of key groups, if they lie in bundles.
        """
        divided = ((name, steps.divided(result, groups, key_groups)) for name, result in self.results)
        return replace(self, results=tuple(divided))

    @cached_property
    def calls(self) -> tuple[steps.Call, ...]:
        """The steps that ask other systems."""
        walked = (step for _, result in self.results for step in steps.walk(result))
        return tuple(dict.fromkeys(step for step in walked if isinstance(step, steps.Call)))

    @property
    def lookups(self) -> tuple[LookupTable, ...]:
        """The lookup tables that its steps ask."""
        functions = (call.function for call in self.calls)
        return tuple(dict.fromkeys(function.table for function in functions if isinstance(function, Lookup)))

    def recording(self, folders: tuple[str, ...]) -> Operator:
        """The same operator with the same version, whose calls record their answers below the first folder and read those of all."""
        return replace(self, results=tuple((name, steps.recording(result, folders)) for name, result in self.results))

    def divided(self, partitions: Partitions) -> Operator:
        """The same operator with output tables divided by asset partition, and each ``Global()`` as one window per partition.

        Raises:
            DefinitionError: the function's own, where it cannot have windows with an end: DEFINITION-034, a trigger that never fires.
        """
        graph = self.results
        if self.body is not None and any(isinstance(getattr(step, "window", None), Global) for step in self.stages):
            with global_per(partitions):
                graph = _graph(self.body, self.name, self.inputs, self.key_groups)
        return replace(self, results=graph, partitions=partitions)

    def expecting(self, expectations: Mapping[str, Iterable[Expectation]]) -> Operator:
        """The operator whose runs judge rows before they commit.

        ``on_fail="quarantine"`` becomes a step behind the result, and so part of the version; the others are ``watched``.

        Args:
            expectations: output name -> expectations, with and without ``on_fail``.
        """
        results = []
        for name, result in self.results:
            aside = [one for one in expectations.get(name, ()) if one.on_fail == "quarantine"]
            unmet = tuple((one.name, one.describe(), unexpected(one, result.schema)) for one in aside)
            results.append((name, steps.Expect(result, unmet) if unmet else result))
        watched = {
            name: watched_ones
            for name, some in expectations.items()
            if (watched_ones := tuple(one for one in some if one.on_fail in {"stop", "warn"}))
        }
        changed = tuple(results) != self.results
        return replace(
            self,
            results=tuple(results),
            watched=watched,
            declared=(self.declared or self) if changed else self.declared,
        )

    @property
    def order(self) -> steps.Order:
        """The order in which its stateful step processes rows: arrival if that order is recorded, else event time. Of several: arrival if one does."""
        if len(self.links) > 1:
            return "arrival" if any(link.order == "arrival" for link in self.links if link.stages) else "event_time"
        if self.stateful and self.stateful.order:
            return self.stateful.order
        recorded = len(self.inputs) == 1 and self.inputs[0].upstream is None
        clocked = self.stateful is not None and self.stateful.time == "processing"
        if self.stateful and self.stateful.broadcast is not None:
            return "event_time"
        return "arrival" if recorded or clocked or self._sums_changes else "event_time"

    @property
    def _sums_changes(self) -> bool:
        """Whether its step adds up rows that are retracted, so that results are the same in any order of them."""
        step, revised = self.stateful, any(read.revisable for read in self.inputs)
        return revised and isinstance(step, steps.WindowAggregate) and step.rolling and not step.in_order

    @property
    def reads_history(self) -> bool:
        """Whether a result may depend on every earlier row of its key, so that an interval is computed from the first row on."""
        return any(step.reads_history for step in self.stages)

    @property
    def spans_interval(self) -> bool:
        """Whether a bounded run over an interval computes one window: the rows of the interval."""
        return len(self.stages) == 1 and self.stages[0].spans_interval

    def canonical(self) -> dict[str, Any]:
        """Everything that decides the operator's results, as JSON values."""
        return dict(json.loads(self._canonical))

    @cached_property
    def _canonical(self) -> str:
        """The canonical form as JSON text, computed once, as following the user's code is slow."""
        return canonical(
            {
                "operator": self.name,
                "inputs": [[i.name, i.table, i.schema.canonical(), i.revisable] for i in self.inputs],
                "outputs": [[name, step.canonical()] for name, step in self.results],
                **({"revision": self.revision} if self.revision else {}),
            }
        )

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the canonical form, with the method that made it; comments, formatting and descriptions do not count."""
        return marked(digest(self.canonical()))

    @property
    def version(self) -> str:
        """``name@3f9a2c1b``."""
        return f"{self.name}@{hex_of((self.whole or self).fingerprint)[:8]}"

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of ``validate``: code that depends on a clock or on chance, text cast to numbers, state that grows for ever."""
        walked = [step for _, result in self.results for step in steps.walk(result)]
        texts = [(text, step.parents[0].schema) for step in walked for text in steps.expressions(step)]
        impure = dict.fromkeys(text for text, schema in texts if not expression(text, schema, self.name).pure)
        warnings = [
            f"operator '{self.name}': '{text}' reads a clock or a random number; a replay will differ"
            for text in impure
        ]
        warnings += [
            f"operator '{self.name}': '{text}' reads the text {read} as {target}; a row whose text is no {target} stops the run. "
            f"To compare text with text, quote the other side; else write try_cast({read} AS {target}), NULL for such a row."
            for text, schema in dict.fromkeys(texts)
            for read, target in implicit_casts(expression(text, schema, self.name).tree)
        ]
        warnings += [
            f"operator '{self.name}': {what} uses {', '.join(used)}; a replay will differ. Take it from the row, or from an input of its own."
            for what, function in self._functions(calls=False)
            if (used := impurities(function))
        ]
        warnings += [
            f"operator '{self.name}': {type(step.window).__name__}() keeps every row of every key for ever. "
            'Give it an evictor (KeepLast, KeepWithin), a Purging trigger or accumulation="discarding"; or use aggregates, which keep one value.'
            for step in self.stages
            if isinstance(step, steps.WindowAggregate) and step.keeps_for_ever
        ]
        warnings += [
            f"operator '{self.name}': rows of '{output.table}' replace earlier ones, and it lacks what identifies them: {lost}. "
            "No table of last values is kept of it, and nothing can be delivered by key. Select these columns unchanged."
            for output in self.outputs
            if (lost := self._lost(output))
        ]
        for link in self.links:
            warnings += link._stage_warnings()  # noqa: SLF001 - of its own class
        return tuple(warnings)

    def _stage_warnings(self) -> Iterator[str]:
        """Warnings about the stage of a link."""
        for step in self.stages:
            if step.time == "processing":
                yield f"operator '{self.name}': its windows are of processing time; only recorded ticks repeat its answer"
            function = step.function.function if isinstance(step, steps.KeyedProcess) else None
            if isinstance(function, RowMatching) and function.within is None:
                yield (
                    f"operator '{self.name}': match_recognize without within: rows wait until the end of a match is certain, at most {function.most:,} of a key. "
                    'Write within="10 minutes" where a match has a greatest length.'
                )
            if isinstance(function, RegularJoin) and function.ttl is None:
                yield (
                    f"operator '{self.name}': a regular join without ttl: every row of both sides stays in the state for ever. "
                    'Write ttl="30 days" where rows of a pair are never further apart.'
                )
            if isinstance(function, TemporalJoinOfChanges):
                yield (
                    f"operator '{self.name}': a temporal join of rows that may be taken back: each of them stays in the state for ever, with the version that it was joined with. "
                    "Join the rows before the step whose results change; or leave out changes=True where none is taken back."
                )
            recorded = len(self.inputs) == 1 and self.inputs[0].upstream is None
            ordered = function is None or not function.unordered
            if step.order == "arrival" and ordered and not step.columnar and not recorded:
                yield f"operator '{self.name}': order=\"arrival\" over an input whose order is not recorded; a replay may differ"

    def _lost(self, output: Output) -> str:
        """The columns that would identify the rows of a result, and are not in it as the stateful step made them; empty if there is nothing to identify."""
        if output.side is not None or not output.revisable or output.keys:
            return ""
        step, handed = steps.handed_on(dict(self.results)[output.name])
        return "" if step is None else ", ".join(step.lacking(handed))

    @cached_property
    def followed(self) -> Followed:
        """The code that the operator's functions reach, and the parts that could not be followed."""
        return Followed.of(function for _, function in self._functions())

    def _functions(self, *, calls: bool = True) -> Iterator[tuple[str, Any]]:
        """(description, code of the user) for all steps; without ``calls``, for those whose answers are not recorded."""
        for step in (s for _, r in self.results for s in steps.walk(r)):
            if isinstance(step, steps.Call) and not calls:
                continue
            if isinstance(step, steps.Call) and isinstance(step.function, Lookup):
                continue
            if isinstance(step, steps.FlatMap):
                yield step.name, getattr(step.function, "called", step.function)
            elif isinstance(step, steps.STATEFUL):
                yield from step.functions()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operator) and self._canonical == other._canonical

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Operator({self.version})"


Binding = Operator | OutputRef | Source | str


@overload
def operator(body: Body, /) -> Operator: ...
@overload
def operator(
    *, inputs: Mapping[str, Binding] = ..., name: str | None = None, revision: int = 0, key_groups: int | None = None
) -> Callable[[Body], Operator]: ...


def operator(
    body: Body | None = None,
    /,
    *,
    inputs: Mapping[str, Binding] | None = None,
    name: str | None = None,
    revision: int = 0,
    key_groups: int | None = None,
) -> Operator | Callable[[Body], Operator]:
    """Decorate a function from streams to streams: it becomes an operator.

    The function runs once, here, to build the graph; it touches no engine, disk, clock or environment.

    Args:
        inputs: parameter -> what it reads: another operator, one of its outputs, a source, or a table's name. A parameter
            typed ``Stream[SomeContract]`` and not named here reads the source of its own name.
        name: by default the function's.
        revision: another number makes another version. Increment it for a change outside the operator's code: a new release of a package
            with other answers, a file that is read at run time.
        key_groups: number of parts, 1 to 32,768, into which the keys of its stateful step are divided. A key group is the unit in which
            state moves, so no more cores than that many work on the step. By default a stream keeps the number that it began with, and a new
            stream begins with 128. No result depends on it, and another number makes no other version.

    Raises:
        DefinitionError: DEFINITION-057 no function, DEFINITION-060..062, DEFINITION-152 no such revision, DEFINITION-310 no such
            number of key groups, DEFINITION-311 key groups without a stateful step, and those of the steps.
        CapabilityError: CAPABILITY-001, stateful and stateless results mixed; CAPABILITY-095, several stateful steps that cannot follow each other.
    """

    def define(function: Body) -> Operator:
        return _define(function, name or function.__name__, dict(inputs or {}), revision, key_groups)

    if body is not None and not isinstance(body, FunctionType):
        fix = (
            f'Give a name by keyword: @operator(name="{body}").'
            if isinstance(body, str)
            else "Put @operator above a def."
        )
        raise DefinitionError("@operator", "a function", shown(body), fix, code="DEFINITION-057")
    return define if body is None else define(body)


def _define(function: Body, name: str, bindings: dict[str, Binding], revision: int, key_groups: int | None) -> Operator:
    where = f"operator '{name}'"
    check_name(name, where)
    count_as_own(function.__module__)
    parameters = tuple(inspect.signature(function).parameters)
    for unknown in bindings.keys() - set(parameters):
        fix = closest(unknown, parameters) + f"Parameters: {', '.join(parameters)}."
        raise DefinitionError(where, "inputs named like its parameters", repr(unknown), fix, code="DEFINITION-060")
    hints = _hints(function)
    contracts = {p: next(iter(typing.get_args(hints.get(p))), None) for p in parameters}
    bound = tuple(bound_input(p, contracts[p], bindings.get(p), where) for p in parameters)
    code = function.__code__
    return built(
        function,
        name,
        bound,
        description=inspect.cleandoc(function.__doc__ or ""),
        location=f"{code.co_filename}:{code.co_firstlineno}",
        revision=revision,
        key_groups=key_groups,
    )


def built(
    body: Body,
    name: str,
    inputs: tuple[Input, ...],
    *,
    description: str = "",
    location: str = "",
    revision: int = 0,
    key_groups: int | None = None,
) -> Operator:
    """The operator of a function from streams, one per input, to streams.

    Args:
        body: called once, here, and again if ``Global()`` becomes one window per asset partition.
        name: of the operator.
        inputs: in the order of the function's parameters.
        description: for people.
        location: where the operator is defined, for messages.
        revision: as of ``operator``.
        key_groups: as of ``operator``.

    Raises:
        DefinitionError, CapabilityError: as ``operator``.
    """
    where = f"operator '{name}'"
    check_name(name, where)
    if not isinstance(revision, int) or isinstance(revision, bool) or revision < 0:
        fix = "Count up by one when its answers change for a reason that is not in its code: revision=1."
        raise DefinitionError(where, "a revision, 0 or more", repr(revision), fix, code="DEFINITION-152")
    _check_key_groups(key_groups, where)
    graph = _graph(body, name, inputs, key_groups)
    return Operator(name, inputs, graph, description, location, revision, body=body, key_groups=key_groups)


def _check_key_groups(key_groups: int | None, where: str) -> None:
    if key_groups is None:
        return
    number = isinstance(key_groups, int) and not isinstance(key_groups, bool)
    if not number or not 1 <= key_groups <= steps.MOST_KEY_GROUPS:
        fix = "Some ten times the cores that a run has at most are plenty; leave it out for 128."
        expected = f"1 to {steps.MOST_KEY_GROUPS:,} key groups"
        raise DefinitionError(where, expected, shown(key_groups), fix, code="DEFINITION-310")


def _graph(
    function: Body, name: str, inputs: tuple[Input, ...], key_groups: int | None
) -> tuple[tuple[str, steps.Step], ...]:
    """The steps between an operator's inputs and its results, from one call of its function."""
    where = f"operator '{name}'"
    result = function(*(Stream(steps.Read(i.name, i.schema), name) for i in inputs))
    results: tuple[tuple[str, object], ...] = result.streams if isinstance(result, Outputs) else (("", result),)
    streams: dict[str, Stream[Any]] = {}
    for label, stream in results:
        if not isinstance(stream, Stream):
            fix = "Return a stream, or Outputs(severe=..., normal=...); a window needs .aggregate(...) to become one."
            got = f"{type(stream).__name__}" + (f" for '{label}'" if label else "")
            raise DefinitionError(where, "a Stream or Outputs", got, fix, code="DEFINITION-061")
        if label:
            check_name(label, f"{where}, output '{label}'")
        if label in {"late", "current", "quarantine"}:
            fix = "Choose another name; floodmark writes tables of that name itself."
            raise DefinitionError(where, "names of its own", repr(label), fix, code="DEFINITION-064")
        streams[label] = stream
    graph = tuple((label, stream.step) for label, stream in streams.items())
    check_depth((step for _, step in graph), where)
    if len(stages.stages_of(result for _, result in graph)) > 1:
        graph = stages.with_names(graph, where, name)
    check_stages(Operator(name, inputs, graph), where)
    if key_groups is None:
        return graph
    if not any(isinstance(step, steps.STATEFUL) for _, result in graph for step in steps.walk(result)):
        fix = "Leave key_groups out: without state no rows are divided by key."
        raise DefinitionError(
            where, "a stateful step", f"none, and key_groups={key_groups}", fix, code="DEFINITION-311"
        )
    return tuple((label, steps.divided(result, key_groups)) for label, result in graph)


def _hints(function: Body) -> dict[str, Any]:
    closure = inspect.getclosurevars(function).nonlocals
    try:
        return typing.get_type_hints(function, localns=dict(closure))
    except NameError:  # a contract defined inside a function's body: its name is in a frame that called the decorator
        frame, names = inspect.currentframe(), dict(closure)
        while frame is not None:
            names = dict(frame.f_locals) | names
            frame = frame.f_back
        return typing.get_type_hints(function, localns=names)


def bound_input(parameter: str, contract: object, binding: Binding | None, where: str) -> Input:
    """(name of an input, contract of its rows or None, what it reads) -> the input.

    Raises:
        DefinitionError: DEFINITION-062 neither a contract nor a binding, DEFINITION-065 an output without the contract's columns.
    """
    typed = contract if isinstance(contract, type) and issubclass(contract, Contract) else None
    if isinstance(binding, Operator):
        binding = OutputRef(binding, binding.outputs[0].name)
    if isinstance(binding, OutputRef):
        out = binding.operator.output(binding.name)
        upstream = Input(name=parameter, table=out.table, schema=out.schema, upstream=binding, revisable=out.revisable)
        if typed:
            _compatible(contract_schema(typed), out.schema, f"{where}, input '{parameter}'")
        return upstream
    if isinstance(binding, Source):
        landed = binding.contract.floodmark_ingestion_time
        return Input(
            name=parameter, table=binding.name, schema=binding.schema, revisable=binding.revisable, landed=landed
        )
    if not typed:
        fix = f'Annotate it: {parameter}: Stream[YourContract], or bind it: @operator(inputs={{"{parameter}": other_operator}}).'
        raise DefinitionError(
            where, "typed or bound inputs", f"'{parameter}' without either", fix, code="DEFINITION-062"
        )
    return Input(name=parameter, table=binding or parameter, schema=contract_schema(typed))


def _compatible(expected: Schema, actual: Schema, where: str) -> None:
    wrong = [c for c in expected.columns if c.name not in actual or actual[c.name].type != c.type]
    if wrong:
        fix = f"The bound output has: {actual.describe()}."
        got = ", ".join(f"no {c.name} {c.type}" for c in wrong)
        raise DefinitionError(where, "an output with the columns of its contract", got, fix, code="DEFINITION-065")
