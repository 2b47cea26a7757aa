"""Answers as of a savepoint: copies of outputs at its versions, and state from its files. The last few that were asked for are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake.exceptions import DeltaError

from floodmark.core.errors import LifecycleError, closest
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.batch_state import is_there
from floodmark.serve.copies import Copy
from floodmark.serve.keyed_state import CommittedState, Stateful
from floodmark.serve.readable import Readable
from floodmark.serve.refusals import Gone, Missing, Unanswerable
from floodmark.serve.snapshot import Snapshot
from floodmark.serve.state_files import StateFiles

_KEPT = 4
"""Copies that are kept."""


@dataclass(slots=True)
class AtSavepoints:
    """What was copied of savepoints. For threads: one makes a copy, the others that ask for the same wait for it.

    Args:
        lake: of the savepoints.
        folder: for the copies.
        files: of states.
    """

    lake: Lake
    folder: Path
    files: StateFiles
    _made: OrderedDict[tuple[str, str], Future[Any]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def snapshot(self, readable: Readable, name: str) -> Snapshot:
        """The results of an output as of a savepoint.

        Raises:
            Missing: SERVE-025, there is no such savepoint of the operator.
            Gone: SERVE-026, what it needs was removed.
            Unanswerable: SERVE-027, the savepoint has no version of the output.
        """
        savepoint = self._savepoint(readable.operator.name, name)
        snapshot: Snapshot = self._cached(readable.name, name, lambda: self._copied(readable, savepoint))
        return snapshot

    def state(self, of: Stateful, name: str) -> CommittedState:
        """The state of a process function in a savepoint.

        Raises:
            Missing: SERVE-025.
            Gone: SERVE-024, its files were removed.
            NotReady: SERVE-032, Spark's state is being copied.
            Unanswerable: SERVE-023, the state is Spark's and cannot be read here.
        """
        savepoint = self._savepoint(of.name, name)
        copied: CommittedState = self._cached(
            f"state of {of.name}", name, lambda: self.files.of_savepoint(of, savepoint)
        )
        return copied

    def _savepoint(self, operator: str, name: str) -> Savepoint:
        try:
            return savepoints.of(self.lake, operator, name)
        except LifecycleError as error:
            names = [one.id for one in savepoints.savepoints(self.lake, operator)]
            fix = f"{closest(name, names)}Savepoints of '{operator}': {', '.join(names[-5:]) or 'none'}."
            raise Missing(
                f"savepoint '{name[:200]}'", f"a savepoint of '{operator}'", "none", fix, code="SERVE-025"
            ) from error

    def _cached(self, of: str, name: str, make: Callable[[], Any]) -> Any:
        key = of, name
        with self._lock:
            made = self._made.get(key)
            if made is not None:
                self._made.move_to_end(key)
            else:
                own = self._made[key] = Future[Any]()
                while len(self._made) > _KEPT:
                    self._made.popitem(last=False)
        if made is not None:
            return made.result()
        try:
            own.set_result(make())
        except BaseException as error:
            with self._lock:
                if self._made.get(key) is own:
                    del self._made[key]
            own.set_exception(error)
            raise
        return own.result()

    def _copied(self, readable: Readable, savepoint: Savepoint) -> Snapshot:
        where = f"output '{readable.name}' at savepoint '{savepoint.id}'"
        saved = next((one for one in savepoint.manifest.outputs if one.table == readable.name), None)
        if saved is None:
            fix = "Take a later savepoint: floodmark savepoint list"
            raise Unanswerable(where, "a version of the output", "none", fix, code="SERVE-027")
        fix = "Take a later savepoint: floodmark savepoint list"
        if not is_there(self.lake, saved):
            got = "another table of that name, made since"
            raise Gone(where, "the table of the savepoint", got, fix, code="SERVE-026")
        try:
            copy = Copy(readable.followed, self.lake, self.folder / uuid4().hex)
            snapshot = copy.at(saved.version)
        except (DeltaError, FileNotFoundError) as error:
            got = "files that were removed"
            raise Gone(where, f"version {saved.version} of the table", got, fix, code="SERVE-026") from error
        as_of = replace(snapshot.as_of, savepoint=savepoint.id, watermark=savepoint.manifest.watermark)
        return replace(
            snapshot, as_of=replace(as_of, version=savepoint.manifest.version, batch=savepoint.manifest.batch)
        )
