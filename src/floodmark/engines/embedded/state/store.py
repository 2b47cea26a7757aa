"""The store of a stream: state by key group, made durable with each micro-batch in one new file.

The changes of a micro-batch are one file. Several files of one size are merged into one, so that there are few files, and a value is written
again at most once per size. Values stay on disk; their places are in memory.
"""

from __future__ import annotations

import heapq
import struct
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from operator import ge
from pathlib import Path

import numpy as np

from floodmark.core import crash
from floodmark.core.errors import StateError
from floodmark.engines.embedded.state import files, segment
from floodmark.engines.embedded.state.batch import Batch, file_of
from floodmark.engines.embedded.state.checkpoint import KEPT, Checkpoint
from floodmark.engines.embedded.state.places import Places
from floodmark.engines.embedded.state.segment import INDEX, Key, Segment
from floodmark.spec.graph.stages import first_group
from floodmark.spec.graph.steps import MOST_KEY_GROUPS

_MANY = 8
"""Files of one size that are merged into one."""
_FIRST_SIZE = 1 << 16
_UNIQUE_BITS = 32
"""Random bits in the name of a merged file in a bucket."""
_RECENT_BYTES = 64_000_000
"""Most bytes of recently used values in memory."""
_DEADLINE = struct.Struct("<?q")
"""Whether a group has a deadline, and the deadline; stored before the index of the group."""


@dataclass(slots=True)
class State:
    """The state of a stream as of its last micro-batch, and the changes of the next micro-batch.

    Args:
        checkpoint: of the stream.
        batch: the last micro-batch; None before the first.
    """

    checkpoint: Checkpoint
    batch: Batch | None = field(init=False, default=None)
    _folder: str = field(init=False, default="")
    """Local folder of the files."""
    deadlines: dict[int, int] = field(init=False, default_factory=dict)
    """Key group -> the progress that it waits for."""
    _queue: list[tuple[int, int]] = field(init=False, default_factory=list)
    """A heap of (progress, key group): all of ``deadlines``, and some that have changed since."""
    _places: Places = field(init=False, default_factory=Places)
    _unmarked: int | None = field(init=False, default=None)
    _sizes: dict[str, int] = field(init=False, default_factory=dict)
    _changes: dict[Key, bytes | None] = field(init=False, default_factory=dict)
    _retained: dict[int, tuple[str, ...]] = field(init=False, default_factory=dict)
    _recent: Recent = field(init=False, default_factory=lambda: Recent(_RECENT_BYTES))

    def __post_init__(self) -> None:
        """Read the places of the values of the last micro-batch.

        Raises:
            StateError: STATE-004 a file is missing, STATE-036 a file is damaged.
        """
        self._folder = files.local(self.checkpoint.path)
        planned = self.checkpoint.planned()
        if not planned:
            return
        last = self.checkpoint.batch(planned[-1])
        assert last is not None
        needed = (*last.segments, file_of(last.number))
        try:
            files.fetch(self.checkpoint.path, self._folder, needed)
        except FileNotFoundError as error:
            raise _missing(self.checkpoint.path, str(error).removeprefix(f"{self.checkpoint.path}/")) from None
        for file in needed:
            try:
                self._take(segment.read(self._folder, file))
            except FileNotFoundError:
                raise _missing(self.checkpoint.path, file) from None
        self.batch = last
        for number, recorded in zip(planned, self.checkpoint.batches(planned), strict=True):
            self._retained[number] = () if recorded is None else recorded.segments
        for group in {group for group, number in self._places if number == INDEX}:
            self._wait(group, self._deadline(group))

    def keys(self) -> list[Key]:
        """The keys of the values of the last micro-batch."""
        return list(self._places)

    def get(self, key: Key) -> bytes | None:
        """The value of a key; None if there is none."""
        if key in self._changes:
            return self._changes[key]
        value = self._recent.get(key)
        if value is None and (at := self._places.get(key)) is not None:
            value = segment.value(self._folder, at)
            self._recent.put(key, value)
        return value

    def put(self, key: Key, value: bytes | None) -> None:
        """Set the value of a key; None removes the value."""
        if value is None and key not in self._places:
            self._changes.pop(key, None)
        else:
            self._changes[key] = value

    def write_index(self, group: int, index: bytes | None, deadline: int | None) -> None:
        """Set the index of a group, and its deadline: the progress for which state of the group waits."""
        self.put((group, INDEX), None if index is None else fronted(deadline, index))
        self._wait(group, None if index is None else deadline)

    def index(self, group: int) -> bytes | None:
        """The index of a group."""
        value = self.get((group, INDEX))
        return None if value is None else parted(value)[1]

    def groups(self) -> Iterator[int]:
        """The key groups with state, as of the last micro-batch."""
        return self._places.groups()

    def part(self, groups: Iterable[int], stand_in: int) -> None:
        """Copy the state of one group to those of others that have none."""
        numbers = self._places.numbers(stand_in)
        if INDEX not in numbers:
            return
        for group in groups:
            if INDEX not in self._places.numbers(group):
                for number in numbers:
                    self.put((group, number), self.get((stand_in, number)))

    def due(self, progress: int) -> set[int]:
        """The key groups whose deadline the progress has reached. Groups that wait for more are not looked at."""
        reached = set[tuple[int, int]]()
        while self._queue and self._queue[0][0] <= progress:
            deadline, group = heapq.heappop(self._queue)
            if self.deadlines.get(group) == deadline:
                reached.add((deadline, group))
        for waiting in reached:  # until their deadline has changed
            heapq.heappush(self._queue, waiting)
        return {group for _, group in reached}

    def weight(self, group: int) -> int:
        """Bytes of the values of a group, as of the last micro-batch."""
        return self._places.weights[group]

    def discard(self) -> None:
        """Discard the changes of the current micro-batch."""
        touched = {group for group, number in self._changes if number == INDEX}
        self._changes.clear()
        for group in touched:
            self._wait(group, self._deadline(group))

    def commit(self, batch: Batch) -> Batch:
        """Make a micro-batch and its changes durable. From then on, a restart resumes after this micro-batch."""
        merged, segments = self._merged()
        last = self.batch
        whole = replace(
            batch,
            segments=segments,
            digests=self._digested(segments),
            next_merge=(last.next_merge if last else 0) + merged,
        )
        crash.point("embedded.before_state")
        header = whole.as_json() | self._owner()
        least = segment.STANDING if self._places.stand_ins else segment.FORMAT
        written = segment.write(self._folder, file_of(batch.number), header, self._changes, least)
        files.create(self.checkpoint.path, self._folder, file_of(batch.number))
        crash.point("embedded.after_state")
        self._take(written)
        for key, value in self._changes.items():
            self._recent.put(key, value)
        self._changes.clear()
        self.batch, self._retained[batch.number] = whole, segments
        return whole

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes that the last micro-batch has written, and bytes of all files of its state."""
        if self.batch is None:
            return 0, 0
        own = self._sizes[file_of(self.batch.number)]
        return own, own + sum(self._sizes[file] for file in self.batch.segments)

    def mark(self, number: int) -> None:
        """Mark that every table has the commits of a micro-batch. If a crash loses the mark, the next start commits and marks again.

        In a bucket the next micro-batch is the mark, and ``settle`` marks the last one.
        """
        if self._folder == self.checkpoint.path:
            self.checkpoint.mark(number)
        self._unmarked = number
        self._clean(number)

    def settle(self) -> None:
        """Mark the last micro-batch where ``mark`` has not done so: at the end, and while there is nothing to compute."""
        if self._unmarked is not None and self._folder != self.checkpoint.path:
            self.checkpoint.mark(self._unmarked)
        self._unmarked = None

    def _digested(self, segments: Sequence[str]) -> dict[str, tuple[str, int]]:
        """``Batch.digests``: each file is read once."""
        if self._folder == self.checkpoint.path:
            return {}
        known = {} if self.batch is None else self.batch.digests
        return {file: known.get(file) or files.digest(self._folder, file) for file in segments}

    def _owner(self) -> dict[str, str]:
        """What makes a micro-batch's file in a bucket differ from that of another process."""
        return {} if self._folder == self.checkpoint.path else {"writer": uuid.uuid4().hex}

    def _take(self, written: Segment) -> None:
        self._sizes[written.file] = written.size
        self._places.take(written)

    def _wait(self, group: int, deadline: int | None) -> None:
        """Let a group wait for a progress, or for none."""
        before = self.deadlines.pop(group, None)
        if deadline is not None:
            self.deadlines[group] = deadline
            if deadline != before:
                heapq.heappush(self._queue, (deadline, group))

    def _deadline(self, group: int) -> int | None:
        """The deadline before the index of a group."""
        value = self.get((group, INDEX))
        return None if value is None else parted(value)[0]

    def _merged(self) -> tuple[int, tuple[str, ...]]:
        """Merge the last files if there are many of one size; returns the number of merged files written, and the files of the state."""
        if self.batch is None:
            return 0, ()
        parts_of_state = [*self.batch.segments, file_of(self.batch.number)]
        count = self._many(parts_of_state)
        if not count:
            return 0, tuple(parts_of_state)
        old, tail = parts_of_state[:-count], parts_of_state[-count:]
        name, header = f"merged/{self.batch.next_merge}", {"format": 1, "of": tail}
        if self._folder != self.checkpoint.path:  # another process may be at work
            name = f"merged/{self.batch.next_merge << _UNIQUE_BITS | uuid.uuid4().int >> (128 - _UNIQUE_BITS)}"
        parts = [self._living(file, removed=bool(old)) for file in tail]
        crash.point("embedded.before_merge")
        written = segment.copy(self._folder, name, header, parts)
        files.replace(self.checkpoint.path, self._folder, name)
        crash.point("embedded.after_merge")
        self._take(written)
        return 1, (*old, name)

    def _living(self, file: str, *, removed: bool) -> Segment:
        """The rows of a file that are part of the current state."""
        whole = segment.read(self._folder, file)
        rows = self._places.live(whole, removed=removed)
        return whole.only(np.fromiter(rows, np.bool_, len(whole.directory)))

    def _many(self, files: list[str]) -> int:
        """The number of last files to merge: those of the largest size with ``_MANY`` files, and the smaller files after them; 0 for none."""
        levels, count = [_level(self._sizes[file]) for file in files], 0
        for level in range(max(levels) + 1):
            run = list(takewhile(partial(ge, level), reversed(levels)))
            if run.count(level) >= _MANY:
                count = len(run)
        return count

    def _clean(self, number: int) -> None:
        """Delete the files that no retained micro-batch needs."""
        old = [batch for batch in self._retained if batch < number - KEPT]
        if len(old) < KEPT // 10:
            return
        for batch in old:
            self._retained.pop(batch)
        needed = {file for segments in self._retained.values() for file in segments} | {
            file_of(batch) for batch in self._retained
        }
        for file in self.checkpoint.clean(needed, self._retained):
            self._sizes.pop(file, None)
            Path(self._folder, file).unlink(missing_ok=True)


@dataclass(slots=True)
class Recent:
    """Cache of the values that were used last.

    Args:
        most: bytes of all values in the cache.
    """

    most: int
    _values: OrderedDict[Key, bytes] = field(init=False, default_factory=OrderedDict)
    _size: int = field(init=False, default=0)

    def get(self, key: Key) -> bytes | None:
        """The value of a key; None if the value is not cached."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: bytes | None) -> None:
        """Cache the value of a key; None removes the key."""
        self._size -= len(self._values.pop(key, b""))
        if value is not None:
            self._values[key] = value
            self._size += len(value)
        while self._size > self.most:
            self._size -= len(self._values.popitem(last=False)[1])


@dataclass(slots=True)
class GroupStore:
    """A kernel's store: one key group of the state.

    Args:
        state: of the stream.
        group: key group.
    """

    state: State
    group: int
    _index: bytes | None = field(init=False, default=None)

    def index(self) -> bytes | None:
        """The index of the group."""
        return self.state.index(self.group)

    def put_index(self, index: bytes | None) -> None:
        """Hold an index in memory until ``write_index`` writes it together with the deadline."""
        self._index = index

    def write_index(self, deadline: int | None) -> None:
        """Write the index and the deadline of the group."""
        self.state.write_index(self.group, self._index, deadline)

    def expect(self, numbers: Sequence[int]) -> None:
        """Nothing: a read of a file costs no more by itself."""

    def get(self, number: int) -> bytes:
        """Read a chunk."""
        chunk = self.state.get((self.group, number))
        if chunk is None:
            raise _missing(self.state.checkpoint.path, f"chunk {number} of group {self.group}")
        return chunk

    def put(self, number: int, chunk: bytes) -> None:
        """Write the chunk of a number."""
        self.state.put((self.group, number), chunk)

    def remove(self, number: int) -> None:
        """Remove a chunk."""
        self.state.put((self.group, number), None)


def stand_in(stage: int, groups: int) -> int:
    """The number, below 0, of the group that stands for all key groups of a stage that have had no row of their own.

    All of those have the same state: what broadcast rows have left. It is there once, and a key group gets a copy before its first row.

    Args:
        stage: number of the stage, from 0 on.
        groups: number of its key groups.
    """
    return -(first_group(stage) + groups)


def stood_for(number: int) -> range:
    """The key groups for which a group with a number below 0 stands, where they have no state."""
    stage, last = divmod(-number - 1, MOST_KEY_GROUPS)
    return range(first_group(stage), first_group(stage) + last + 1)


def fronted(deadline: int | None, index: bytes) -> bytes:
    """The deadline and the index of a group as one value."""
    return _DEADLINE.pack(deadline is not None, deadline or 0) + index


def parted(value: bytes) -> tuple[int | None, bytes]:
    """(value of ``fronted``) -> deadline, index."""
    waits, deadline = _DEADLINE.unpack(value[: _DEADLINE.size])
    return deadline if waits else None, value[_DEADLINE.size :]


def _level(size: int) -> int:
    level = 0
    while size > _FIRST_SIZE:
        size, level = size // _MANY, level + 1
    return level


def _missing(path: str, what: str) -> StateError:
    fix = "Put it back, or roll the stream back to a savepoint: floodmark savepoint list OPERATOR, floodmark rollback OPERATOR --to ID."
    return StateError(
        f"checkpoint {path}", "all the files its last micro-batch names", f"one without '{what}'", fix, code="STATE-004"
    )
