"""Key groups of a stream: how many, and which of them it computes. An arm of an experiment may compute only some of the keys."""

from __future__ import annotations

import hashlib
import json

from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.stream.answers import recorded
from floodmark.lake.stream.timeline import Timeline
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


def keep(lake: Lake, operator: str, groups: tuple[int, ...]) -> None:
    """Restrict the stream of an operator in a lake to key groups, permanently."""
    write(_path(lake, operator), json.dumps(groups).encode())


def of(lake: Lake, operator: str) -> tuple[int, ...] | None:
    """The key groups that an operator's stream computes in a lake; None for all."""
    content = read(_path(lake, operator))
    return None if content is None else tuple(json.loads(content))


def grouped(lake: Lake, operator: Operator) -> Operator:
    """An operator with the number of key groups that its stream in a lake has; unchanged if there is no stream."""
    number = Timeline.current(lake, operator.name).identity.key_groups()
    return operator if number is None else operator.grouped(number)


def in_effect(lake: Lake, operator: Operator) -> Operator:
    """An operator as its stream in a lake computes it: with the key groups of the stream, restricted to a sample if there is one, with its answers."""
    operator, groups = grouped(lake, recorded(lake, operator)), of(lake, operator.name)
    return operator if groups is None else operator.sampled(groups)


def _path(lake: Lake, operator: str) -> str:
    return lake.internal("operators", operator, "sample.json")
