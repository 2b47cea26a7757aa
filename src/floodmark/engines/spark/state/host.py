"""The host of a kernel inside ``transformWithState``, which ``processor`` calls.

Spark's watermark is defined on the carrier: floodmark's progress, shifted to be positive. So Spark's watermark drops no row, and event-time
timers also fire for groups without rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

from floodmark.core.errors import StateError
from floodmark.engines.frames.packing import COUNTED, NUMBERS, emitted_rows, hottest_of, last_sequence
from floodmark.engines.spark.state.handing import HANDED
from floodmark.engines.spark.state.requests import MapRequests
from floodmark.lake.stream.carrier import SHIFT, progress_of
from floodmark.semantics.encoding.columns import decode
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.keyed import KeyedKernel
from floodmark.semantics.kernels.stage import AnyStage, closed, kernel_of

if TYPE_CHECKING:
    import pandas as pd  # takes longer to load than the rest, and only workers use it

PIECE = 4_000_000
"""Bytes per state value: the socket to the worker is slow for larger ones."""


class StateStore:
    """A kernel's store in Spark state: the index and its deadline in a value, chunks, cut into pieces, in a map.

    Nothing is read twice in a micro-batch, and each group has at most one timer. What is written waits until ``write_index``, or until it is much.

    Args:
        handle: Spark's, for timers.
        head: state of the value.
        pieces: state of the map.
    """

    def __init__(self, handle: StatefulProcessorHandle, head: Any, pieces: Any) -> None:
        self.handle, self.head, self.pieces = handle, head, MapRequests(pieces)
        self._begin()

    def _begin(self) -> None:
        self.deadline: int | None = None
        self.fresh: bytes | None = None
        self.read: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.counts: dict[int, int] = {}
        self.writes: dict[tuple[int, int], tuple[int, bytes] | None] = {}
        self.waiting_bytes = 0

    def index(self) -> bytes | None:
        """The index; the deadline beside it, which has a timer, is read into ``deadline``."""
        self._begin()
        entry = self.head.get()
        self.deadline, index = (entry[0], bytes(entry[1])) if entry else (None, None)
        return index

    def put_index(self, index: bytes | None) -> None:
        """Hold an index in memory until ``write_index`` writes it together with the deadline."""
        self.fresh = index

    def write_index(self, deadline: int | None) -> None:
        """Write the pieces that wait and the index, and move the timer to the new deadline.

        Args:
            deadline: the least progress for which state of the group waits; None if its state waits for none.
        """
        self.write()
        if self.deadline is not None and self.deadline != deadline:
            self.handle.deleteTimer(self.deadline + SHIFT - 1)
        if self.fresh is None:
            self.head.clear()
            return
        self.head.update((deadline, self.fresh))
        if deadline is not None and self.deadline != deadline:
            self.handle.registerTimer(deadline + SHIFT - 1)

    def expect(self, numbers: Sequence[int]) -> None:
        """Read the first pieces of chunks at once; ``get`` returns them."""
        self.write()
        keys = [(number, 0) for number in numbers]
        for key, entry in zip(keys, self.pieces.values(keys), strict=True):
            if entry is not None:
                self.read[key] = int(entry[0]), bytes(entry[1])

    def get(self, number: int) -> bytes:
        """Read a chunk, joined from its pieces."""
        count, first = self._piece(number, 0)
        return b"".join((first, *(self._piece(number, piece)[1] for piece in range(1, count))))

    def put(self, number: int, chunk: bytes) -> None:
        """Write a chunk, cut into pieces."""
        cut = [chunk[i : i + PIECE] for i in range(0, len(chunk), PIECE)]
        for piece, part in enumerate(cut):
            self.put_piece(number, piece, len(cut), part)

    def put_piece(self, number: int, piece: int, pieces: int, part: bytes) -> None:
        """Write one of the pieces of a chunk."""
        self.counts[number] = pieces
        self.writes[number, piece] = pieces, part
        self.waiting_bytes += len(part)
        if self.waiting_bytes > PIECE:
            self.write()

    def remove(self, number: int) -> None:
        """Remove all pieces of a chunk."""
        count = self.counts.pop(number, None) or self._piece(number, 0)[0]
        for piece in range(count):
            self.writes[number, piece] = None

    def write(self) -> None:
        """Write the pieces that wait."""
        if self.writes:
            self.pieces.update(list(self.writes.items()))
            self.writes, self.waiting_bytes = {}, 0

    def _piece(self, number: int, piece: int) -> tuple[int, bytes]:
        self.write()
        entry = self.read.pop((number, piece), None) or next(self.pieces.values([(number, piece)]))
        if entry is None:
            fix = "Begin anew with --from-scratch, and report what came before."
            got = f"no piece {piece} of chunk {number}"
            raise StateError("state of a key group", "every chunk its index names", got, fix, code="STATE-004")
        self.counts[number] = int(entry[0])
        return int(entry[0]), bytes(entry[1])


class Host:
    """Runs a stage's kernel, one key group after the other.

    Args:
        stage: of the stateful step.
        number: of the stage in its operator.
        clock: processing time to run at, ms; None for the clock of Spark's micro-batch.
        store: the state of the group that Spark calls for.
    """

    def __init__(self, stage: AnyStage, number: int, clock: int | None, store: StateStore) -> None:
        self.stage, self.number, self.clock, self.store = stage, number, clock, store
        self._kernel: KeyedKernel | None = None

    def close(self) -> None:
        """Close what functions have opened."""
        closed(self.stage)

    def passed(self, frames: list[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """(packed rows below a negative number) -> rows as ``HOSTED`` of earlier stages."""
        for frame in frames:
            for chunk in frame["payload"]:
                yield frame_of(decode(bytes(chunk))[HANDED].to_pylist())

    def advance(self, group: int, frames: list[pd.DataFrame], timers: TimerValues) -> pd.DataFrame:
        """(key group, its packed rows, none if only a deadline has passed) -> rows as ``HOSTED``."""
        payloads = [bytes(chunk) for frame in frames for chunk in frame["payload"] if chunk is not None]
        sides = [bytes(chunk) for frame in frames for chunk in frame["side"] if chunk is not None]
        packed = {name: int(sum(sum(frame[name].tolist()) for frame in frames)) for name in COUNTED}
        parts = [decode(chunk) for chunk in payloads]
        hottest = hottest_of(parts)
        ticks = []
        if frames and self.stage.step.clocked:  # every group has a row in every micro-batch that moves the clock
            ticks.append(Tick(timers.getCurrentProcessingTimeInMs() if self.clock is None else self.clock))
        kernel = self._kernel or kernel_of(self.stage, self.store)
        if isinstance(kernel, KeyedKernel):  # costs as much to make as a few rows
            self._kernel = kernel
        emission = kernel.advance(parts, progress_of(timers.getCurrentWatermarkInMs()), ticks)
        self.store.write_index(emission.deadline)
        position = last_sequence(parts) if ticks else None
        return frame_of(emitted_rows(self.stage, emission, packed, sides, position, group, self.number, hottest))


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """(rows of EMITTED) -> HOSTED as a pandas frame of Python's own values: pandas would turn numbers beside a null into floats, exact only to 2^53."""
    import pandas as pd  # noqa: PLC0415 - see above

    columns: dict[str, list[Any]] = {"numbers": [[row.get(name) for name in NUMBERS] for row in rows]}
    columns |= {name: [row.get(name) for row in rows] for name in ("others", "results", "side")}
    return pd.DataFrame(columns, dtype=object)
