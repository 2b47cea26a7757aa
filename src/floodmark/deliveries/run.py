"""The run of a delivery: change by change from an output's log to its sink, until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

from floodmark.core import crash
from floodmark.core.errors import ConnectorError
from floodmark.core.scratch import Scratch
from floodmark.core.time import describe
from floodmark.deliveries import claims
from floodmark.deliveries.follow import Log
from floodmark.deliveries.sink import Altered, Away, Change, Changes, CommitSink, Documents, Sink
from floodmark.lake.folder import locks
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import delivered
from floodmark.lake.stream.delivered import Delivered
from floodmark.spec.assets.delivery import Route

_LOOK_SECONDS, _LATER_SECONDS = 0.01, 0.2
"""Time from a delivery to the next look for commits, which doubles as long as there are none, and the longest one."""
_FIRST_SECONDS, _LONGEST_SECONDS = 0.5, 15.0
"""Shortest and longest time between two tries to reach a sink."""
_ALTERED_TRIES = 3
"""Tries after which a sink that is altered each time is a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One delivery.

    Args:
        position: behind it.
        rows: results that were delivered with a value.
        retractions: results that were taken back.
        seconds: its duration.
        waiting: commits of the output that are not delivered yet.
        whole: all results were delivered anew.
        taken_back: rows of the output were replaced, and the difference was delivered.
    """

    position: Delivered
    rows: int
    retractions: int
    seconds: float
    waiting: int
    whole: bool
    taken_back: bool

    def __str__(self) -> str:
        kind = (
            ", all results" if self.whole else ", the difference to rows that were replaced" if self.taken_back else ""
        )
        return (
            f"delivery {self.position.number}: {self.rows:,} results, {self.retractions:,} taken back{kind}, "
            f"up to version {self.position.version}, {describe(self.position.progress)}, {self.waiting:,} commits to go"
        )


@dataclass(slots=True)
class _Counts:
    """Counts of the changes of a delivery, which are counted as a sink reads them."""

    rows: int = field(default=0, init=False)
    retractions: int = field(default=0, init=False)

    def counted(self, changes: Changes) -> Changes:
        """The same changes."""
        return replace(changes, batches=self._batches(changes.batches), documents=self._documents(changes.documents))

    def _batches(self, batches: Iterator[list[Change]]) -> Iterator[list[Change]]:
        for batch in batches:
            self._add(len(batch), sum(change.row is None for change in batch))
            yield batch

    def _documents(self, batches: Iterator[Documents]) -> Iterator[Documents]:
        for batch in batches:
            self._add(len(batch.keys), batch.values.count(None))
            yield batch

    def _add(self, count: int, gone: int) -> None:
        self.rows, self.retractions = self.rows + count - gone, self.retractions + gone


@dataclass(slots=True)
class _Run:
    route: Route
    lake: Lake
    stop: threading.Event
    on_delivery: Callable[[Delivery], None]
    on_wait: Callable[[str], None]
    sink: Sink | CommitSink
    log: Log
    at: Delivered | None = None
    _told: str = ""
    _noted: Delivered | None = None

    def run(self, *, until_caught_up: bool) -> Delivered | None:
        """Deliver until stopped. Returns the position."""
        altered, pause, is_ready, look = 0, _FIRST_SECONDS, False, _LATER_SECONDS
        while not self.stop.is_set():
            try:
                if not is_ready:
                    self._begin()
                    is_ready = True
                did = self._deliver_next()
                altered, pause = 0, _FIRST_SECONDS
            except Altered as change:
                altered, is_ready = altered + 1, False
                if altered >= _ALTERED_TRIES:
                    raise self._always_altered(change) from change
                self._tell(f"waiting: {change}")
                continue
            except Away as error:
                is_ready = False
                self._tell(f"waiting: {error.where}: expected {error.expected}, got {error.got}")
                if until_caught_up:
                    raise
                self.stop.wait(pause)
                pause = min(pause * 2, _LONGEST_SECONDS)
                continue
            self._tell("")
            if not did:
                if until_caught_up:
                    break
                self.stop.wait(look)
            look = _LOOK_SECONDS if did else min(look * 2, _LATER_SECONDS)
        return self.log.passed(self.at)

    def _always_altered(self, change: Altered) -> ConnectorError:
        fix = f"See what alters it, and restart the delivery: floodmark restart {self.route.name}"
        where = f"delivery '{self.route.name}'"
        return ConnectorError(where, "a sink that stays as it is made", f"{change}", fix, code="DELIVERY-005")

    def _tell(self, text: str) -> None:
        if text != self._told:
            self.on_wait(text)
        self._told = text

    def _reach(self) -> None:
        self.sink.prepare()
        if isinstance(self.sink, Sink):
            self.sink.claim(self.lake.root)

    def _begin(self) -> None:
        self._reach()
        self.at = self._reached()
        if self.at is not None and self.at.lake not in {"", self.lake.root}:
            raise claims.other_lake(self.route.name, self.lake.root, self.at.lake, self._takeover())
        if self.at is not None and self.at.number < 0 and not self.at.table:  # a claim alone
            self.at = None
        if self.at is None and self.route.delivery.from_now:
            self.at = self.log.now()
            self._note(self.at)  # what comes from now on is delivered, also by a process that takes over from this one

    def _takeover(self) -> str:
        """For people: how this lake gets the sink; the file in the lake has the position where the sink does not, and moves with the lake."""
        file = delivered.position_file(self.lake, self.route.name)
        own = f'write "{self.lake.root}" as "lake" into {file}'
        if isinstance(self.sink, Sink) and self.sink.remembers:
            return f"{self.sink.takeover}; and {own}" if self.sink.forgets else self.sink.takeover
        return own

    def _reached(self) -> Delivered | None:
        """The position behind what the sink has."""
        noted = delivered.delivered(self.lake, self.route.name)
        if isinstance(self.sink, CommitSink):
            return noted
        at = self.sink.position() if self.sink.remembers else noted
        is_gone = self.sink.lost or (at is None and self.sink.forgets)
        return replace(noted, table="") if noted is not None and is_gone else at

    def _deliver_next(self) -> bool:
        """Deliver the next changes, if there are any. Returns False if there are none yet."""
        sink = self.sink
        if isinstance(sink, CommitSink):
            return self._ship_next(sink)
        begun = time.monotonic()
        changes = self._changes(sink)
        if changes is None:
            self._note(self.log.passed(self.at))
            return False
        if not sink.remembers:
            delivered.plan(self.lake, self.route.name, changes.position)
        counts = _Counts()
        crash.point("delivery.before_rows")
        try:
            sink.deliver(counts.counted(changes), changes.position.number)
        except FileNotFoundError:  # removed by another program since it was found
            if changes.whole:
                raise
            self._reach()  # gives up what the sink has begun
            self.at = replace(changes.before or Delivered(), table="")
            return True
        crash.point("delivery.before_note")
        self.at = changes.position
        self._note(self.at)
        crash.point("delivery.after_note")
        newest = self.log.newest()
        self.on_delivery(
            Delivery(
                position=self.at,
                rows=counts.rows,
                retractions=counts.retractions,
                seconds=time.monotonic() - begun,
                waiting=max(0, (newest or 0) - self.at.version),
                whole=changes.whole,
                taken_back=changes.taken_back,
            )
        )
        return True

    def _ship_next(self, sink: CommitSink) -> bool:
        """Ship the next commits as they are, if there are any. Returns False if there are none yet."""
        begun, shipped = time.monotonic(), False
        for shipment in sink.ship(self.lake, self.stop):
            at = self.at or Delivered()
            if shipment.first > shipment.version:
                if at.version < shipment.version:  # a delivery was killed before its note
                    self.at = replace(at, table=shipment.table, version=shipment.version, name=self.route.output.table)
                    self._note(self.at)
                continue
            shipped = True
            self.at = replace(
                at,
                table=shipment.table,
                version=shipment.version,
                number=at.number + 1,
                progress=at.progress if shipment.progress is None else shipment.progress,
                at=shipment.at,
                name=self.route.output.table,
                lake=self.lake.root,
            )
            crash.point("delivery.before_note")
            self._note(self.at)
            crash.point("delivery.after_note")
            waiting = max(0, (self.log.newest() or 0) - shipment.version)
            seconds, begun = time.monotonic() - begun, time.monotonic()
            self.on_delivery(
                Delivery(
                    position=self.at,
                    rows=shipment.rows,
                    retractions=0,
                    seconds=seconds,
                    waiting=waiting,
                    whole=shipment.left_out > 0,
                    taken_back=False,
                )
            )
        return shipped

    def _changes(self, sink: Sink) -> Changes | None:
        planned = None if sink.remembers else delivered.planned(self.lake, self.route.name)
        done = -1 if self.at is None else self.at.number
        if planned is not None and planned.number != done + 1:
            planned = None
        try:
            return self.log.next(self.at, planned)
        except FileNotFoundError:
            if self.at is None or not self.at.table:
                raise
            return self.log.next(replace(self.at, table=""))

    def _note(self, position: Delivered | None) -> None:
        """Tell the lake, which decides by it what upkeep may remove, and how far the delivery is."""
        if position is not None and position != self._noted:
            delivered.note(self.lake, self.route.name, position)
            self._noted = position


def deliver(
    route: Route,
    lake: Lake,
    *,
    stop: threading.Event | None = None,
    on_delivery: Callable[[Delivery], None] = lambda _: None,
    on_wait: Callable[[str], None] = lambda _: None,
    until_caught_up: bool = False,
) -> Delivered | None:
    """Deliver the changes of an output, each delivery behind the one before.

    Args:
        route: the delivery.
        lake: of the output.
        stop: set to stop after the delivery at work.
        on_delivery: called after each delivery.
        on_wait: called with what is waited for, for people; with an empty text once the wait is over.
        until_caught_up: end once all commits are delivered; a sink that cannot be reached is then an error.

    Returns:
        The position that is reached; None if there was nothing to deliver.

    Raises:
        ConnectorError: what the sink cannot take, with its code.
        LifecycleError: LIFECYCLE-003, another process is at work on this delivery; LIFECYCLE-240, another one has taken the delivery over;
            LIFECYCLE-241, another lake delivers there.
    """
    if not lake.there:
        fix = "Correct the lake's folder, or mount it; or start the operator first."
        raise ConnectorError(f"lake {lake.root}", "a lake", "none there", fix, code="DELIVERY-002")
    role = locks.stream_role(until_caught_up=until_caught_up)
    with (
        locks.exclusive(lake, "deliveries", route.name, "delivery", role=role),
        Scratch() as scratch,
        closing(route.delivery.sink(route)) as sink,
    ):
        takes = (sink.commit_by_commit, sink.takes_deletes) if isinstance(sink, Sink) else ()
        with closing(Log(route, lake, scratch, *takes)) as log:
            run = _Run(route, lake, stop or threading.Event(), on_delivery, on_wait, sink, log)
            return run.run(until_caught_up=until_caught_up)
