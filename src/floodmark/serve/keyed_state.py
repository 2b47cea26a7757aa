"""State of process functions by key, as of a committed micro-batch or a savepoint: read from files that are written once, while the stream goes on.

The key groups of a state are hashed, so a key is looked for in the bucket of each group that could hold it. A range is in the order of keys: of all keys
the first ones are kept while the state is gone through once, some thousand bytes at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.core.errors import closest
from floodmark.core.time import END, NEVER, describe
from floodmark.engines.embedded.state import segment
from floodmark.engines.embedded.state.batch import file_of
from floodmark.engines.embedded.state.checkpoint import Checkpoint
from floodmark.engines.embedded.state.places import Places
from floodmark.engines.embedded.state.segment import INDEX
from floodmark.engines.embedded.state.store import parted
from floodmark.semantics.encoding.plain import unpack
from floodmark.semantics.kernels.functions.sides import states_of
from floodmark.semantics.state.entries import Entry, KeyGroup
from floodmark.serve.refusals import Missing, Unanswerable
from floodmark.serve.runs import Key
from floodmark.serve.values import KeyColumn, key_columns, plain_key, python_value
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import KeyedProcess
from floodmark.spec.keyed.model import ModelState
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.keyed.state import AggregatingState, State
from floodmark.spec.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Stateful:
    """An operator whose process function keeps state.

    Args:
        operator: the operator.
        step: its step.
        keys: columns of its key.
    """

    operator: Operator
    step: KeyedProcess
    keys: tuple[KeyColumn, ...]

    @property
    def name(self) -> str:
        """Name of the operator."""
        return self.operator.name

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return tuple(key.name for key in self.keys)


def stateful(workspace: Workspace) -> dict[str, Stateful]:
    """Name -> operator whose state can be asked by key."""
    answers = {}
    for operator in workspace.operators:
        step = operator.stateful if len(operator.links) == 1 else None
        if isinstance(step, KeyedProcess) and step.function.function.layout():
            keys = key_columns([step.parent.schema[name] for name in step.keys])
            if keys:
                answers[operator.name] = Stateful(operator=operator, step=step, keys=keys)
    return answers


def named(workspace: Workspace, states: Mapping[str, Stateful], name: str) -> Stateful:
    """The operator of a name whose state can be asked.

    Raises:
        Missing: SERVE-020, there is no such operator.
        Unanswerable: SERVE-021, it has no process function with state by key.
    """
    if name in states:
        return states[name]
    every = [operator.name for operator in workspace.operators]
    fix = f"Operators with such state: {', '.join(states) or 'none'}."
    if name in every:
        expected = "a process function with state by key"
        fix = f"Ask for its results by key. {fix}"
        raise Unanswerable(f"state of '{name}'", expected, "another step", fix, code="SERVE-021")
    raise Missing(
        f"state of '{name}'",
        "an operator of the workspace",
        "none of that name",
        f"{closest(name, every)}{fix}",
        code="SERVE-020",
    )


@dataclass(slots=True)
class _Reader:
    """The state of a key group, which is only read; what an older format is converted to stays in memory."""

    root: str
    places: Places
    group: int
    changed: dict[int, bytes | None] = field(default_factory=dict)
    head: bytes | None = None

    def index(self) -> bytes | None:
        if self.head is not None:
            return self.head
        at = self.places.get((self.group, INDEX))
        return None if at is None else parted(segment.value(self.root, at))[1]

    def put_index(self, index: bytes | None) -> None:
        self.head = index

    def expect(self, numbers: Sequence[int]) -> None:
        """Nothing: a value is read when it is asked for."""

    def get(self, number: int) -> bytes:
        value = self.changed.get(number)
        if value is None:
            at = self.places.get((self.group, number))
            assert at is not None
            value = segment.value(self.root, at)
        return value

    def put(self, number: int, chunk: bytes) -> None:
        self.changed[number] = chunk

    def remove(self, number: int) -> None:
        self.changed[number] = None


@dataclass(slots=True, weakref_slot=True)
class CommittedState:
    """The state of an operator at one micro-batch.

    Args:
        of: the operator.
        root: folder on this machine with the files of the state.
        batch: the micro-batch.
        version: version of the operator that has written it.
        committed_at: when, ms UTC.
        origin: folder or URI of the checkpoint that the files are of.
        savepoint: whose state it is; empty for the stream's own.
        failure: why no newer copy of it could be made, if the last try failed.
    """

    of: Stateful
    root: str
    batch: int
    version: str
    committed_at: int
    origin: str
    savepoint: str = ""
    failure: str = field(init=False, default="")
    watermark: int = field(init=False, default=NEVER)
    _places: Places = field(init=False, default_factory=Places)
    _groups: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Read the places of all values.

        Raises:
            FileNotFoundError: the stream has replaced a file meanwhile.
        """
        recorded = Checkpoint(self.root).batch(self.batch)
        if recorded is None:
            raise FileNotFoundError(f"{self.root}/{file_of(self.batch)}")
        for file in (*recorded.segments, file_of(self.batch)):
            self._places.take(segment.read(self.root, file))
        self.watermark = recorded.progress
        self._groups = sorted({group for group, number in self._places if number == INDEX})

    @property
    def asked(self) -> str:
        """What is asked: the state of the operator."""
        return f"state of {self.of.name}"

    def get(self, key: Key) -> dict[str, Any] | None:
        """The state of a key; None if it has none."""
        try:
            values = tuple(python_value(column, value) for column, value in zip(self.of.keys, key, strict=True))
        except OverflowError:  # a time that no process function has had
            return None
        for entries in self._opened():
            entry = entries.get(values)
            if entry is not None:
                return self._row(self._whole(entry, entries), entries.extra.get("layouts", []))
        return None

    def page(self, lower: Key, upper: Key, limit: int) -> tuple[list[dict[str, Any]], Key | None]:
        """The first keys with lower <= key < upper in their order, with their state, and the key behind them; None for none."""
        first = heapq.nsmallest(limit + 1, self._between(lower, upper), key=lambda row: row[0])
        following = first[limit][0] if len(first) > limit else None
        return [row for _, row in first[:limit]], following

    def _between(self, lower: Key, upper: Key) -> Iterator[tuple[Key, dict[str, Any]]]:
        for entries in self._opened():
            layouts = entries.extra.get("layouts", [])
            for bucket in entries.contents():
                for event, tick, data in bucket.values():
                    key, value = unpack(data)
                    if len(key) > len(self.of.keys):  # a part of the rows of a key
                        continue
                    asked = plain_key(key)
                    if lower <= asked < upper:
                        yield asked, self._row(self._whole(Entry(key, value, event, tick), entries), layouts)

    def _opened(self) -> Iterator[KeyGroup]:
        return (KeyGroup.open(_Reader(self.root, self._places, group)) for group in self._groups)

    def _whole(self, entry: Entry, entries: KeyGroup) -> Entry:
        """The entry of a key with what lies in entries of their own."""
        if not isinstance(self.of.step.function.function, RegularJoin):
            return entry
        layout, stamp, _, timers, latest = entry.value
        return replace(entry, value=(layout, stamp, states_of(entry, entries), timers, latest))

    def _row(self, entry: Entry, layouts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        number, _, states, timers, latest = entry.value
        layout = layouts[number]
        declared = self.of.step.function.function.states()
        values = {}
        for name, form in layout.items():
            if form.get("state") != "broadcast":
                raw = states.get(name)
                values[name] = None if raw is None else _value(raw, form, declared.get(name), self.watermark)
        return {
            **dict(zip(self.of.key_names, entry.key, strict=True)),
            "state": values,
            "timers": {name: [describe(time) for time in times] for name, times in timers.items()},
            "latest": describe(latest),
        }

    def as_json(self, now: int) -> dict[str, Any]:
        """The moment of the state, as answers tell it."""
        return {
            "operator": self.of.name,
            "batch": self.batch,
            "committed_at": describe(self.committed_at),
            "watermark": describe(self.watermark),
            "watermark_ms": self.watermark if NEVER < self.watermark <= END else None,
            "version": self.version,
            "savepoint": self.savepoint or None,
            "age_seconds": round(max(0, now - self.committed_at) / 1000, 3),
            "failure": self.failure or None,
        }


def _value(raw: Any, form: Mapping[str, Any], declared: State | None, watermark: int) -> Any:
    """A stored value as its callbacks see it at the watermark: what has expired is left out."""
    is_same = declared is not None and declared.canonical() == form
    if declared is not None and is_same:
        raw = declared.live(raw, watermark)
    timed = form.get("ttl") is not None

    def bare(item: Any) -> Any:
        return item[1] if timed else item

    if raw is None:
        return None
    if form["state"] == "list":
        return [bare(item) for item in raw]
    if form["state"] == "map":
        return [[key, bare(item)] for key, item in raw.items()]
    value = bare(raw)
    if isinstance(declared, ModelState):
        return declared.readable(value) if is_same else {"model": form["type"], "bytes": len(value)}
    return declared.aggregate.result(value) if is_same and isinstance(declared, AggregatingState) else value
