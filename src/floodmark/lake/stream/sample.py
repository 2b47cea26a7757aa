"""Key groups of a stream: how many, in how many bundles, and which of them it computes. An arm of an experiment may compute only some of the keys."""

from __future__ import annotations

import hashlib
import json

from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.stream.answers import recorded
from floodmark.lake.stream.identity import Identity
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.graph.bundles import bundles
from floodmark.spec.graph.operator import Operator


def drawn(name: str, share: float, groups: int) -> tuple[int, ...]:
    """Draw key groups for a share of the keys. Returns their numbers, ascending.

    Args:
        name: seed of the draw: the same name draws the same groups.
        share: share of the keys, above 0 and at most 1; at least one group is drawn.
        groups: number of key groups.
    """
    order = sorted(range(groups), key=lambda group: hashlib.sha256(f"{name}/{group}".encode()).digest())
    return tuple(sorted(order[: max(1, round(share * groups))]))


def keep(lake: Lake, operator: str, groups: tuple[int, ...], among: int | None = None) -> None:
    """Restrict the stream of an operator in a lake to key groups, permanently.

    Args:
        lake: in which the stream runs.
        operator: name of the operator.
        groups: numbers of key groups, or of bundles of them.
        among: number of all of them; None if the stream has begun, and so has a number.
    """
    content = groups if among is None else {"groups": groups, "among": among}
    write(_path(lake, operator), json.dumps(content).encode())


def of(lake: Lake, operator: str) -> tuple[int, ...] | None:
    """The key groups, or bundles of them, that an operator's stream computes in a lake; None for all."""
    groups, _ = _recorded_sample(lake, operator)
    return groups


def among(lake: Lake, operator: str) -> int | None:
    """The number of key groups among which those of ``of`` were drawn; None if there is no sample, or it is not recorded."""
    _, number = _recorded_sample(lake, operator)
    return number


def grouped(lake: Lake, operator: Operator, identity: Identity | None = None) -> Operator:
    """An operator with the number of key groups that its stream in a lake has, or had by another identity; unchanged if there is no stream."""
    divided = (identity or Timeline.current(lake, operator.name).identity).divided()
    return operator if divided is None else operator.grouped(divided.parts, divided.key_groups)


def in_effect(lake: Lake, operator: Operator, tasks: int = 1) -> Operator:
    """An operator as its stream in a lake computes it: with the key groups of the stream, restricted to a sample if there is one, with its answers.

    Args:
        lake: in which the stream runs.
        operator: of the stream.
        tasks: that share the state of a new stream.
    """
    operator, step = recorded(lake, operator), operator.stateful
    groups, number = _recorded_sample(lake, operator.name)
    timeline = Timeline.current(lake, operator.name)
    divided = timeline.identity.divided()
    declares_another = divided is not None and operator.key_groups not in {None, divided.key_groups}
    if declares_another and timeline.deployed is None:  # no micro-batch has state yet: ``fence.resumed``
        divided = None
    if divided is not None:
        operator = operator.grouped(divided.parts, divided.key_groups)
    elif step is not None and groups is None:
        operator = operator.grouped(bundles(step.groups, tasks), step.groups)
    elif step is not None and number is not None:
        operator = operator.grouped(number, step.groups)
    return operator if groups is None else operator.sampled(groups)


def _recorded_sample(lake: Lake, operator: str) -> tuple[tuple[int, ...] | None, int | None]:
    """The numbers of a sample, and the number among which they were drawn."""
    content = read(_path(lake, operator))
    if content is None:
        return None, None
    sample = json.loads(content)
    return (tuple(sample["groups"]), int(sample["among"])) if isinstance(sample, dict) else (tuple(sample), None)


def _path(lake: Lake, operator: str) -> str:
    return lake.internal("operators", operator, "sample.json")
