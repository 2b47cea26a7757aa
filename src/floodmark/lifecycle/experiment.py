"""Experiments: versions of one stream that run side by side from one savepoint, each in a lake of its own, as a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from pydantic import TypeAdapter

from floodmark.core.errors import LifecycleError, closest
from floodmark.core.time import NEVER
from floodmark.lifecycle.usage import Usage
from floodmark.spec.rollout import PromoteWhen

CURRENT = "@current"
"""The code of an arm that is what the stream runs."""
State = Literal["starting", "running", "paused", "stopped", "promoted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One version.

    Args:
        name: of the arm.
        code: it was asked for: ``@current``, ``.``, or a package.
        package: the code.
        version: of the operator in it; empty until that is known.
        root: of its lake, which reads what the original reads.
        differs: in what its code is another than that of the savepoint, a line each.
        anew: it computes all input from the first row, as its code cannot go on from the savepoint.
    """

    name: str
    code: str
    package: str
    version: str
    root: str
    differs: tuple[str, ...] = ()
    anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The keys that arms run over, where these are not all: the same ones in each.

    Args:
        groups: their key groups.
        among: so many key groups.
    """

    groups: tuple[int, ...]
    among: int

    def __str__(self) -> str:
        return f"{len(self.groups)} of {self.among} key groups, {100 * len(self.groups) / self.among:.1f}% of the keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """How the stream of an arm runs.

    Args:
        arm: which.
        driver: how its process is, in words.
        progress: of its outputs, ms UTC; None before its first micro-batch.
        behind: s of event time between the foremost arm and this one; None where that is not known.
        lag: s of event time between what it reads and this one; likewise.
        usage: of all its drivers.
        state: bytes of its state and positions; None where they are not on this machine.
    """

    arm: Arm
    driver: str
    progress: int | None
    behind: float | None = None
    lag: float | None = None
    usage: Usage = field(default_factory=Usage)
    state: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """All of it.

    Args:
        name: within the lake of the stream.
        operator: whose stream it is about.
        savepoint: id of the one all arms began with.
        since: event time up to which they share what the stream had found before, ms UTC.
        arms: the first is what the others are compared with.
        state: ``starting`` until all arms should run, ``paused`` while none should, ``stopped`` or ``promoted`` for good.
        who: began it.
        why: in words of theirs.
        began_at: ms UTC.
        ended_at: likewise; None while it goes on.
        promoted: the arm the stream has become.
        promote: when ``candidate`` becomes the stream by itself; None for never.
        candidate: name of that arm.
        sample: the keys its arms run over; None for all.
    """

    name: str
    operator: str
    savepoint: str
    arms: tuple[Arm, ...]
    state: State
    who: str
    why: str
    began_at: int
    ended_at: int | None = None
    promoted: str = ""
    since: int = NEVER
    promote: PromoteWhen | None = None
    candidate: str = ""
    sample: Sample | None = None

    @property
    def over(self) -> bool:
        """Whether its arms will never run again."""
        return self.state in {"stopped", "promoted"}

    def arm(self, name: str) -> Arm:
        """One arm.

        Raises:
            LifecycleError: LIFECYCLE-092, there is none of that name.
        """
        found = next((one for one in self.arms if one.name == name), None)
        if found is None:
            names = [one.name for one in self.arms]
            fix = f"{closest(name, names)}Its arms are {', '.join(names)}."
            raise LifecycleError(f"experiment '{self.name}'", "one of its arms", f"'{name}'", fix, code="LIFECYCLE-092")
        return found

    def twin(self, arm: Arm) -> bool:
        """Whether an arm runs the same code as the first one, so that in what they differ is noise."""
        return arm != self.arms[0] and arm.version == self.arms[0].version

    @property
    def whole(self) -> str:
        """The command by which the same arms run over all keys."""
        arms = " ".join(f"--arm {arm.name}={arm.code if arm.code == CURRENT else arm.package}" for arm in self.arms)
        return f"floodmark experiment start {self.name}_whole --of {self.operator} {arms}"

    def having(self, arms: Sequence[Arm]) -> Experiment:
        """With other arms."""
        return replace(self, arms=tuple(arms))

    def as_json(self) -> str:
        """For its file."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def parse(text: bytes) -> Experiment:
        """From its file."""
        return TypeAdapter(Experiment).validate_json(text)
