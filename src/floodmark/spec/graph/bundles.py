"""Bundles of key groups: a stream of many key groups keeps the state of several of them as one.

A micro-batch pays for each part of the state that it touches. Key groups beyond what tasks need would only cost, so that they lie in bundles. The
number of key groups is a multiple of that of bundles: key group G lies in bundle G modulo their number, and the state is that of a stream with as
many key groups as there are bundles.
"""

from __future__ import annotations

from floodmark.spec.graph.steps import KEY_GROUPS

_LEAST = 64
"""Fewest bundles."""
_PER_TASK = 16
"""Bundles for each task, so that tasks get about equal parts of the keys."""


def bundles(key_groups: int, tasks: int) -> int:
    """(number of key groups, tasks that share the state) -> number of bundles: the least divisor that is enough for the tasks; 128 key groups and fewer lie by themselves."""
    if key_groups <= KEY_GROUPS:
        return key_groups
    enough = max(_LEAST, _PER_TASK * tasks)
    return next((number for number in range(enough, key_groups) if key_groups % number == 0), key_groups)
