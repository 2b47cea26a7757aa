"""The unbounded host: the kernel inside ``transformWithState``, behind ``processor``.

Spark's watermark is defined on the carrier, our progress shifted to be positive, so it drops nothing, and its event-time timers fire
for groups without rows too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

from floodmark.core.errors import StateError
from floodmark.engines.frames.packing import COUNTED, emitted, last_sequence
from floodmark.lake.carrier import SHIFT, progress_of
from floodmark.semantics.columns import decode
from floodmark.semantics.kernel import Tick
from floodmark.semantics.stage import AnyStage, closed, kernel_of

if TYPE_CHECKING:
    import pandas as pd  # takes longer to load than the rest, and only workers use it

PIECE = 4_000_000
"""Bytes per state value: the socket to the worker is slow for larger ones."""


class StateStore:
    """A kernel's store in Spark state: the index with its deadline in a value, chunks in a map, in pieces.

    Nothing is read twice in a micro-batch, and one timer stands per group.

    Args:
        handle: Spark's, for timers.
        head: the value.
        pieces: the map.
    """

    def __init__(self, handle: StatefulProcessorHandle, head: Any, pieces: Any) -> None:
        self.handle, self.head, self.pieces = handle, head, pieces
        self.deadline: int | None = None
        self.fresh: bytes | None = None

    def index(self) -> bytes | None:
        """The index, and with it the deadline that has a timer."""
        found = self.head.get()
        self.deadline, index = (found[0], bytes(found[1])) if found else (None, None)
        return index

    def put_index(self, index: bytes | None) -> None:
        """Kept until ``settle`` knows the deadline."""
        self.fresh = index

    def settle(self, deadline: int | None) -> None:
        """Write the index, which may name state that waits for nothing, and move the timer to the new deadline.

        Args:
            deadline: the progress something in the group waits for.
        """
        if self.deadline is not None and self.deadline != deadline:
            self.handle.deleteTimer(self.deadline + SHIFT - 1)
        if self.fresh is None:
            self.head.clear()
            return
        self.head.update((deadline, self.fresh))
        if deadline is not None and self.deadline != deadline:
            self.handle.registerTimer(deadline + SHIFT - 1)

    def get(self, number: int) -> bytes:
        """A chunk, put together."""
        count, first = self._piece(number, 0)
        return b"".join((first, *(self._piece(number, piece)[1] for piece in range(1, count))))

    def put(self, number: int, chunk: bytes) -> None:
        """A chunk, cut into pieces."""
        cut = [chunk[i : i + PIECE] for i in range(0, len(chunk), PIECE)]
        for piece, part in enumerate(cut):
            self.put_piece(number, piece, len(cut), part)

    def put_piece(self, number: int, piece: int, pieces: int, part: bytes) -> None:
        """One of the pieces of a chunk."""
        self.pieces.updateValue((number, piece), (pieces, part))

    def remove(self, number: int) -> None:
        """All pieces of a chunk."""
        for piece in range(self._piece(number, 0)[0]):
            self.pieces.removeKey((number, piece))

    def _piece(self, number: int, piece: int) -> tuple[int, bytes]:
        found = self.pieces.getValue((number, piece))
        if found is None:
            fix = "Begin anew with --from-scratch, and report what came before."
            got = f"no piece {piece} of chunk {number}"
            raise StateError("state of a key group", "every chunk its index names", got, fix, code="STATE-004")
        return int(found[0]), bytes(found[1])


class Host:
    """A stage's kernel, one key group after the other.

    Args:
        stage: what to compute.
        clock: processing time to run at, ms; None for that of Spark's micro-batch.
        store: the state of the group at hand.
    """

    def __init__(self, stage: AnyStage, clock: int | None, store: StateStore) -> None:
        self.stage, self.clock, self.store = stage, clock, store

    def close(self) -> None:
        """Let go of what functions have opened."""
        closed(self.stage)

    def advance(self, frames: list[pd.DataFrame], timers: TimerValues) -> pd.DataFrame:
        """Packed rows of a group, none where only a deadline has passed; rows as ``EMITTED``."""
        payloads = [bytes(chunk) for frame in frames for chunk in frame["payload"] if chunk is not None]
        sides = [bytes(chunk) for frame in frames for chunk in frame["side"] if chunk is not None]
        packed = {name: sum(int(frame[name].sum()) for frame in frames) for name in COUNTED}
        parts = [decode(chunk) for chunk in payloads]
        ticks = []
        if frames and self.stage.step.clocked:  # every group has a row in every micro-batch that moves the clock
            ticks.append(Tick(timers.getCurrentProcessingTimeInMs() if self.clock is None else self.clock))
        emission = kernel_of(self.stage, self.store).advance(
            parts, progress_of(timers.getCurrentWatermarkInMs()), ticks
        )
        self.store.settle(emission.deadline)
        position = last_sequence(parts) if ticks else None
        return frame_of(emitted(self.stage, emission, packed, sides, position))


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """Rows as the frame Spark wants, whole numbers as such: beside a null, pandas would make floats of them, which end at 2^53."""
    import pandas as pd  # noqa: PLC0415 - see above

    frame: pd.DataFrame = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame
