"""Settings of an operator that SQL has no words for: how late rows may be, and what happens to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.spec.graph.stages import stages_of
from floodmark.spec.graph.steps import Late, OnError, Read, walk
from floodmark.spec.graph.stream import Stream
from floodmark.spec.windowing.triggers import AfterCount, AfterWatermark
from floodmark.spec.windowing.windows import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of the step with state.

    Args:
        lateness: rows at most this late still revise the result.
        late: what happens to later rows.
        on_error: what happens to a row whose expression fails.
        functions: name, lower case -> a function or an aggregate of the user.
        within: event time between a row and its repetition, at most, for ROW_NUMBER without a window.
        ttl: event time without a row of a key after which its aggregate, or its first rows, begin anew.
        changing: the inputs whose rows may be taken back.
    """

    lateness: str = "0 s"
    late: Late = "drop"
    on_error: OnError = "stop"
    within: str = ""
    ttl: str = ""
    functions: Mapping[str, Any] = field(default_factory=dict)
    changing: frozenset[str] = frozenset()

    def changes(self, stream: Stream[Any]) -> bool:
        """Whether a stream reads an input whose rows may be taken back."""
        return any(isinstance(step, Read) and step.input in self.changing for step in walk(stream.step))

    def life(self, stream: Stream[Any]) -> tuple[Session, dict[str, Any]]:
        """The window that is a life of a key by ``ttl``, whose result changes with each row, and its settings.

        Source: Flink's state TTL, by event time: the sessions of a key, so that any order of rows and any cut give the same lives.
        """
        trigger = AfterWatermark().early(AfterCount(1))
        settings = {"late": self.late_of(stream), "on_error": self.on_error, "allowed_lateness": self.ttl}
        return Session(self.ttl), settings | {"trigger": trigger}

    def late_of(self, stream: Stream[Any]) -> Late:
        """What happens to later rows of a step over a stream. Behind another stage no row is later than it is for that one, so the first has them."""
        return "drop" if stages_of([stream.step]) else self.late
