"""The checkpoint of a stream on the embedded engine, as used by timelines and savepoints.

``batches/N`` is micro-batch N: positions, progress, clock, the commits owed to tables, and the state that the micro-batch has changed.
``commits/N`` marks that these commits are in every table. A micro-batch names the older files that hold the rest of its state. Each file is
written once, so that a copy consists of links, and another process may read the files while the stream runs.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Final

from floodmark.core.time import NEVER
from floodmark.engines.embedded.state import files, segment
from floodmark.engines.embedded.state.batch import Batch, file_of, rewritten
from floodmark.lake.folder import bucket
from floodmark.lake.folder.copies import copy, files_of
from floodmark.lake.folder.storage import exists, open_hashed, remove, write
from floodmark.lake.folder.storage import files as file_names
from floodmark.lake.stream.checkpoint import ENGINE, Position
from floodmark.lifecycle.savepoint import PLAIN, STANDING, File, broken

NAME: Final = "embedded"
KEPT = 100
"""Micro-batches that are retained, from which a stream can resume."""
_PACKAGES = ("floodmark", "pysail", "deltalake", "pyarrow")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one stream.

    Args:
        path: folder, on a local disk or in a bucket.
    """

    path: str

    def begun(self) -> bool:
        """Whether a micro-batch was computed."""
        return bool(self.planned())

    def planned(self) -> list[int]:
        """Retained micro-batches that are computed, ascending."""
        planned = _numbers(f"{self.path}/batches")
        if bucket.is_bucket(self.path):  # a listing may be behind
            following = (planned[-1] if planned else -1) + 1
            while exists(f"{self.path}/{file_of(following)}"):
                planned.append(following)
                following += 1
        return planned

    def committed(self) -> list[int]:
        """Retained micro-batches whose commits every table has, ascending."""
        marked = _numbers(f"{self.path}/commits")
        if bucket.is_bucket(self.path):  # a micro-batch begins once the one before is committed
            return sorted({*marked, *self.planned()[:-1]})
        return marked

    def last_committed(self) -> int:
        """The last committed micro-batch; -1 for none."""
        return max(self.committed(), default=-1)

    def restorable(self) -> list[int]:
        """Committed micro-batches from which a stream can resume, ascending."""
        return sorted({*self.committed()} & {*self.planned()[-KEPT - 1 :]})

    def check(self, batch: int) -> None:
        """Make sure that the file of a micro-batch, if it exists, can be read.

        Raises:
            StateError: STATE-036, the file is damaged.
        """
        if exists(f"{self.path}/{file_of(batch)}"):
            with files.working(self.path, [file_of(batch)]) as folder:
                segment.read(folder, file_of(batch))

    def check_newest(self) -> None:
        """Make sure that the newest micro-batch, with which a start begins, can be read.

        Raises:
            StateError: STATE-036, the file is damaged.
        """
        for batch in self.planned()[-1:]:
            self.check(batch)

    def batch(self, number: int) -> Batch | None:
        """The record of a micro-batch; None if the micro-batch is not retained."""
        opened = self._opened(number)
        return None if opened is None else Batch.from_json(opened.header)

    def batches(self, numbers: Sequence[int]) -> list[Batch | None]:
        """``batch`` of several micro-batches; in a bucket several are asked for at a time."""
        return bucket.together(self.batch, numbers) if bucket.is_bucket(self.path) else list(map(self.batch, numbers))

    def final_progress(self, batch: int) -> int:
        """Progress, ms, that is safe to publish when ``batch`` is the last micro-batch."""
        recorded = self.batch(batch)
        return NEVER if recorded is None else recorded.progress

    def clock(self, batch: int) -> int:
        """Processing time of a micro-batch, ms UTC."""
        recorded = self.batch(batch)
        return NEVER if recorded is None else recorded.clock

    def positions(self, batch: int) -> list[Position]:
        """The position in each input at the end of a micro-batch, in the order of the inputs."""
        recorded = self.batch(batch)
        return [] if recorded is None else list(recorded.positions)

    def skipped(self, batch: int) -> Collection[str]:
        """Names of inputs of which the stream leaves out rows with a ``_sequence`` up to a known one."""
        recorded = self.batch(batch)
        return () if recorded is None else recorded.behind.keys()

    def move(self, batch: int, source: int, version: int, table: str) -> None:
        """Set the version, of the table with this id, after which an input resumes. No stream may run on the checkpoint."""
        rewritten(self.path, batch, {source: Position(version, -1, table)})

    def copy_to(self, target: str, batch: int) -> Mapping[str, File]:
        """Copy the checkpoint as of a committed micro-batch into a folder; its stream may run meanwhile.

        In a bucket, the files of state before the micro-batch's own are left to be shared.

        Raises:
            StateError: STATE-021, the checkpoint lacks files.
        """
        recorded = self.batch(batch)
        if recorded is None:
            raise broken(f"checkpoint {self.path}", f"one without micro-batch {batch}")
        shares = bucket.is_bucket(self.path)
        if shares:
            copied: tuple[str, ...] = (file_of(batch), ENGINE)
        else:
            copied = (*recorded.segments, file_of(batch), f"commits/{batch}", ENGINE)
        for file in copied:
            try:
                copy(f"{self.path}/{file}", f"{target}/{file}")
            except FileNotFoundError as error:
                raise broken(f"checkpoint {self.path}", f"one without '{file}'") from error
        for file in files_of(self.path):
            if "/" not in file and file != ENGINE:
                copy(f"{self.path}/{file}", f"{target}/{file}")
        if not shares:
            return {}
        Checkpoint(target).mark(batch)
        return {file: self._file(file, recorded.digests.get(file)) for file in recorded.segments}

    def _file(self, name: str, known: tuple[str, int] | None) -> File:
        """Digest and size of a file of state; read only if no micro-batch has recorded them.

        Raises:
            StateError: STATE-021, the file does not exist.
        """
        if known is not None:
            return File(sha256=known[0], size=known[1])
        try:
            size, digest = open_hashed(f"{self.path}/{name}").finish()
        except FileNotFoundError as error:
            raise broken(f"checkpoint {self.path}", f"one without '{name}'") from error
        return File(sha256=digest, size=size)

    def restore_from(self, source: str, files: Iterable[str]) -> None:
        """Fill the empty folder of this checkpoint from a savepoint: ``files`` below ``source``."""
        for path in files:
            copy(f"{source}/{path}", f"{self.path}/{path}")

    def owed(self) -> list[tuple[str, str]]:
        """Folders of written files that a start will commit: (table, folder within the table's folder)."""
        last = self.last_committed()
        planned = [self.batch(number) for number in self.planned() if number > last]
        return [(one.table, one.folder) for batch in planned if batch is not None for one in batch.owed if one.folder]

    def engine(self, batch: int) -> dict[str, str]:  # noqa: ARG002 - the same for all micro-batches
        """The software that wrote the state of a micro-batch: versions of packages and of Python."""
        versions = {package: package_version(package) for package in _PACKAGES}
        return {"engine": NAME, **versions, "python": platform.python_version()}

    def manifest_format(self, batch: int) -> int:
        """The format of a manifest of this state: the state is read by the releases that read the manifest."""
        opened = self._opened(batch)
        return STANDING if opened is not None and opened.format == segment.STANDING else PLAIN

    def begin(self) -> None:
        """Create the folders of the checkpoint and the note that this engine owns it; a repeated call changes nothing."""
        for folder in ("batches", "commits", "merged") if not bucket.is_bucket(self.path) else ():
            Path(self.path, folder).mkdir(parents=True, exist_ok=True)
        if not exists(f"{self.path}/{ENGINE}"):
            write(f"{self.path}/{ENGINE}", json.dumps({"engine": NAME}).encode())

    def mark(self, batch: int) -> None:
        """Mark that every table has the commits of a micro-batch."""
        if bucket.is_bucket(self.path):
            write(f"{self.path}/commits/{batch}", b"")
        else:
            Path(self.path, "commits", str(batch)).touch()

    def clean(self, needed: Collection[str], retained: Collection[int]) -> list[str]:
        """Delete the files that no retained micro-batch needs; returns their names, without those of marks.

        Args:
            needed: files of state, relative to the checkpoint.
            retained: numbers of the retained micro-batches.
        """
        names = [f"{folder}/{name}" for folder in ("batches", "merged") for name in file_names(f"{self.path}/{folder}")]
        gone = [name for name in names if name not in needed]
        marks = [name for name in file_names(f"{self.path}/commits") if int(name) not in retained]
        for name in (*gone, *(f"commits/{mark}" for mark in marks)):
            remove(f"{self.path}/{name}")
        return gone

    def _opened(self, number: int) -> segment.Segment | None:
        """The file of a micro-batch without its directory; None if the micro-batch is not retained."""
        try:
            if bucket.is_bucket(self.path) and number >= 0:
                return segment.header(self.path, file_of(number))
            return segment.read(self.path, file_of(number), header_only=True) if number >= 0 else None
        except FileNotFoundError:
            return None


def _numbers(folder: str) -> list[int]:
    names = file_names(folder)
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())
