"""Settings of an operator that SQL has no words for: how late rows may be, and what happens to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.spec.graph.stages import stages_of
from floodmark.spec.graph.steps import Late, OnError
from floodmark.spec.graph.stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of the step with state.

    Args:
        lateness: rows at most this late still revise the result.
        late: what happens to later rows.
        on_error: what happens to a row whose expression fails.
        functions: name, lower case -> a function or an aggregate of the user.
        within: event time between a row and its repetition, at most, for ROW_NUMBER without a window.
    """

    lateness: str = "0 s"
    late: Late = "drop"
    on_error: OnError = "stop"
    within: str = ""
    functions: Mapping[str, Any] = field(default_factory=dict)

    def late_of(self, stream: Stream[Any]) -> Late:
        """What happens to later rows of a step over a stream. Behind another stage no row is later than it is for that one, so the first has them."""
        return "drop" if stages_of([stream.step]) else self.late
