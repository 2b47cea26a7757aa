"""What a stream has used and counted: rows, late rows, time, memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of one driver, or of all drivers of a stream.

    Args:
        rows: read, markers included; a micro-batch that is computed again after a crash counts again.
        late: (row, window) pairs that came late and were used.
        dropped: (row, window) pairs that came too late.
        set_aside: rows and panes a function failed for, written into the quarantine.
        busy: s in micro-batches.
        processor: s of processor time of the process and its Java; without the embedded engine's server, which streams share.
        memory: greatest number of bytes resident at once, of the same.
    """

    rows: int = 0
    late: int = 0
    dropped: int = 0
    set_aside: int = 0
    busy: float = 0.0
    processor: float = 0.0
    memory: int = 0

    def plus(self, other: Usage) -> Usage:
        """The two together; of memory the greater one."""
        mine, others = asdict(self), asdict(other)
        sums = {name: mine[name] + others[name] for name in mine}
        return Usage(**(sums | {"memory": max(self.memory, other.memory)}))

    @property
    def rate(self) -> float | None:
        """Rows per second of micro-batches; None before the first one."""
        return self.rows / self.busy if self.busy else None

    @property
    def cost(self) -> float | None:
        """Seconds of processor time per million rows; None before the first row, and where the time is not known."""
        return 1e6 * self.processor / self.rows if self.rows and self.processor else None

    @staticmethod
    def parse(value: dict[str, Any] | None) -> Usage:
        """From the fields; nothing where nothing was written down."""
        return TypeAdapter(Usage).validate_python(value or {})
