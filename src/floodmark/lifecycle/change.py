"""One difference between a stream's deployed definition and its current definition, with the verdict on the existing state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal[
    "no-op", "stateless change", "compatible state", "not comparable", "forward-only", "rescale", "rebuild"
]
"""What a difference requires, the mildest first. ``not comparable`` requires a person to confirm that the code is the same, ``rescale`` that
the stopped stream's state is divided among another number of key groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference.

    Args:
        where: the step or table.
        before: the deployed setting, in words; empty for an addition.
        after: the current setting, in words; empty for a removal.
        otherwise: the consequence of resuming the existing state without a plan.
        verdict: what the difference requires.
        unread: an optional column of an input has come that no step reads. Streams resume under it without an upgrade.
    """

    where: str
    before: str
    after: str
    otherwise: str
    verdict: Verdict
    unread: bool = False
