"""Which key groups the streams of a lake compute, where that is a sample: an arm of an experiment may run over some of the keys alone."""

from __future__ import annotations

import hashlib
import json

from floodmark.lake.paths import Lake
from floodmark.lake.storage import read, write
from floodmark.spec.operator import Operator


def drawn(name: str, share: float, groups: int) -> tuple[int, ...]:
    """Key groups for a share of the keys, ascending.

    Args:
        name: of the draw, by which it can be repeated; another one draws others.
        share: of the keys, above 0 and up to 1; at least one group is drawn.
        groups: number there are.
    """
    order = sorted(range(groups), key=lambda group: hashlib.sha256(f"{name}/{group}".encode()).digest())
    return tuple(sorted(order[: max(1, round(share * groups))]))


def keep(lake: Lake, operator: str, groups: tuple[int, ...]) -> None:
    """Let the stream of an operator compute these key groups alone, in this lake and for good."""
    write(_path(lake, operator), json.dumps(groups).encode())


def of(lake: Lake, operator: str) -> tuple[int, ...] | None:
    """The key groups that the stream of an operator computes in a lake; None for all."""
    content = read(_path(lake, operator))
    return None if content is None else tuple(json.loads(content))


def sampled(lake: Lake, operator: Operator) -> Operator:
    """An operator as its stream in a lake computes it."""
    groups = of(lake, operator.name)
    return operator if groups is None else operator.sampled(groups)


def _path(lake: Lake, operator: str) -> str:
    return lake.internal("operators", operator, "sample.json")
