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
from floodmark.spec.assets.rollout import PromoteWhen

CURRENT = "@current"
"""The code of an arm that is what the stream runs."""
State = Literal["starting", "running", "paused", "stopped", "promoted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One version.

    Args:
        name: of the arm.
        code: as requested: ``@current``, ``.``, or a package.
        package: the resolved code.
        version: of the operator in the package; empty until the arm is prepared.
        root: root of the arm's lake, which reads the inputs of the original stream.
        differs: differences between the arm's code and the savepoint's, a line each.
        anew: whether the arm computes all input from the first row, because its code cannot resume from the savepoint.
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
    """The sample of keys that the arms process, by key group; every arm processes the same key groups.

    Args:
        groups: the sampled key groups, or bundles of them.
        among: number of all of them.
        bundled: whether they are bundles.
    """

    groups: tuple[int, ...]
    among: int
    bundled: bool = False

    def __str__(self) -> str:
        parts = "bundles of key groups" if self.bundled else "key groups"
        return f"{len(self.groups)} of {self.among} {parts}, {100 * len(self.groups) / self.among:.1f}% of the keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """How the stream of an arm runs.

    Args:
        arm: the arm.
        driver: status of the arm's process, in words.
        progress: of the arm's outputs, ms UTC; None before the first micro-batch.
        behind: event time between the foremost arm and this arm, s; None if unknown.
        lag: event time between the arm's input and the arm, s; None if unknown.
        usage: of all drivers of the arm.
        state: size of state and positions, bytes; None where they are not on this machine.
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
    """The record of an experiment.

    Args:
        name: unique within the lake of the stream.
        operator: name of the operator whose stream is the original.
        savepoint: id of the savepoint from which all arms started.
        since: event time up to which the arms share the results of the original stream, ms UTC.
        arms: the first arm is the reference of all comparisons.
        state: ``starting`` until all arms should run, ``paused`` while none should, ``stopped`` or ``promoted`` for good.
        who: the person who started the experiment.
        why: that person's note.
        began_at: ms UTC; later than that of each experiment the lake has, whatever the clock says.
        ended_at: ms UTC; None while the experiment runs.
        promoted: name of the promoted arm; empty if no arm was promoted.
        promote: the rule that promotes ``candidate`` automatically; None for no automatic promotion.
        candidate: name of the arm that ``promote`` is about.
        sample: the keys that the arms process; None for all keys.
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
        """The arm of a name.

        Raises:
            LifecycleError: LIFECYCLE-092, the experiment has no arm of that name.
        """
        named_arm = next((one for one in self.arms if one.name == name), None)
        if named_arm is None:
            names = [one.name for one in self.arms]
            fix = f"{closest(name, names)}Its arms are {', '.join(names)}."
            raise LifecycleError(f"experiment '{self.name}'", "one of its arms", f"'{name}'", fix, code="LIFECYCLE-092")
        return named_arm

    def twin(self, arm: Arm) -> bool:
        """Whether an arm runs the same code as the first arm, so that every difference between the two is noise."""
        return arm != self.arms[0] and arm.version == self.arms[0].version

    @property
    def whole(self) -> str:
        """The command that starts the same arms over all keys."""
        arms = " ".join(f"--arm {arm.name}={arm.code if arm.code == CURRENT else arm.package}" for arm in self.arms)
        return f"floodmark experiment start {self.name}_whole --of {self.operator} {arms}"

    def having(self, arms: Sequence[Arm]) -> Experiment:
        """The experiment with its arms replaced."""
        return replace(self, arms=tuple(arms))

    def as_json(self) -> str:
        """The text of the experiment's file."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def parse(text: bytes) -> Experiment:
        """The experiment from the text of its file."""
        return TypeAdapter(Experiment).validate_json(text)
