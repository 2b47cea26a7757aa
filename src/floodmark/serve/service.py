"""The service: copies of the outputs that follow their logs, and the snapshots that answer."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.core.errors import FloodmarkError, described
from floodmark.lake.folder.paths import Lake
from floodmark.serve.copies import Copy
from floodmark.serve.readable import Readable, named, readable
from floodmark.serve.refusals import Gone, NotReady
from floodmark.serve.runs import Key
from floodmark.serve.snapshot import Snapshot
from floodmark.spec.workspace import Workspace

_LOOK_SECONDS = 0.1
"""Seconds between two looks for commits, of tables on a disk."""
_LOOK_BUCKET_SECONDS = 1.0
"""As above, of tables in a bucket, where a look is some requests."""
_RETRY_SECONDS = 5.0
"""Seconds after which an output whose log could not be read is looked at again."""
_CURSOR_SECONDS = 60.0
_CURSORS = 1_000
"""Most cursors; each holds a snapshot."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page begins.

    Args:
        snapshot: of all pages.
        lower: key of its first row.
        upper: the key behind the last.
        until: moment at which the cursor ends, s of the monotonic clock.
    """

    snapshot: Snapshot
    lower: Key
    upper: Key
    until: float


@dataclass(slots=True)
class Service:
    """What answers.

    Args:
        workspace: whose outputs are asked.
        lake: of their tables.
        folder: for the files of the copies.
        only: names of the outputs that are copied; all that can be asked by default.
        say: told what is out of the ordinary, for people.
    """

    workspace: Workspace
    lake: Lake
    folder: Path
    only: Iterable[str] = ()
    say: Callable[[str], None] = lambda _: None
    outputs: dict[str, Readable] = field(init=False)
    copies: dict[str, Copy] = field(init=False)
    _failed: dict[str, tuple[float, str]] = field(init=False, default_factory=dict)
    """Output -> (when it is looked at again, why its log could not be read)."""
    _cursors: OrderedDict[str, Cursor] = field(init=False, default_factory=OrderedDict)
    _stop: threading.Event = field(init=False, default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.outputs = readable(self.workspace)
        chosen = [named(self.workspace, self.outputs, name).name for name in self.only] or list(self.outputs)
        self.copies = {name: Copy(self.outputs[name], self.lake, self.folder / name) for name in chosen}

    # ---- following

    def start(self) -> threading.Thread:
        """Follow the logs in a thread until ``stop``."""
        thread = threading.Thread(target=self._follow, daemon=True, name="serve-follow")
        thread.start()
        return thread

    def stop(self) -> None:
        """End the thread after the commit at work."""
        self._stop.set()

    def follow(self) -> bool:
        """Copy what is new of each output. Returns True if something was."""
        return sum(self._followed(name, copy) for name, copy in self.copies.items()) > 0

    def _follow(self) -> None:
        pause = _LOOK_SECONDS if self.lake.is_local else _LOOK_BUCKET_SECONDS
        while not self._stop.is_set():
            if not self.follow():
                self._stop.wait(pause)

    def _followed(self, name: str, copy: Copy) -> bool:
        failed = self._failed.get(name)
        if failed is not None and time.monotonic() < failed[0]:
            return False
        try:
            moved = copy.follow()
        except Exception as error:  # noqa: BLE001 - the other outputs are followed, and this one again
            reason = str(error) if isinstance(error, FloodmarkError) else described(error)
            if failed is None or failed[1] != reason:
                self.say(f"{name}: not followed: {reason}")
            self._failed[name] = time.monotonic() + _RETRY_SECONDS, reason
            return False
        if self._failed.pop(name, None) is not None:
            self.say(f"{name}: followed again")
        return moved

    # ---- answering

    def output(self, name: str) -> Readable:
        """The output of a name.

        Raises:
            Missing: SERVE-003, there is none.
            Unanswerable: SERVE-004, its results have no key.
        """
        return named(self.workspace, self.outputs, name)

    def snapshot(self, name: str) -> Snapshot:
        """The newest results of an output.

        Raises:
            NotReady: SERVE-011, its log was not copied yet; SERVE-012, it is not among those that are copied.
        """
        copy = self.copies.get(name)
        if copy is None:
            fix = f"Start the service with it: floodmark serve {' '.join([*self.copies, name])}"
            raise NotReady(
                f"output '{name}'", "an output that this service copies", "another one", fix, code="SERVE-012"
            )
        if copy.snapshot is None:
            failed = self._failed.get(name)
            got = "no table yet, or one that is being copied" if failed is None else failed[1]
            fix = "Ask again in a second; if its stream has not begun, start it."
            raise NotReady(f"output '{name}'", "a copy of its results", got, fix, code="SERVE-011")
        return copy.snapshot

    def checked_at(self, name: str) -> int:
        """When the log of an output was last seen to have no commit behind its snapshot, ms UTC."""
        return self.copies[name].checked_at if name in self.copies else 0

    # ---- pages

    def next_page(self, snapshot: Snapshot, lower: Key, upper: Key) -> str:
        """The name of a cursor, which holds the snapshot for a minute."""
        now = time.monotonic()
        while self._cursors and (len(self._cursors) >= _CURSORS or next(iter(self._cursors.values())).until < now):
            self._cursors.popitem(last=False)
        name = secrets.token_urlsafe(12)
        self._cursors[name] = Cursor(snapshot, lower, upper, now + _CURSOR_SECONDS)
        return name

    def cursor(self, name: str, output: str) -> Cursor:
        """The cursor of a name.

        Raises:
            Gone: SERVE-013, it has ended, or is another service's or output's.
        """
        cursor = self._cursors.get(name)
        if cursor is None or cursor.until < time.monotonic() or cursor.snapshot.as_of.output != output:
            fix = f"Ask for the first page again: pages of one commit are there for {_CURSOR_SECONDS:.0f} seconds, at the process that gave the first."
            expected = "a cursor of an earlier answer about it"
            raise Gone(f"output '{output}', cursor", expected, "one that has ended", fix, code="SERVE-013")
        return cursor
