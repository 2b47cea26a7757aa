"""Usage of a stream: rows, late rows, time, memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of one driver, or of all drivers of a stream.

    Args:
        rows: read, markers included; a micro-batch that is computed again after a crash counts again.
        late: (row, window) pairs that came late and were used.
        dropped: (row, window) pairs that came too late.
        set_aside: rows and panes that were quarantined because a function failed for them.
        busy: time in micro-batches, s.
        processor: processor time of the process and its Java, s; without the embedded engine's server, which streams share.
        memory: peak resident memory of the same processes, bytes.
    """

    rows: int = 0
    late: int = 0
    dropped: int = 0
    set_aside: int = 0
    busy: float = 0.0
    processor: float = 0.0
    memory: int = 0

    def plus(self, other: Usage) -> Usage:
        """The sum of two usages; for memory, the greater of the two."""
        mine, others = asdict(self), asdict(other)
        sums = {name: mine[name] + others[name] for name in mine}
        return Usage(**(sums | {"memory": max(self.memory, other.memory)}))

    @property
    def rate(self) -> float | None:
        """Rows per second of micro-batches; None before the first one."""
        return self.rows / self.busy if self.busy else None

    @property
    def cost(self) -> float | None:
        """Seconds of processor time per million rows; None before the first row, and if the time is unknown."""
        return 1e6 * self.processor / self.rows if self.rows and self.processor else None

    @staticmethod
    def parse(value: dict[str, Any] | None) -> Usage:
        """The usage from its stored fields; all zero if nothing was stored."""
        return TypeAdapter(Usage).validate_python(value or {})
