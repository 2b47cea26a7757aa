"""Holding on Spark: a micro-batch is computed once all of its rows were judged; Spark plans it anew with fewer files if only the first of them were."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import takewhile

from deltalake import DeltaTable

from floodmark.core.time import Interval
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.lake.folder.copies import remove
from floodmark.lake.results.verdicts import Hold, Waiting, times_in, times_of
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.stream.timeline import Timeline, positions_at
from floodmark.lake.table import entries
from floodmark.lake.table.sequences import files_of
from floodmark.spec.graph.operator import Input, Operator

_LOOK_SECONDS = 1.0


class Held(Exception):  # noqa: N818 - no error: the micro-batch is planned anew, or the run ends
    """A planned micro-batch is not computed, as some of its rows wait for a verdict."""


@dataclass(slots=True)
class Holding:
    """What a run waits for before it computes a micro-batch.

    Args:
        operator: of the stream.
        timeline: of the stream.
        waiting: told of each wait.
        waits: False for a run that ends once it has caught up.
    """

    operator: Operator
    timeline: Timeline
    waiting: Waiting
    waits: bool
    files: dict[str, int] = field(default_factory=dict)
    """Input -> most files of a micro-batch, if a planned one is planned anew with fewer; empty for no limit."""
    held: bool = False
    """True if the last query ended because a micro-batch was not computed."""
    lifts: bool = False
    """True if a micro-batch with fewer files was committed: the next query has no limit."""
    _anew: bool = False
    _holds: dict[str, Hold] = field(init=False)

    def __post_init__(self) -> None:
        """Find the inputs with strict checks."""
        self._holds = Hold.of(self.operator, self.timeline.lake)

    def admit(self, number: int, stop: threading.Event) -> None:
        """Wait until all rows of a micro-batch were judged.

        Raises:
            Held: the run is to end, or to plan the micro-batch anew.
        """
        while self._holds:
            unread = self._unread(number)
            admitted = {name: self._admitted(name, times) for name, times in unread.items()}
            self.waiting.tell(self._holds[name].waits_for for name in unread)
            if all(admitted[name] == len(times) for name, times in unread.items()):
                return
            if all(admitted[name] or not times for name, times in unread.items()):
                self.files = {name: admitted[name] for name, times in unread.items() if admitted[name] < len(times)}
                self.held = self._anew = True
                raise Held
            if not self.waits or stop.wait(_LOOK_SECONDS):
                self.held = True
                raise Held

    def committed(self) -> None:
        """Note that a micro-batch was committed."""
        self.lifts = self.waits and bool(self.files)

    def again(self) -> bool:
        """True if the query, which has ended, is to be started again. Forgets the micro-batch that is to be planned anew."""
        anew, lifted = self._anew, self.lifts
        self.held = self._anew = self.lifts = False
        if anew:
            checkpoint = checkpoint_of(self.timeline)
            planned = max(checkpoint.batches("offsets"), default=-1)
            if planned == 0:
                remove(f"{checkpoint.path}/state")  # Spark wants none before the first micro-batch is planned
            if planned > self.timeline.checkpoint.last_committed():
                checkpoint.forget(planned)
        elif lifted:
            self.files = {}
        return anew or lifted

    def _admitted(self, name: str, times: list[Interval | None]) -> int:
        """Number of files, from the first on, that may be read."""
        return sum(1 for _ in takewhile(self._holds[name].admits, times))

    def _unread(self, number: int) -> dict[str, list[Interval | None]]:
        """Input with strict checks -> event time of the files of a micro-batch, in the order in which Spark reads them."""
        before = positions_at(self.timeline, number - 1) if number else {}
        after = positions_at(self.timeline, number)
        inputs = {one.name: one for one in self.operator.inputs}
        return {
            name: self._times(inputs[name], hold, before.get(name), after[name])
            for name, hold in self._holds.items()
            if name in after
        }

    def _times(self, input_: Input, hold: Hold, before: Position | None, after: Position) -> list[Interval | None]:
        if after.snapshot is not None or (before is None and after.version < 0):
            return self._of_snapshot(input_, hold, before, after)
        first = before.version if before is not None and before.table else -1
        if before is not None and before.snapshot is not None:
            times, first, done = self._of_snapshot(input_, hold, before, None), before.snapshot, -1
        else:
            times, done = [], before.file if before is not None and before.table else -1
        for version in range(first + 1, after.version + 2):
            entry = entries.entry(hold.path, version)
            if entry is None:
                continue
            added = [times_in(add, hold.audit.partitions) for add in entries.added(entry)]
            until = len(added) if version <= after.version else after.file + 1
            times += added[done + 1 : until]
            done = -1
        return times

    @staticmethod
    def _of_snapshot(
        input_: Input, hold: Hold, before: Position | None, after: Position | None
    ) -> list[Interval | None]:
        """Of the files of the version from which a table is read file by file."""
        snapshot = after.snapshot if after is not None else before.snapshot if before is not None else None
        if snapshot is None:
            return []
        files = files_of(hold.path, snapshot, input_) or []
        times = times_of(DeltaTable(hold.path, version=snapshot), hold.audit.partitions)
        first = before.file + 1 if before is not None and before.snapshot == snapshot else 0
        last = after.file + 1 if after is not None else len(files)
        return [times[file.path] for file in files[first:last]]
