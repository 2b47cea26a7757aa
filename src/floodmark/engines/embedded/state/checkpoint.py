"""The checkpoint of a stream of the embedded engine, as timelines and savepoints see it.

``batches/N`` is micro-batch N: positions, progress, clock, the files that are owed to tables, and the state it has changed; ``commits/N`` says
that every table has what it is owed. A micro-batch names the files behind it that its state lies in. All of them are written once, so that a
copy is made of links, and another process may read them while the stream runs.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Final

from floodmark.core.time import NEVER
from floodmark.engines.embedded.state import segment
from floodmark.engines.embedded.state.batch import Batch, file_of, rewritten
from floodmark.lake.checkpoint import ENGINE, Position
from floodmark.lake.copies import copy, files_of
from floodmark.lake.storage import write
from floodmark.lifecycle.savepoint import broken

NAME: Final = "embedded"
KEPT = 100
"""Micro-batches a stream can be started from again."""
_PACKAGES = ("floodmark", "pysail", "deltalake", "pyarrow")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one stream.

    Args:
        path: folder, on a local disk.
    """

    path: str

    def begun(self) -> bool:
        """Whether a micro-batch was computed."""
        return bool(self.planned())

    def planned(self) -> list[int]:
        """Micro-batches that are computed, ascending, of those that are kept."""
        return _numbers(Path(self.path, "batches"))

    def committed(self) -> list[int]:
        """Micro-batches that every table has, ascending, of those that are kept."""
        return _numbers(Path(self.path, "commits"))

    def last_committed(self) -> int:
        """The last micro-batch that is done; -1 for none."""
        return max(self.committed(), default=-1)

    def restorable(self) -> list[int]:
        """Committed micro-batches that a stream can be started from again, ascending."""
        return sorted({*self.committed()} & {*self.planned()[-KEPT - 1 :]})

    def check(self, batch: int) -> None:
        """Make sure that the file of a micro-batch can be read where it is there.

        Raises:
            StateError: STATE-036, it is not what this engine writes.
        """
        if Path(self.path, file_of(batch)).exists():
            segment.read(self.path, file_of(batch))

    def check_newest(self) -> None:
        """Make sure that the newest file can be read: a start begins with it.

        Raises:
            StateError: STATE-036, it is not what this engine writes.
        """
        for batch in self.planned()[-1:]:
            self.check(batch)

    def batch(self, number: int) -> Batch | None:
        """What a micro-batch says of itself; None where it is not kept."""
        try:
            opened = segment.read(self.path, file_of(number), header_only=True) if number >= 0 else None
        except FileNotFoundError:
            return None
        return None if opened is None else Batch.from_json(opened.header)

    def settled(self, batch: int) -> int:
        """Progress, ms, that readers may be told once a committed micro-batch has nothing behind it."""
        recorded = self.batch(batch)
        return NEVER if recorded is None else recorded.progress

    def clock(self, batch: int) -> int:
        """Processing time of a micro-batch, ms UTC."""
        recorded = self.batch(batch)
        return NEVER if recorded is None else recorded.clock

    def positions(self, batch: int) -> list[Position]:
        """How far each input is read at the end of a micro-batch, in the order of the inputs."""
        recorded = self.batch(batch)
        return [] if recorded is None else list(recorded.positions)

    def move(self, batch: int, source: int, version: int, table: str) -> None:
        """Let an input, by its number, go on behind a version of the table with this id; for a checkpoint no stream runs on."""
        rewritten(self.path, batch, {source: Position(version, -1, table)})

    def copy_to(self, target: str, batch: int) -> None:
        """Copy the checkpoint as of a committed micro-batch into a folder, while its stream may run on.

        Raises:
            StateError: STATE-021, it lacks files.
        """
        recorded = self.batch(batch)
        if recorded is None:
            raise broken(f"checkpoint {self.path}", f"one without micro-batch {batch}")
        for file in (*recorded.segments, file_of(batch), f"commits/{batch}", ENGINE):
            try:
                copy(f"{self.path}/{file}", f"{target}/{file}")
            except FileNotFoundError as error:
                raise broken(f"checkpoint {self.path}", f"one without '{file}'") from error
        for file in files_of(self.path):
            if "/" not in file and file != ENGINE:
                copy(f"{self.path}/{file}", f"{target}/{file}")

    def restore_from(self, source: str, files: Iterable[str]) -> None:
        """Make the folder, which is empty, what a savepoint holds: ``files`` below ``source``."""
        for path in files:
            copy(f"{source}/{path}", f"{self.path}/{path}")

    def owed(self) -> list[tuple[str, str]]:
        """Folders of files that are written and that a start commits: (table, folder in that of the table)."""
        last = self.last_committed()
        planned = [self.batch(number) for number in self.planned() if number > last]
        return [(one.table, one.folder) for batch in planned if batch is not None for one in batch.owed if one.folder]

    def engine(self, batch: int) -> dict[str, str]:  # noqa: ARG002 - of all micro-batches the same
        """What wrote the state of a micro-batch: packages and their versions, Python."""
        versions = {package: package_version(package) for package in _PACKAGES}
        return {"engine": NAME, **versions, "python": platform.python_version()}

    def begin(self) -> None:
        """Make the folder that of this engine; it may be already."""
        for folder in ("batches", "commits", "merged"):
            Path(self.path, folder).mkdir(parents=True, exist_ok=True)
        if not Path(self.path, ENGINE).exists():
            write(f"{self.path}/{ENGINE}", json.dumps({"engine": NAME}).encode())


def _numbers(folder: Path) -> list[int]:
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())
