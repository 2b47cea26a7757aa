"""The service: copies of the outputs that follow their logs, and the snapshots that answer."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from floodmark.lake.folder.paths import Lake
from floodmark.serve.at_savepoints import AtSavepoints
from floodmark.serve.copies import Copy
from floodmark.serve.following import Following, Mirror, Update, pause_of, process
from floodmark.serve.keyed_state import CommittedState, Stateful, stateful
from floodmark.serve.keyed_state import named as named_state
from floodmark.serve.readable import Readable, named, readable
from floodmark.serve.refusals import Gone, NotReady
from floodmark.serve.runs import Key
from floodmark.serve.snapshot import Snapshot
from floodmark.serve.state_files import StateFiles
from floodmark.spec.workspace import Workspace

_AGAIN_SECONDS = 1.0
"""Seconds after which a process that has ended is started again."""
_LISTEN_SECONDS = 0.2
"""Longest wait for an update before the service looks whether it is to stop."""
_CURSOR_SECONDS = 60.0
_STATE_TRIES = 5
"""Reads of a state whose files its stream replaces meanwhile."""
Answer = TypeVar("Answer")
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

    snapshot: Snapshot | CommittedState
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
        say: called with what is out of the ordinary, for people.
        apart: whether copies are made in a process of their own, so that they take no time of this one.
    """

    workspace: Workspace
    lake: Lake
    folder: Path
    only: Iterable[str] = ()
    say: Callable[[str], None] = lambda _: None
    apart: bool = False
    outputs: dict[str, Readable] = field(init=False)
    copies: dict[str, Mirror] = field(init=False)
    states: dict[str, Stateful] = field(init=False)
    _files: StateFiles = field(init=False)
    _at_savepoints: AtSavepoints = field(init=False)
    _committed: dict[str, CommittedState] = field(init=False, default_factory=dict)
    _cursors: OrderedDict[str, Cursor] = field(init=False, default_factory=OrderedDict)
    _stop: threading.Event = field(init=False, default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.outputs, self.states = readable(self.workspace), stateful(self.workspace)
        self._files = StateFiles(self.lake, self.folder / "states", self.workspace.settings.spark_settings(), self.say)
        self._at_savepoints = AtSavepoints(self.lake, self.folder / "savepoints", self._files)
        chosen = [named(self.workspace, self.outputs, name).name for name in self.only] or list(self.outputs)
        self.copies = {name: Mirror(self.outputs[name].followed) for name in chosen}

    # ---- following

    def start(self) -> threading.Thread:
        """Follow the logs in a thread until ``stop``."""
        thread = threading.Thread(target=self._follow, daemon=True, name="serve-follow")
        thread.start()
        return thread

    def stop(self) -> None:
        """End the thread after the commit at work, and what reads Spark's state."""
        self._stop.set()
        self._files.close()

    def _follow(self) -> None:
        followed = [mirror.followed for mirror in self.copies.values()]
        if not self.apart:
            copies = {one.name: Copy(one, self.lake, self.folder / one.name, answers=False) for one in followed}
            Following(copies, pause_of(self.lake), self._take, self._stop.wait).run()
            return
        number = 0
        while not self._stop.is_set():
            with process(self.lake, followed, self.folder / f"{number}") as connection:
                self._listen(connection)
            if not self._stop.wait(_AGAIN_SECONDS):
                number += 1

    def _listen(self, connection: Connection) -> None:
        """Take updates until the other process ends, or the service stops."""
        while not self._stop.is_set():
            try:
                if connection.poll(_LISTEN_SECONDS):
                    self._take(connection.recv())
            except (EOFError, ConnectionResetError):
                if not self._stop.is_set():
                    self.say(
                        "what follows the outputs has ended; it is started again, and answers stay as they are until then"
                    )
                return

    def _take(self, update: Update) -> None:
        mirror = self.copies[update.output]
        before = mirror.failure
        mirror.take(update)
        if update.failure and update.failure != before:
            self.say(f"{update.output}: not followed: {update.failure}")
        elif before and not update.failure:
            self.say(f"{update.output}: followed again")

    # ---- answering

    def output(self, name: str) -> Readable:
        """The output of a name.

        Raises:
            Missing: SERVE-003, there is none.
            Unanswerable: SERVE-004, its results have no key.
        """
        return named(self.workspace, self.outputs, name)

    def snapshot(self, name: str, savepoint: str = "") -> Snapshot:
        """The newest results of an output, or those of a savepoint.

        Raises:
            Missing: SERVE-025, there is no such savepoint.
            Gone: SERVE-026, what the savepoint needs was removed.
            Unanswerable: SERVE-027, the savepoint has no version of the output.
            NotReady: SERVE-011, its log was not copied yet; SERVE-012, it is not among those that are copied.
        """
        if savepoint:
            return self._at_savepoints.snapshot(self.outputs[name], savepoint)
        copy = self.copies.get(name)
        if copy is None:
            fix = f"Start the service with it: floodmark serve {' '.join([*self.copies, name])}"
            raise NotReady(
                f"output '{name}'", "an output that this service copies", "another one", fix, code="SERVE-012"
            )
        if copy.snapshot is None:
            got = copy.failure or "no table yet, or one that is being copied"
            fix = "Ask again in a second; if its stream has not begun, start it."
            raise NotReady(f"output '{name}'", "a copy of its results", got, fix, code="SERVE-011")
        return copy.snapshot

    def checked_at(self, name: str) -> int:
        """When the log of an output was last seen to have no commit behind its snapshot, ms UTC."""
        return self.copies[name].checked_at if name in self.copies else 0

    def stateful(self, name: str) -> Stateful:
        """The operator of a name whose state can be asked.

        Raises:
            Missing: SERVE-020, there is no such operator.
            Unanswerable: SERVE-021, it has no process function with state by key.
        """
        return named_state(self.workspace, self.states, name)

    def state(self, name: str, savepoint: str, answer: Callable[[CommittedState], Answer]) -> Answer:
        """An answer from the state of an operator, as of its last commit or of a savepoint.

        Args:
            name: of the operator.
            savepoint: as of which; empty for the last commit.
            answer: reads the state; called again with a newer one if the stream has replaced its files meanwhile.

        Raises:
            Missing: SERVE-025.
            Gone: SERVE-024, the files of the savepoint were removed.
            NotReady: SERVE-022, the stream has not begun, or replaces its files too fast; SERVE-032, Spark's state is being copied.
            Unanswerable: SERVE-023, the state is Spark's and cannot be read here.
        """
        of = self.states[name]
        if savepoint:
            return answer(self._at_savepoints.state(of, savepoint))
        for _ in range(_STATE_TRIES):
            state = self._committed[name] = self._files.committed(of, self._committed.get(name))
            try:
                return answer(state)
            except FileNotFoundError:
                self._committed.pop(name, None)
        fix = "Ask as of a savepoint: floodmark savepoint create OPERATOR, then as_of=SAVEPOINT."
        got = "files that its stream replaces meanwhile"
        raise NotReady(f"state of '{name}'", "files that stay while they are read", got, fix, code="SERVE-022")

    # ---- pages

    def next_page(self, snapshot: Snapshot | CommittedState, lower: Key, upper: Key) -> str:
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
        if cursor is None or cursor.until < time.monotonic() or cursor.snapshot.asked != output:
            fix = f"Ask for the first page again: pages of one commit are there for {_CURSOR_SECONDS:.0f} seconds, at the process that gave the first."
            expected = "a cursor of an earlier answer about it"
            raise Gone(f"output '{output}', cursor", expected, "one that has ended", fix, code="SERVE-013")
        return cursor
