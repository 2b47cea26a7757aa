"""Key groups of a stream: how many, in how many bundles, and which of them it computes. An arm of an experiment may compute only some of the keys."""

from __future__ import annotations

import hashlib
import json

from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, remove, write
from floodmark.lake.stream.answers import recorded
from floodmark.lake.stream.identity import Identity
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.graph.bundles import bundles
from floodmark.spec.graph.operator import Operator

_SAMPLE, _AMONG = "sample.json", "sample_among.json"
"""Files. The first is as releases before have written it, which go on with an arm without the second."""


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
    remove(_path(lake, operator, _AMONG))
    if among is not None:
        write(_path(lake, operator, _AMONG), json.dumps(among).encode())
    write(_path(lake, operator, _SAMPLE), json.dumps(groups).encode())


def of(lake: Lake, operator: str) -> tuple[int, ...] | None:
    """The key groups, or bundles of them, that an operator's stream computes in a lake; None for all."""
    content = read(_path(lake, operator, _SAMPLE))
    return None if content is None else tuple(json.loads(content))


def among(lake: Lake, operator: str) -> int | None:
    """The number of key groups among which those of ``of`` were drawn; None if there is no sample, or it is not recorded."""
    content = read(_path(lake, operator, _AMONG))
    return None if content is None else int(json.loads(content))


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
    groups, timeline = of(lake, operator.name), Timeline.current(lake, operator.name)
    divided = timeline.identity.divided()
    declares_another = divided is not None and operator.key_groups not in {None, divided.key_groups}
    if declares_another and timeline.deployed is None:  # no micro-batch has state yet: ``fence.resumed``
        divided = None
    if divided is not None:
        operator = operator.grouped(divided.parts, divided.key_groups)
    elif step is not None and groups is None:
        operator = operator.grouped(bundles(step.groups, tasks), step.groups)
    elif step is not None and (number := among(lake, operator.name)) is not None:
        operator = operator.grouped(number, step.groups)
    return operator if groups is None else operator.sampled(groups)


def _path(lake: Lake, operator: str, file: str) -> str:
    return lake.internal("operators", operator, file)
