"""The files of a state that is asked, on this machine: in their place, fetched from a bucket, or written from what Spark has stored.

State of the embedded engine on a disk is read in its place. Of a bucket, each file of state is fetched once, as it is written once. Spark stores state in
files that only Java reads: the whole state is copied beside the answers, for at most a part of the time.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

from floodmark.compiler.paths import Node
from floodmark.core.errors import StateError, described
from floodmark.engines.embedded.state.batch import file_of
from floodmark.engines.embedded.state.canonical import write_readable
from floodmark.engines.embedded.state.checkpoint import NAME, Checkpoint
from floodmark.lake.folder import bucket
from floodmark.lake.folder.copies import files_of
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.checkpoint import checkpoint_at, engine_of
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lifecycle.plan import Deployed
from floodmark.serve.following import pause_of
from floodmark.serve.keyed_state import CommittedState, Stateful
from floodmark.serve.refusals import Gone, NotReady, Unanswerable
from floodmark.serve.spark_reader import Cause, SparkReader, UnreadableError

_TRIES = 5
"""Reads of a state whose files the stream replaces meanwhile."""
_WAIT_SECONDS = 5.0
"""Seconds for which a question waits for a copy of Spark's state."""
_UNASKED = 4
"""Finished copies that are held for the question that was told to come again."""
_FAILED_SECONDS = 60.0
"""Seconds for which a failure is held for the question that was told to come again; a later one orders a new copy."""
_SHARE = 5
"""A copy of Spark's state is made again after so many times what the last one took."""


@dataclass(frozen=True, slots=True)
class _Copied:
    """The last copy of a state of Spark's, and how long it took, s."""

    state: CommittedState
    took: float


@dataclass(slots=True)
class _Pending:
    """A copy of Spark's state that is being made, and when it was ordered and has failed, s of the monotonic clock."""

    copy: Future[CommittedState]
    since: float
    failed: float | None = None

    @property
    def is_stale(self) -> bool:
        """Whether it failed so long ago that it is tried again."""
        return self.failed is not None and time.monotonic() - self.failed > _FAILED_SECONDS


@dataclass(slots=True)
class StateFiles:
    """The states of a lake's streams and savepoints. For threads.

    Args:
        lake: of the streams.
        folder: for copies.
        settings: of Spark, for what reads its state.
        say: called with what is out of the ordinary, for people.
    """

    lake: Lake
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = lambda _: None
    _reader: SparkReader = field(init=False)
    _copied: dict[str, _Copied] = field(init=False, default_factory=dict)
    _tried: dict[str, float] = field(init=False, default_factory=dict)
    """Operator -> end of the last copy of its state, s of the monotonic clock."""
    _looked: dict[str, float] = field(init=False, default_factory=dict)
    """Operator -> last look at a bucket, as above."""
    _pending: dict[str, _Pending] = field(init=False, default_factory=dict)
    _threads: ThreadPoolExecutor = field(init=False, default_factory=lambda: ThreadPoolExecutor(1, "serve-copy"))
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._reader = SparkReader(self.settings)

    def committed(self, of: Stateful, known: CommittedState | None) -> CommittedState:
        """The state of a stream as of its last commit; what is known of an earlier look, if there was no commit since.

        Raises:
            NotReady: SERVE-022, the stream has not begun, or replaces its files too fast; SERVE-032, Spark's state is being copied.
            Unanswerable: SERVE-023, the state is Spark's and cannot be read here.
        """
        if known is not None and not self.lake.is_local:
            if time.monotonic() - self._looked.get(of.name, 0.0) < pause_of(self.lake):
                return known
            self._looked[of.name] = time.monotonic()
        for _ in range(_TRIES):
            timeline = Timeline.current(self.lake, of.name)
            origin, deployed = timeline.folder(CHECKPOINT), timeline.identity.deployed()
            batch = timeline.checkpoint.last_committed() if deployed is not None else -1
            if deployed is None or batch < 0:
                break
            if known is not None and (known.origin, known.batch) == (origin, batch):
                return known
            try:
                if engine_of(origin) != NAME:
                    return self._of_spark(of, timeline, deployed, batch)
                at = _written_at(f"{origin}/{file_of(batch)}")
                root = self._fetched(origin, batch, known)
                return _state(of, root, batch, deployed.version, at, origin)
            except FileNotFoundError:
                continue
        fix = f"Start it, then ask again: floodmark start {of.name}"
        raise NotReady(f"state of '{of.name}'", "a committed micro-batch", "none yet", fix, code="SERVE-022")

    def of_savepoint(self, of: Stateful, savepoint: Savepoint) -> CommittedState:
        """The state in a savepoint.

        Raises:
            Gone: SERVE-024, its files were removed.
            NotReady: SERVE-032.
            Unanswerable: SERVE-023.
        """
        manifest, origin = savepoint.manifest, f"{savepoint.path}/{CHECKPOINT}"
        try:
            if engine_of(origin) != NAME:
                return self._awaited(of, f"{of.name} {savepoint.id}", lambda: self._restored(of, savepoint))
            at = _written_at(f"{origin}/{file_of(manifest.batch)}")
            root = self._saved(savepoint) if bucket.is_bucket(origin) else origin
            return _state(of, root, manifest.batch, manifest.version, at, origin, savepoint.id)
        except FileNotFoundError:
            fix = "Take another: floodmark savepoint list"
            raise Gone(f"savepoint '{savepoint.id}'", "its files", "a part of them", fix, code="SERVE-024") from None

    def close(self) -> None:
        """End what reads Spark's state."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._reader.close()

    # ---- a bucket

    def _fetched(self, origin: str, batch: int, known: CommittedState | None) -> str:
        """The folder with the files of a micro-batch: the checkpoint's own, or a new one for those of a bucket.

        Raises:
            FileNotFoundError: the stream has replaced a file meanwhile.
        """
        if not bucket.is_bucket(origin):
            return origin
        recorded = Checkpoint(origin).batch(batch)
        if recorded is None:
            raise FileNotFoundError(f"{origin}/{file_of(batch)}")
        before = known.root if known is not None and known.origin == origin else ""
        wanted = [*recorded.segments, file_of(batch)]
        with self._filled() as root:
            bucket.fetch((f"{origin}/{name}", root / name) for name in wanted if not _linked(before, str(root), name))
        return str(root)

    def _saved(self, savepoint: Savepoint) -> str:
        """A folder with the files of a savepoint in a bucket."""
        own = f"{CHECKPOINT}/"
        held = [path for path in savepoint.manifest.files if path.startswith(own)]
        with self._filled() as root:
            bucket.fetch((savepoint.located(path), root / path.removeprefix(own)) for path in held)
        return str(root)

    # ---- Spark

    def _restored(self, of: Stateful, savepoint: Savepoint) -> CommittedState:
        draft, manifest, origin = self._new_folder(), savepoint.manifest, f"{savepoint.path}/{CHECKPOINT}"
        at = _written_at(f"{origin}/commits/{manifest.batch}")
        try:
            savepoints.restore(savepoint, f"{draft}/restored")
            root = self._converted(of, f"{draft}/restored/{CHECKPOINT}", manifest.batch, manifest.graph)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return _state(of, root, manifest.batch, manifest.version, at, origin, savepoint.id)

    def _of_spark(self, of: Stateful, timeline: Timeline, deployed: Deployed, batch: int) -> CommittedState:
        """The last copy of Spark's state; the first is waited for, as is one of another timeline, and newer ones are made beside."""
        origin = timeline.folder(CHECKPOINT)
        last, make = self._copied.get(of.name), partial(self._copy, of, origin, deployed, batch)
        ended = partial(self._ended, of, origin)
        if last is None or last.state.origin != origin:
            return self._awaited(of, origin, make, ended)
        if last.state.batch != batch and time.monotonic() - self._tried[of.name] > _SHARE * last.took:
            self._ordered(origin, make, ended)
        return last.state

    def _ended(self, of: Stateful, origin: str, copy: Future[CommittedState]) -> None:
        """Forget a copy that has ended, as what it made is the last one now; answers of an earlier one tell why it failed, or else the next question."""
        last = self._copied.get(of.name)
        failure = None if copy.cancelled() else copy.exception()
        if failure is not None and (last is None or last.state.origin != origin):
            return
        self._forget(origin, copy)
        if failure is not None and last is not None:
            if not last.state.failure:
                self.say(f"state of '{of.name}': not copied anew: {described(failure)}")
            last.state.failure = described(failure)

    def _awaited(
        self,
        of: Stateful,
        name: str,
        make: Callable[[], CommittedState],
        ended: Callable[[Future[CommittedState]], None] | None = None,
    ) -> CommittedState:
        """A copy, if it is made within some seconds of the first question; otherwise a later one gets it.

        Args:
            of: the operator.
            name: of what is copied.
            make: makes it.
            ended: called once it is made, or has failed.

        Raises:
            NotReady: SERVE-032, it takes longer, or the service ends.
        """
        where, expected = f"state of '{of.name}'", "a copy of Spark's state"
        pending = self._ordered(name, make, ended)
        try:
            pending.copy.exception(max(0.0, pending.since + _WAIT_SECONDS - time.monotonic()))
        except CancelledError:
            fix = "Ask again once the service has been started again."
            raise NotReady(where, expected, "a service that ends", fix, code="SERVE-032") from None
        except TimeoutError:
            fix = "Ask again in some seconds: it is copied meanwhile."
            raise NotReady(where, expected, "one that is being made", fix, code="SERVE-032") from None
        self._forget(name, pending.copy)
        return pending.copy.result()

    def _ordered(
        self,
        name: str,
        make: Callable[[], CommittedState],
        ended: Callable[[Future[CommittedState]], None] | None = None,
    ) -> _Pending:
        """The copy of a name: one that is being made, one that was made and not asked for since, or a new one, which may end with a call.

        A service that ends makes none: the copy is a cancelled one.
        """
        with self._lock:
            pending = self._pending.get(name)
            if pending is not None and not pending.is_stale:
                return pending
            done = [other for other, one in self._pending.items() if one.copy.done()]
            for other in done[: max(0, len(done) - _UNASKED)]:
                del self._pending[other]
            try:
                copy = self._threads.submit(make)
            except RuntimeError:
                copy = Future()
                copy.cancel()
                return _Pending(copy, time.monotonic())
            pending = self._pending[name] = _Pending(copy, time.monotonic())
        copy.add_done_callback(partial(self._noted, name))
        if ended is not None:
            copy.add_done_callback(ended)
        return pending

    def _noted(self, name: str, copy: Future[CommittedState]) -> None:
        """Note when a copy has failed. Like each call at its end it takes the copy, as one that held it would be a cycle with it."""
        failed = not copy.cancelled() and copy.exception() is not None
        with self._lock:
            pending = self._pending.get(name)
            if failed and pending is not None and pending.copy is copy:
                pending.failed = time.monotonic()

    def _forget(self, name: str, copy: Future[CommittedState]) -> None:
        with self._lock:
            pending = self._pending.get(name)
            if pending is not None and pending.copy is copy:
                del self._pending[name]

    def _copy(self, of: Stateful, origin: str, deployed: Deployed, batch: int) -> CommittedState:
        draft = self._new_folder()
        try:
            self._started(of)
            began = time.monotonic()
            checkpoint_at(origin).copy_to(f"{draft}/copied", batch)
            at = _written_at(f"{origin}/commits/{batch}")
            checkpoint_at(f"{draft}/{CHECKPOINT}", engine_of(origin)).restore_from(
                f"{draft}/copied", [*files_of(f"{draft}/copied")]
            )
            root = self._converted(of, f"{draft}/{CHECKPOINT}", batch, deployed.graph)
        except StateError as error:
            raise FileNotFoundError(str(error)) from error  # Spark has cleaned up meanwhile
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            self._tried[of.name] = time.monotonic()
        state = _state(of, root, batch, deployed.version, at, origin)
        self._copied[of.name] = _Copied(state, time.monotonic() - began)
        return state

    def _started(self, of: Stateful) -> None:
        """Start Spark, which is not counted as time of a copy.

        Raises:
            Unanswerable: SERVE-023.
        """
        try:
            self._reader.start()
        except UnreadableError as error:
            raise _unreadable(of, error) from error

    def _converted(self, of: Stateful, checkpoint: str, batch: int, graph: Node) -> str:
        """A folder with the state of a checkpoint of Spark's, as the embedded engine writes it.

        Raises:
            Unanswerable: SERVE-023.
        """
        draft = self._new_folder()
        rows = str(draft / "rows")
        try:
            marks = self._reader.read(checkpoint, batch, graph, rows)
            with self._filled() as root:
                write_readable(rows if Path(rows).is_dir() else None, str(root), batch, marks)
        except UnreadableError as error:
            raise _unreadable(of, error) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return str(root)

    # ---- folders

    def _new_folder(self) -> Path:
        folder = self.folder / uuid4().hex
        folder.mkdir(parents=True)
        return folder

    @contextmanager
    def _filled(self) -> Iterator[Path]:
        """A new folder, which is removed if it cannot be filled."""
        folder = self._new_folder()
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _state(
    of: Stateful, root: str, batch: int, version: str, at: int, origin: str, savepoint: str = ""
) -> CommittedState:
    """The state in a folder, which goes with it if it is a copy, as it does if it cannot be read."""
    try:
        state = CommittedState(of, root, batch, version, at, origin, savepoint)
    except BaseException:
        if root != origin:
            shutil.rmtree(root, ignore_errors=True)
        raise
    if root != origin:
        weakref.finalize(state, shutil.rmtree, root, ignore_errors=True)
    return state


_ADVICE: Mapping[Cause, str] = MappingProxyType(
    {
        "setup": "Install Java and floodmark[spark] where the service runs.",
        "memory": 'Let Spark have more memory where the service runs, in resources/settings.py: Settings(spark=(("spark.driver.memory", "4g"),)).',
        "state": "Ask as of a savepoint, with as_of=SAVEPOINT: floodmark savepoint list. If the stream cannot start from its checkpoint either, roll it back to one.",
    }
)


def _unreadable(of: Stateful, error: UnreadableError) -> Unanswerable:
    fix = (
        f"{_ADVICE[error.cause]} Results by key need no Java; nor does state of the embedded engine, to which the stream can go over: "
        f"floodmark run {of.name} --unbounded --engine embedded"
    )
    expected = "state of the embedded engine, or Spark's that Spark can read here"
    return Unanswerable(f"state of '{of.name}'", expected, error.why, fix, code="SERVE-023")


def _linked(folder: str, target: str, name: str) -> bool:
    """Link a file of an earlier copy; False if that has none."""
    if not folder:
        return False
    Path(target, name).parent.mkdir(exist_ok=True)
    try:
        os.link(Path(folder, name), Path(target, name))
    except FileNotFoundError:
        return False
    return True


def _written_at(location: str) -> int:
    """When a file was written, ms UTC.

    Raises:
        FileNotFoundError: it is not there.
    """
    if not bucket.is_bucket(location):
        return Path(location).stat().st_mtime_ns // 1_000_000
    stat = bucket.stat(location)
    if stat is None:
        raise FileNotFoundError(location)
    return stat.modified
