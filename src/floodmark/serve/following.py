"""Following in a process of its own: what copies commits takes no time of the process that answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from floodmark.core.errors import FloodmarkError, described
from floodmark.lake.folder.paths import Lake
from floodmark.serve.copies import Copy
from floodmark.serve.readable import Followed
from floodmark.serve.runs import Run
from floodmark.serve.snapshot import AsOf, Snapshot

_LOOK_SECONDS = 0.1
"""Seconds between two looks for commits, of tables on a disk."""
_LOOK_BUCKET_SECONDS = 1.0
"""As above, of tables in a bucket, where a look is some requests."""
_RETRY_SECONDS = 5.0
"""Seconds after which an output whose log could not be read is looked at again."""
_TELL_SECONDS = 0.25
"""Seconds between two messages that an output has no new commit."""
_BEHIND = 5
"""How much later than others the process gets its turns: it takes what answering leaves."""


@dataclass(frozen=True, slots=True)
class Update:
    """What the process tells of an output.

    Args:
        output: name of the output.
        checked_at: when its log was last seen to have no commit behind the snapshot, ms UTC.
        as_of: moment of the snapshot; None for the one of before.
        files: of the runs of the snapshot, newest first.
        failure: why its log could not be read; empty if it could.
    """

    output: str
    checked_at: int
    as_of: AsOf | None = None
    files: tuple[str, ...] = ()
    failure: str = ""


@dataclass(slots=True)
class Following:
    """Copies of outputs, looked at in turn.

    Args:
        copies: output -> its copy.
        pause: seconds between two looks.
        update: told what is new.
        until: asked whether to end.
    """

    copies: Mapping[str, Copy]
    pause: float
    update: Callable[[Update], None]
    until: Callable[[float], bool]
    _failed: dict[str, float] = field(init=False, default_factory=dict)
    """Output -> when it is looked at again, s of the monotonic clock."""
    _noted: dict[str, float] = field(init=False, default_factory=dict)

    def run(self) -> None:
        """Follow until the end."""
        while not self.until(0):
            if sum(self._followed(name, copy) for name, copy in self.copies.items()) == 0 and self.until(self.pause):
                return

    def _followed(self, name: str, copy: Copy) -> bool:
        now = time.monotonic()
        if now < self._failed.get(name, 0):
            return False
        before = copy.snapshot
        try:
            moved = copy.follow()
        except Exception as error:  # noqa: BLE001 - the other outputs are followed, and this one again
            self._failed[name] = now + _RETRY_SECONDS
            self.update(Update(name, copy.checked_at, failure=_reason(error)))
            return False
        if copy.snapshot is not before and copy.snapshot is not None:
            files = tuple(str(run.file) for run in copy.snapshot.runs)
            self.update(Update(name, copy.checked_at, copy.snapshot.as_of, files))
        elif now - self._noted.get(name, 0) > _TELL_SECONDS or self._failed.pop(name, None) is not None:
            self._noted[name] = now
            self.update(Update(name, copy.checked_at))
        return moved


def pause_of(lake: Lake) -> float:
    """Seconds between two looks at the tables of a lake."""
    return _LOOK_SECONDS if lake.is_local else _LOOK_BUCKET_SECONDS


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, FloodmarkError) else described(error)


@dataclass(slots=True)
class Mirror:
    """What answers about an output whose copy is made in another process.

    Args:
        followed: the output.
    """

    followed: Followed
    snapshot: Snapshot | None = None
    checked_at: int = 0
    failure: str = ""

    def take(self, update: Update) -> None:
        """Open what is new, and answer with it from then on."""
        if update.as_of is not None:
            known = {} if self.snapshot is None else {str(run.file): run for run in self.snapshot.runs}
            runs = tuple(known.get(file) or Run(Path(file), self.followed.key_names) for file in update.files)
            self.snapshot = Snapshot(update.as_of, runs, self.followed.output.schema.names)
        self.checked_at, self.failure = update.checked_at, update.failure


@contextmanager
def process(lake: Lake, followed: Sequence[Followed], folder: Path) -> Iterator[Connection]:
    """A process that follows outputs while the context lasts, and the connection on which it tells updates.

    Args:
        lake: of the outputs.
        followed: the outputs.
        folder: for the files of the copies; a new one.
    """
    context = get_context("spawn")
    ours, its = context.Pipe(duplex=True)
    child = context.Process(target=_main, args=(its, lake, tuple(followed), str(folder)), daemon=True)
    child.start()
    its.close()
    try:
        yield ours
    finally:
        ours.close()
        child.terminate()
        child.join()


def _main(connection: Connection, lake: Lake, followed: Sequence[Followed], folder: str) -> None:
    """Follow until the other process has gone."""
    os.nice(_BEHIND)
    copies = {one.name: Copy(one, lake, Path(folder, one.name), answers=False) for one in followed}
    try:
        Following(copies, pause_of(lake), connection.send, connection.poll).run()
    except (BrokenPipeError, ConnectionResetError):  # the process that answers was killed
        return
