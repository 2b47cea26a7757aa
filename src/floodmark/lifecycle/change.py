"""One difference between what a stream was started with and what the code says, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Node = Mapping[str, Any]
"""A step in its canonical form."""

Verdict = Literal["no-op", "stateless change", "compatible state", "not comparable", "forward-only", "rebuild"]
"""What a difference asks for, the least first. What cannot be compared asks a person whether it is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference.

    Args:
        where: the step or table.
        before: what it was; empty for something new.
        after: what it is; empty for something that is gone.
        otherwise: what would come of it on the state there is.
        verdict: what it asks for.
    """

    where: str
    before: str
    after: str
    otherwise: str
    verdict: Verdict
