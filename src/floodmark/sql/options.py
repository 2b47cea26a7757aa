"""Settings of an operator that SQL has no words for: how late rows may be, and what happens to others."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.spec.graph.steps import Late, OnError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of the step with state.

    Args:
        lateness: rows at most this late still revise the result.
        late: what happens to later rows.
        on_error: what happens to a row whose expression fails.
        within: event time between a row and its repetition, at most, for ROW_NUMBER without a window.
    """

    lateness: str = "0 s"
    late: Late = "drop"
    on_error: OnError = "stop"
    within: str = ""
