"""The processor that Spark calls: it declares its states, and calls ``host`` for the rest, which is imported when the first rows come.

Spark starts a process with every stream that only calls ``init``. So this class is pickled by value, and its stage as bytes inside it: that
process imports nothing of floodmark's, and a stream starts two seconds earlier.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessorHandle, TimerValues

    from floodmark.semantics.kernels.stage import AnyStage

SCHEMAS = {
    "index": "deadline bigint, index binary",
    "chunks.key": "number bigint, piece int",
    "chunks": "pieces int, chunk binary",
}


class Processor(StatefulProcessor):
    """Runs a stage's kernel in a Spark worker, one Spark state group per key group.

    Args:
        stage: of the stateful step.
        number: of the stage in its operator.
        clock: processing time to run at, ms; by default the clock of Spark's micro-batch, which a repeated micro-batch keeps.
    """

    def __init__(self, stage: AnyStage, number: int, clock: int | None = None) -> None:
        self.pickled: bytes = cloudpickle.dumps((stage, number, clock))  # type: ignore[no-untyped-call]  # pyspark's own copy has no types
        self.host: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the states. Spark calls this once per state partition and micro-batch, and once in the process that plans the query."""
        self.handle = handle
        self.head = handle.getValueState("index", SCHEMAS["index"])
        self.pieces = handle.getMapState("chunks", SCHEMAS["chunks.key"], SCHEMAS["chunks"])

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - Spark's name; pandas variant only
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Compute with the packed rows of one key group; what earlier stages have emitted, below negative numbers, passes."""
        host = self._opened()
        if key[0] < 0:
            yield from host.passed(list(rows))
        else:
            yield host.advance(key[0], list(rows), timerValues)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803 - Spark passes all by these names
    ) -> Iterator[pd.DataFrame]:
        """Compute for a key group whose deadline has passed; it may have no new rows."""
        host = self._opened()
        if key[0] in host.stage.step.computed:
            yield host.advance(key[0], [], timerValues)

    def close(self) -> None:
        """Close what functions have opened."""
        if self.host is not None:
            self.host.close()

    def _opened(self) -> Any:
        if self.host is None:
            from floodmark.engines.spark.state.host import Host, StateStore  # noqa: PLC0415 - see above

            stage, number, clock = cloudpickle.loads(self.pickled)
            self.host = Host(stage, number, clock, StateStore(self.handle, self.head, self.pieces))
        return self.host


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # likewise
