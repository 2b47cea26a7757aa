"""Rollouts as the control store keeps them: one row each, whose state changes only from what it was thought to be."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.exc import IntegrityError

from floodmark.control.records import StreamId
from floodmark.control.store import ROLLOUTS, Store
from floodmark.core.errors import LifecycleError, SetupError
from floodmark.lifecycle.gates import Gate
from floodmark.lifecycle.watch import Memory
from floodmark.spec.rollout import Rollout

State = Literal[
    "waiting", "shadowing", "judging", "awaiting approval", "promoting", "watching", "stopping", "taking back",
    "done", "stopped", "taken back",
]  # fmt: skip
"""``waiting`` for its turn, ``shadowing`` until the declared time is over, ``judging`` until the gates hold, ``watching`` after its promotion. The last
three are ends."""

Kind = Literal["rollout", "experiment"]

_DECLARED, _GATES, _MEMORY = TypeAdapter(Rollout), TypeAdapter(tuple[Gate, ...]), TypeAdapter(Memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A state a rollout came to.

    Args:
        state: which.
        at: s since 1970.
        why: in words; ``""`` where the state says all.
    """

    state: State
    at: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A rollout, or the rule of an experiment.

    Args:
        id: of the record.
        stream: it is about.
        root: folder of the workspace.
        environment: settings.
        kind: ``experiment`` where a person began the experiment, and ends it.
        experiment: whose rule it is; ``""`` of a rollout, which makes its own: ``named``.
        arm: that is to become the stream.
        package: code of the arm.
        version: of the operator in it.
        declared: how.
        state: it is in.
        since: when it came to that state, s since 1970.
        due: time of the next look, s since 1970.
        gates: at the last look that judged.
        judged_at: time of that look, s since 1970.
        held_since: as ``Judgement.held_since``.
        waits: what it waits for, in words.
        approved: who approved, and when; ``""`` for nobody.
        aborted: who aborted, and why; likewise.
        savepoint: that a promotion is taken back to; ``""`` before it.
        steps: states it has been in, the first one first.
        who: started it.
        why: in their words.
        began_at: s since 1970.
        ended_at: likewise; None while it goes on.
        reason: why it ended so.
        memory: of the watch; None before it.
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
    gates: tuple[Gate, ...]
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
        """Whose stream it is about."""
        return self.stream.operator

    @property
    def named(self) -> str:
        """Its experiment."""
        return self.experiment if self.kind == "experiment" else self.stages[self.stage]

    @property
    def stages(self) -> tuple[str, ...]:
        """The experiments of a rollout: one for each share of its ramp, and the last one, which is over all keys."""
        first = f"rollout_{self.id}"
        return (first, *(f"{first}_{n + 2}" for n in range(len(self.declared.ramp))))

    @property
    def stage(self) -> int:
        """Which of these it has come to."""
        return max(sum(step.state == "waiting" for step in self.steps) - 1, 0)

    @property
    def share(self) -> float:
        """Of the keys, over which the arms run at this stage."""
        return (*self.declared.ramp, 1.0)[self.stage]

    @property
    def name(self) -> str:
        """For people."""
        return f"rollout {self.id} of '{self.operator}'"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"operator": self.operator, "lake": self.stream.lake, "experiment": self.named}


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Those of a control store."""

    store: Store

    def begin(self, stream: StreamId, *, declared: Rollout, state: State, **values: Any) -> Record:
        """A rollout that begins now.

        Raises:
            LifecycleError: LIFECYCLE-100, the stream has one already.
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
            "gates": "[]",
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
        """One of them."""
        (record,) = self._read(ROLLOUTS.select().where(ROLLOUTS.c.id == number))
        return record

    def open(self, stream: StreamId) -> Record | None:
        """The one of a stream that goes on."""
        return next(iter(self._read(ROLLOUTS.select().where(ROLLOUTS.c.open == stream.action))), None)

    def of(self, stream: StreamId, limit: int = 20) -> list[Record]:
        """Those of a stream, the newest first."""
        mine = (ROLLOUTS.c.operator == stream.operator, ROLLOUTS.c.lake == stream.lake)
        return self._read(ROLLOUTS.select().where(*mine).order_by(ROLLOUTS.c.id.desc()).limit(limit))

    def due(self) -> list[tuple[int, str]]:
        """(id, package) of those whose next look is due."""
        query = sa.select(ROLLOUTS.c.id, ROLLOUTS.c.package)
        query = query.where(ROLLOUTS.c.open.is_not(None), ROLLOUTS.c.due <= time.time())
        with self.store.transaction() as connection:
            return [(int(row.id), str(row.package)) for row in connection.execute(query)]

    def note(self, record: Record, **values: Any) -> Record:
        """Write down what is known now, whatever the state; the record as it is then."""
        with self.store.transaction() as connection:
            connection.execute(ROLLOUTS.update().where(ROLLOUTS.c.id == record.id).values(**_row(values)))
        return self.find(record.id)

    def ask(self, record: Record, states: Iterable[State], **values: Any) -> bool:
        """Write down what a person wants, provided the rollout is in one of these states; whether it is."""
        mine = (ROLLOUTS.c.id == record.id, ROLLOUTS.c.state.in_(list(states)))
        with self.store.transaction() as connection:
            return bool(connection.execute(ROLLOUTS.update().where(*mine).values(due=time.time(), **values)).rowcount)

    def come_to(self, record: Record, state: State, why: str = "", **values: Any) -> Record:
        """The rollout comes to another state, provided nobody was faster; the record as it is then."""
        now = time.time()
        steps = [*(asdict(one) for one in record.steps), asdict(Step(state=state, at=now, why=why))]
        changes = {"state": state, "since": now, "due": now, "waits": "", "steps": json.dumps(steps)} | _row(values)
        mine = (ROLLOUTS.c.id == record.id, ROLLOUTS.c.state == record.state)
        with self.store.transaction() as connection:
            connection.execute(ROLLOUTS.update().where(*mine).values(**changes))
        return self.find(record.id)

    def end(self, record: Record, state: State, reason: str) -> Record:
        """The rollout ends."""
        return self.come_to(record, state, reason, reason=reason, ended_at=time.time(), open=None)

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        """Remove those that ended before a time, s since 1970; the newest of each stream stays. How many."""
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
    """As the store keeps them."""
    kinds: dict[str, TypeAdapter[Any]] = {"gates": _GATES, "memory": _MEMORY}
    return {name: kinds[name].dump_json(one).decode() if name in kinds else one for name, one in values.items()}


def _record(row: dict[str, Any]) -> Record:
    row.pop("open")
    stream = StreamId(row.pop("operator"), row.pop("lake"))
    row["declared"] = _DECLARED.validate_json(row["declared"])
    row["gates"] = _GATES.validate_json(row["gates"])
    row["memory"] = None if row["memory"] is None else _MEMORY.validate_json(row["memory"])
    row["steps"] = tuple(Step(**one) for one in json.loads(row["steps"]))
    return Record(stream=stream, **row)
