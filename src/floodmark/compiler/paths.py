"""Paths of an operator's graph in its canonical form: the steps of an output up to its stateful step, and the stages of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.fingerprint import canonical

Node = Mapping[str, Any]
"""A step or a graph in its canonical form."""

STATEFUL = {"window_aggregate": "windows", "process": "a process function", "interval_join": "an interval join"}
"""Stateful steps: name in a graph -> name in words."""


@dataclass(frozen=True, slots=True)
class Path:
    """The chain of steps of one output, split at its stateful step: ``tail`` follows the stateful step, ``head`` precedes it.

    Both are ordered from the output back to the input. ``below`` is the whole graph beneath the stateful step.
    """

    tail: list[Node]
    stateful: Node | None
    head: list[Node]
    below: Node = field(default_factory=dict)


def path_of(step: Node) -> Path:
    """The path of a result."""
    whole, nodes = step, chain(step)
    position = next((i for i, node in enumerate(nodes) if node["step"] in STATEFUL), None)
    if position is None:
        return Path(nodes, None, [])
    for _ in range(position):
        whole = whole["of"]
    return Path(nodes[:position], nodes[position], nodes[position + 1 :], whole["of"])


def chain(step: Node) -> list[Node]:
    """A step and the steps before it, down to an input or a union, each without the steps before it."""
    nodes: list[Node] = []
    while True:
        below = step.get("of")
        nodes.append({name: value for name, value in step.items() if name != "of" or isinstance(value, list)})
        if not isinstance(below, Mapping):
            break
        step = below
    return [{"step": "read", "input": n["input"]} if n["step"] == "read" else n for n in nodes]


def stages_of(graph: Node) -> list[Node]:
    """The stateful steps of an operator with all steps before them, in the order of ``Operator.stages``."""
    stages: dict[str, Node] = {}

    def visit(step: Node) -> None:
        for parent in parents_of(step):
            visit(parent)
        if step["step"] in STATEFUL:
            stages.setdefault(canonical(step), step)

    for _, step in graph["outputs"]:
        visit(step)
    return list(stages.values())


def last_of(stages: Sequence[Node]) -> list[Node]:
    """The stages that no other stage reads."""
    return [stage for stage in stages if not any(_holds(other, stage) for other in stages if other is not stage)]


def _holds(step: Node, other: Node) -> bool:
    """Whether a step is another one, or one of the steps before it is."""
    return step == other or any(_holds(parent, other) for parent in parents_of(step))


@dataclass(frozen=True, slots=True)
class Copy:
    """A stage in Spark's query, in which it is once for each time that the stages behind it read it.

    Args:
        stage: number of the stage in its operator.
        before: the copies of stages that it reads, in order.
    """

    stage: int
    before: tuple[Copy, ...]

    def describe(self, names: Sequence[str]) -> str:
        """The names of its stage and, in parentheses, of those that it reads."""
        before = ", ".join(copy.describe(names) for copy in self.before)
        return names[self.stage] + (f" ({before})" if before else "")

    def walk(self) -> Iterator[Copy]:
        """The copy and all before it, in the order in which Spark numbers the stateful operators of a query."""
        yield self
        for copy in self.before:
            yield from copy.walk()


def copies_of(graph: Node) -> tuple[Copy, ...]:
    """The stages of an operator in Spark's query: those that no other stage reads, each with the stages before it."""
    stages = stages_of(graph)

    def read(step: Node) -> Iterator[Copy]:
        if step in stages:
            yield Copy(stages.index(step), tuple(copy for parent in parents_of(step) for copy in read(parent)))
            return
        for parent in parents_of(step):
            yield from read(parent)

    return tuple(copy for stage in last_of(stages) for copy in read(stage))


def apart(step: Node, stages: list[Node]) -> Node:
    """A step and the steps before it, with reads in place of stages."""
    if step in stages:
        return {"step": "read", "input": f"stage {stages.index(step) + 1}"}
    below = step.get("of")
    if isinstance(below, Mapping):
        return {**step, "of": apart(below, stages)}
    return {**step, "of": [apart(parent, stages) for parent in below]} if below else step


def parents_of(step: Node) -> Iterator[Node]:
    """The steps that a step reads."""
    below = step.get("of", [])
    yield from [below] if isinstance(below, Mapping) else below
