"""``--late-rows all``: the stamps of rows that all count as on time."""

from __future__ import annotations

from floodmark.core.time import NEVER
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator

_BEFORE_THE_ROW = "least(`_watermark`, unix_millis(`_event_time`) - 1)"


def watermark_on_time(operator: Operator) -> str:
    """SQL of the ``_watermark`` under which every input row of an operator is on time.

    A process function sees progress between its rows, so a row that is on time keeps its watermark, and its timers fire as they do in the
    stream. Other steps are computed as if no progress were made before the last row.
    """
    return _BEFORE_THE_ROW if isinstance(operator.stateful, steps.KeyedProcess) else f"CAST({NEVER} AS bigint)"
