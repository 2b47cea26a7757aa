"""Rollouts in the control store: one row per rollout, whose state changes by compare-and-set."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.exc import IntegrityError

from floodmark.control.state.records import StreamId
from floodmark.control.state.store import Store
from floodmark.control.state.tables import ROLLOUTS
from floodmark.core.errors import LifecycleError, SetupError
from floodmark.lifecycle.guardrails import Guardrail
from floodmark.lifecycle.watch import Memory
from floodmark.spec.assets.rollout import Rollout

State = Literal[
    "waiting", "shadowing", "judging", "awaiting approval", "promoting", "watching", "stopping", "taking back",
    "done", "stopped", "taken back",
]  # fmt: skip
"""State of a rollout: ``waiting`` for its turn, ``shadowing`` for the declared time, ``judging`` until the guardrails hold, ``watching`` after the promotion.
The last three are final."""

Kind = Literal["rollout", "experiment"]

_DECLARED, _GUARDRAILS, _MEMORY = TypeAdapter(Rollout), TypeAdapter(tuple[Guardrail, ...]), TypeAdapter(Memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A transition of a rollout to a state.

    Args:
        state: the new state.
        at: time, s since 1970.
        why: reason in words; ``""`` if the state needs none.
    """

    state: State
    at: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A rollout, or the promotion rule of an experiment.

    Args:
        id: id of the record.
        stream: the stream to be replaced.
        root: folder of the workspace.
        environment: name of the environment whose settings apply.
        kind: ``rollout``, or ``experiment`` for the rule of an experiment that a person starts and ends.
        experiment: name of the experiment with the rule; ``""`` for a rollout, which creates its own (``named``).
        arm: name of the arm to promote.
        package: package with the arm's code.
        version: version of the operator in the package.
        declared: the declaration of the rollout.
        state: current state.
        since: time of the last transition, s since 1970.
        due: time of the next look, s since 1970.
        guardrails: guardrails of the last look that judged.
        judged_at: time of that look, s since 1970.
        held_since: as ``Judgement.held_since``.
        waits: what the rollout waits for, in words.
        approved: who approved, and when; ``""`` without approval.
        aborted: who aborted, and why; ``""`` without abort.
        savepoint: id of the savepoint that undoes the promotion; ``""`` before the promotion.
        steps: transitions, oldest first.
        who: user who started the rollout.
        why: the user's note.
        began_at: start time, s since 1970.
        ended_at: end time, s since 1970; None while the rollout is open.
        reason: why the rollout ended in its final state.
        memory: memory of the watch; None before the watch.
    """

    id: int
    stream: StreamId
    root: str
    environment: str
    kind: Kind
    experiment: str
    arm: str
    package: str
    version: str
    declared: Rollout
    state: State
    since: float
    due: float
    guardrails: tuple[Guardrail, ...]
    judged_at: float | None
    held_since: int | None
    waits: str
    approved: str
    aborted: str
    savepoint: str
    steps: tuple[Step, ...]
    who: str
    why: str
    began_at: float
    ended_at: float | None
    reason: str
    memory: Memory | None = None

    @property
    def operator(self) -> str:
        """Name of the stream's operator."""
        return self.stream.operator

    @property
    def named(self) -> str:
        """Name of the current experiment of the rollout."""
        return self.experiment if self.kind == "experiment" else self.stages[self.stage]

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of a rollout's experiments: one per share of its ramp, then one over all keys."""
        first = f"rollout_{self.id}"
        return (first, *(f"{first}_{n + 2}" for n in range(len(self.declared.ramp))))

    @property
    def stage(self) -> int:
        """Index of the current one in ``stages``."""
        return max(sum(step.state == "waiting" for step in self.steps) - 1, 0)

    @property
    def share(self) -> float:
        """Share of the keys that the arms compute in the current stage, above 0 and at most 1."""
        return (*self.declared.ramp, 1.0)[self.stage]

    @property
    def name(self) -> str:
        """The rollout's name for people."""
        return f"rollout {self.id} of '{self.operator}'"

    def as_json(self) -> dict[str, Any]:
        """The record as JSON for programs."""
        return asdict(self) | {"operator": self.operator, "lake": self.stream.lake, "experiment": self.named}


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollouts of a control store."""

    store: Store

    def begin(self, stream: StreamId, *, declared: Rollout, state: State, **values: Any) -> Record:
        """Insert a rollout that begins now.

        Args:
            stream: the stream to be replaced.
            declared: the declaration of the rollout.
            state: the first state.
            values: the other columns of the row without a default.

        Raises:
            LifecycleError: LIFECYCLE-100, the stream has an open rollout.
        """
        now = time.time()
        row = {
            "operator": stream.operator,
            "lake": stream.lake,
            "open": stream.action,
            "declared": _DECLARED.dump_json(declared).decode(),
            "state": state,
            "since": now,
            "due": now,
            "guardrails": "[]",
            "steps": json.dumps([asdict(Step(state=state, at=now))]),
            "began_at": now,
            **dict.fromkeys(("waits", "approved", "aborted", "savepoint", "reason"), ""),
        }
        try:
            with self.store.transaction() as connection:
                key = connection.execute(ROLLOUTS.insert().values(**(row | values))).inserted_primary_key
        except SetupError as error:
            there = self.open(stream)
            if not isinstance(error.__cause__, IntegrityError) or there is None:
                raise
            fix = f"See how it is: floodmark rollout status {stream.operator}. End it: floodmark rollout abort {stream.operator}"
            got = f"{there.name}, which is {there.state}"
            where = f"rollout of '{stream.operator}'"
            raise LifecycleError(where, "no other one of the operator", got, fix, code="LIFECYCLE-100") from None
        assert key is not None
        return self.find(int(key[0]))

    def find(self, number: int) -> Record:
        """The rollout with an id."""
        (record,) = self._read(ROLLOUTS.select().where(ROLLOUTS.c.id == number))
        return record

    def open(self, stream: StreamId) -> Record | None:
        """The open rollout of a stream; None if there is none."""
        return next(iter(self._read(ROLLOUTS.select().where(ROLLOUTS.c.open == stream.action))), None)

    def of(self, stream: StreamId, limit: int = 20) -> list[Record]:
        """The newest rollouts of a stream, newest first."""
        mine = (ROLLOUTS.c.operator == stream.operator, ROLLOUTS.c.lake == stream.lake)
        return self._read(ROLLOUTS.select().where(*mine).order_by(ROLLOUTS.c.id.desc()).limit(limit))

    def due(self) -> list[tuple[int, str]]:
        """(id, package) of the open rollouts whose next look is due."""
        query = sa.select(ROLLOUTS.c.id, ROLLOUTS.c.package)
        query = query.where(ROLLOUTS.c.open.is_not(None), ROLLOUTS.c.due <= time.time())
        with self.store.transaction() as connection:
            return [(int(row.id), str(row.package)) for row in connection.execute(query)]

    def note(self, record: Record, **values: Any) -> Record:
        """Update columns of a rollout in any state. Returns the new record."""
        with self.store.transaction() as connection:
            connection.execute(ROLLOUTS.update().where(ROLLOUTS.c.id == record.id).values(**_row(values)))
        return self.find(record.id)

    def ask(self, record: Record, states: Iterable[State], **values: Any) -> bool:
        """Record a user's request if the rollout is in one of some states, and make its next look due. Returns True if it was in such a state."""
        mine = (ROLLOUTS.c.id == record.id, ROLLOUTS.c.state.in_(list(states)))
        with self.store.transaction() as connection:
            return bool(connection.execute(ROLLOUTS.update().where(*mine).values(due=time.time(), **values)).rowcount)

    def transition(self, record: Record, state: State, why: str = "", **values: Any) -> Record:
        """Change the state of a rollout unless another process has changed it. Returns the current record.

        Args:
            record: the rollout as last read, with the expected state.
            state: the new state.
            why: reason in words; ``""`` if the state needs none.
            values: further columns to update.
        """
        now = time.time()
        steps = [*(asdict(one) for one in record.steps), asdict(Step(state=state, at=now, why=why))]
        changes = {"state": state, "since": now, "due": now, "waits": "", "steps": json.dumps(steps)} | _row(values)
        mine = (ROLLOUTS.c.id == record.id, ROLLOUTS.c.state == record.state)
        with self.store.transaction() as connection:
            connection.execute(ROLLOUTS.update().where(*mine).values(**changes))
        return self.find(record.id)

    def end(self, record: Record, state: State, reason: str) -> Record:
        """End a rollout with a final state."""
        return self.transition(record, state, reason, reason=reason, ended_at=time.time(), open=None)

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        """Remove rollouts that ended before a time, s since 1970, except the newest of each stream. Returns their number."""
        newest = sa.select(sa.func.max(ROLLOUTS.c.id)).group_by(ROLLOUTS.c.operator, ROLLOUTS.c.lake)
        old = sa.and_(ROLLOUTS.c.ended_at < before, ROLLOUTS.c.id.not_in(newest))
        with self.store.transaction() as connection:
            if dry_run:
                return int(connection.execute(sa.select(sa.func.count()).where(old)).scalar_one())
            return int(connection.execute(ROLLOUTS.delete().where(old)).rowcount)

    def _read(self, query: sa.Select[Any]) -> list[Record]:
        with self.store.transaction() as connection:
            return [_record(dict(row)) for row in connection.execute(query).mappings()]


def _row(values: dict[str, Any]) -> dict[str, Any]:
    """Column values in the store's form: guardrails and memory as JSON."""
    kinds: dict[str, TypeAdapter[Any]] = {"guardrails": _GUARDRAILS, "memory": _MEMORY}
    return {name: kinds[name].dump_json(one).decode() if name in kinds else one for name, one in values.items()}


def _record(row: dict[str, Any]) -> Record:
    row.pop("open")
    stream = StreamId(row.pop("operator"), row.pop("lake"))
    row["declared"] = _DECLARED.validate_json(row["declared"])
    row["guardrails"] = _GUARDRAILS.validate_json(row.pop("gates"))  # name of the column in stores of all versions
    row["memory"] = None if row["memory"] is None else _MEMORY.validate_json(row["memory"])
    row["steps"] = tuple(Step(**one) for one in json.loads(row["steps"]))
    return Record(stream=stream, **row)
