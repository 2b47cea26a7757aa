"""Paths of an operator's graph in its canonical form: the steps of an output up to its stateful step, and the stages of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
