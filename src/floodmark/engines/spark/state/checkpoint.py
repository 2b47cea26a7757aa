"""A Spark checkpoint: its committed micro-batches, their watermarks and positions, and edits of it while no query runs."""

from __future__ import annotations

import json
import platform
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as package_version
from typing import Any

from pyarrow.fs import FileSelector, FileType

from floodmark.core import crash
from floodmark.core.time import NEVER
from floodmark.lake.folder.checksums import drop, write
from floodmark.lake.folder.copies import copy, files_of
from floodmark.lake.folder.storage import file_system, read, remove
from floodmark.lake.restore.canonical import BatchMetadata, Passed
from floodmark.lake.stream import plans
from floodmark.lake.stream.carrier import progress_of
from floodmark.lake.stream.checkpoint import Position, garbage
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.savepoint import PLAIN, File, broken

HERE = "floodmark-checkpoint:"
"""Replaces, in a savepoint, the one absolute path that Spark keeps in a checkpoint."""
_NOTHING = "-"
"""Spark's offset of a source of which nothing is read yet."""
_AT_FIRST: dict[str, Any] = {"reservoirId": "", "reservoirVersion": 0, "index": -1, "isStartingVersion": False}
_PASSED = "passed.json"
_SCHEMAS = "/_metadata/v2/"
"""Part of the paths of state schemas, the files that hold the absolute path."""
_VERSIONED = re.compile(r"(\d+)[_.].*|(\d+)")
_PACKAGES = ("floodmark", "pyspark", "delta-spark")
_PLACE = re.compile(rb'"[^"]*(/state/\d+/_stateSchema/[^"]*)"')


def relocated(content: bytes, folder: str) -> bytes:
    """The content of a state schema with the absolute path of the checkpoint, which Spark keeps in it, replaced by another folder."""
    return _PLACE.sub(rb'"' + folder.replace("\\", r"\\").encode() + rb'\1"', content)


def _position(offset: Mapping[str, Any], passed: Mapping[str, Passed]) -> Position:
    version, file, table = int(offset["reservoirVersion"]), int(offset["index"]), str(offset["reservoirId"])
    if offset["isStartingVersion"]:
        return Position(passed[table].version if table in passed else -1, max(file, -1), table, version)
    return Position(version - 1, max(file, -1), table)


def _offset(position: Position) -> str:
    if not position.table:
        return _NOTHING
    begins = position.snapshot is not None
    version = position.snapshot if begins else position.version + 1
    offset = {"reservoirVersion": version, "index": position.file, "isStartingVersion": begins}
    return _compact({"sourceVersion": 1, "reservoirId": position.table, **offset})


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _readable(lines: list[str]) -> bool:
    """Whether lines are a file of offsets or commits: a version, a JSON object, and per source JSON or ``_NOTHING``."""
    if len(lines) < 2 or not re.fullmatch(r"v\d+", lines[0]):  # noqa: PLR2004 - see above
        return False
    try:
        return isinstance(json.loads(lines[1]), dict) and all(
            line == _NOTHING or isinstance(json.loads(line), dict) for line in lines[2:]
        )
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one unbounded run.

    Args:
        path: folder or URI.
    """

    path: str

    def begun(self) -> bool:
        """Whether a micro-batch was planned."""
        return bool(self.batches("offsets"))

    def batches(self, log: str) -> list[int]:
        """Numbers of micro-batches in ``offsets`` or ``commits``, ascending. Spark retains about a hundred."""
        files, base = file_system(f"{self.path}/{log}")
        entries = files.get_file_info(FileSelector(base, allow_not_found=True))
        return sorted(
            int(f.base_name)
            for f in entries
            if f.type == FileType.File and f.base_name.isascii() and f.base_name.isdecimal()
        )

    def last_committed(self) -> int:
        """The last committed micro-batch; -1 for none."""
        return max(self.batches("commits"), default=-1)

    def restorable(self) -> list[int]:
        """Committed micro-batches from which a stream can resume, ascending.

        The first retained micro-batch is left out if there are others: to resume, Spark reads the micro-batch before too. On a timeline that
        continues another one, the first is there for this purpose only.
        """
        committed = self.batches("commits")
        return committed[1:] or committed

    def progress_before(self, batch: int) -> int:
        """Progress at the beginning of a micro-batch: that of all micro-batches before. NEVER if the micro-batch is not retained."""
        lines = self._lines("offsets", batch)
        return NEVER if lines is None else progress_of(int(json.loads(lines[1])["batchWatermarkMs"]))

    def progress_after(self, batch: int) -> int:
        """Progress after a committed micro-batch. NEVER if the micro-batch is not retained."""
        lines = self._lines("commits", batch)
        return NEVER if lines is None else progress_of(int(json.loads(lines[1])["nextBatchWatermarkMs"]))

    def final_progress(self, batch: int) -> int:
        """Progress that is safe to publish when ``batch`` is the last micro-batch: all timers up to it have fired, or there are none."""
        return self.progress_before(batch) if self._state(batch) else self.progress_after(batch)

    def missing_state(self, batch: int) -> str | None:
        """A state file of a committed micro-batch that is missing, without its ending; None if all files exist."""
        there = set(files_of(f"{self.path}/state")) if self._state(batch) else set()
        for step, partitions in self._state(batch).items():
            for number, stores in enumerate(partitions):
                for store_id in stores:
                    name = f"{step}/{number}/{batch + 1}_{store_id}"
                    if not there & {f"{name}.changelog", f"{name}.zip"}:
                        return f"state/{name}"
        return None

    def stateful(self, batch: int) -> bool:
        """Whether a committed micro-batch has state."""
        return bool(self._state(batch))

    def partitions(self, batch: int) -> int:
        """Number of state partitions of a micro-batch."""
        lines = self._lines("offsets", batch)
        return 0 if lines is None else int(json.loads(lines[1])["conf"]["spark.sql.shuffle.partitions"])

    def _state(self, batch: int) -> dict[str, list[list[str]]]:
        """Step -> state partition -> ids of the state of its stores, from a commit; empty without state."""
        lines = self._lines("commits", batch)
        return {} if lines is None else dict(json.loads(lines[1]).get("stateUniqueIds") or {})

    def clock(self, batch: int) -> int:
        """Processing time of a micro-batch, ms. Spark records it before the micro-batch begins, so a repeated micro-batch has the same."""
        lines = self._lines("offsets", batch)
        return NEVER if lines is None else int(json.loads(lines[1])["batchTimestampMs"])

    def positions(self, batch: int) -> list[Position]:
        """The position of each source of the query, in order, at the end of a micro-batch."""
        lines = self._lines("offsets", batch)
        offsets = [json.loads(line) if line != _NOTHING else _AT_FIRST for line in (lines or [])[2:]]
        passed = self.passed() if any(offset["isStartingVersion"] for offset in offsets) else {}
        return [_position(offset, passed) for offset in offsets]

    def passed(self) -> dict[str, Passed]:
        """Table id -> rows of a version's files that are read already; a query leaves these rows out."""
        content = read(f"{self.path}/{_PASSED}")
        return {table: Passed(*fields) for table, fields in json.loads(content or b"{}").items()}

    def skipped(self, batch: int) -> Collection[str]:
        """Ids of tables of which the stream leaves out rows with a ``_sequence`` up to a known one."""
        return self.passed().keys() if batch >= 0 else ()

    def set_position(self, batch: int, source: int, position: Position, passed: Passed | None = None) -> None:
        """Set the position from which a source of the query resumes. No query may run on the checkpoint.

        The micro-batch before the last gets the same position, as Spark plans the last micro-batch again at a start.

        Args:
            batch: the last micro-batch.
            source: number of the source.
            position: the new position.
            passed: rows behind the position that are read already.
        """
        if passed is not None:  # first, as these rows are read under the old offsets as well
            write(f"{self.path}/{_PASSED}", _compact(self.passed() | {position.table: passed}).encode())
            crash.point("shorten.after_passed")
        offset = json.loads(_offset(position))
        for number in (batch - 1, batch):
            lines = self._lines("offsets", number)
            if lines is not None:
                was = lines[2 + source]
                lines[2 + source] = _compact(offset if was == _NOTHING else json.loads(was) | offset)
                plans.change(self.path, number, "\n".join(lines))
                crash.point("shorten.after_first" if number < batch else "shorten.after_place")

    def read_beside(self, count: int) -> None:
        """Add a source for the markers of starts beside each input, unread, to the offsets of a stream that another engine has begun.

        Args:
            count: number of inputs.
        """
        for number in self.batches("offsets")[-2:]:
            lines = self._lines("offsets", number) or []
            if len(lines) == count + 2:
                beside = [line for position in lines[2:] for line in (position, _NOTHING)]
                plans.change(self.path, number, "\n".join([*lines[:2], *beside]))

    def forget(self, batch: int) -> None:
        """Delete the plan of a micro-batch that is not committed and has no rows in any table. No query may run on the checkpoint."""
        if drop(f"{self.path}/offsets/{batch}"):  # first: Spark writes no file whose checksum exists
            crash.point("shorten.after_checksum")
        remove(f"{self.path}/offsets/{batch}")
        crash.point("shorten.after_plan")

    def marks(self, batch: int) -> BatchMetadata:
        """The marks of a committed micro-batch that is retained."""
        offsets, commits = (self._lines(log, batch) or [] for log in ("offsets", "commits"))
        metadata = json.loads(offsets[1])
        after = int(json.loads(commits[1])["nextBatchWatermarkMs"])
        before, clock = int(metadata["batchWatermarkMs"]), int(metadata["batchTimestampMs"])
        return BatchMetadata(before, after, clock, self.positions(batch), self.passed())

    def begin(self, seed: Checkpoint, batch: int, marks: BatchMetadata) -> None:
        """Write this checkpoint from a seed of one micro-batch, under another number and with other watermarks and positions.

        The micro-batch before gets the same positions, as Spark plans the last micro-batch again at a start.

        Args:
            seed: checkpoint of one micro-batch, with whole snapshots of its state.
            batch: number of the micro-batch in this checkpoint.
            marks: watermarks and positions of the micro-batch in this checkpoint.
        """
        first = seed.last_committed()
        offsets, commits = (seed._lines(log, first) or [] for log in ("offsets", "commits"))
        metadata = {"batchWatermarkMs": marks.before, "batchTimestampMs": marks.clock}
        offsets = [offsets[0], _compact(json.loads(offsets[1]) | metadata), *map(_offset, marks.positions)]
        commits = [commits[0], _compact(json.loads(commits[1]) | {"nextBatchWatermarkMs": marks.after})]
        for log, lines in (("offsets", offsets), ("commits", commits)):
            for number in range(max(batch - 1, 0), batch + 1):
                write(f"{self.path}/{log}/{number}", "\n".join(lines).encode())
        if marks.passed:
            write(f"{self.path}/{_PASSED}", _compact(marks.passed).encode())
        copy(f"{seed.path}/metadata", f"{self.path}/metadata")
        for path in files_of(f"{seed.path}/state"):
            folder, name = path.rsplit("/", 1)
            snapshot = re.fullmatch(r"(\d+)(_.*\.zip)", name)
            if _SCHEMAS in path:
                write(f"{self.path}/state/{path}", relocated(read(f"{seed.path}/state/{path}") or b"", HERE))
            elif snapshot is None:
                copy(f"{seed.path}/state/{path}", f"{self.path}/state/{path}")
            elif int(snapshot[1]) == first + 1:  # the state of micro-batch N has version N + 1
                copy(f"{seed.path}/state/{path}", f"{self.path}/state/{folder}/{batch + 1}{snapshot[2]}")

    def move(self, batch: int, source: int, version: int, table: str) -> None:
        """Set the table version after which a source of the query resumes. No query may run on the checkpoint.

        The micro-batch before the last gets the same position (``set_position``): Spark cannot read a table across a change of its columns.

        Args:
            batch: the last micro-batch.
            source: number of the source.
            version: of its table.
            table: id of the table.
        """
        self.set_position(batch, source, Position(version, -1, table))

    def plan_timer_batch(self) -> None:
        """Plan one micro-batch without rows if the last micro-batch has made timers due. No query may run on the checkpoint.

        Spark adds such a micro-batch only in the process that has run the last one, but runs a planned micro-batch at any start. Without the
        plan, due timers would wait for the next rows.
        """
        last = self.last_committed()
        offsets = self._lines("offsets", last)
        if offsets is None or not self.stateful(last) or max(self.batches("offsets")) > last:
            return
        metadata, commits = json.loads(offsets[1]), self._lines("commits", last) or []
        after = int(json.loads(commits[1])["nextBatchWatermarkMs"])
        if after > int(metadata["batchWatermarkMs"]):
            offsets[1] = _compact(metadata | {"batchWatermarkMs": after})
            write(f"{self.path}/offsets/{last + 1}", "\n".join(offsets).encode())

    def relocate(self) -> None:
        """Write the checkpoint's own path into its state schemas, for a lake that was moved or copied."""
        for path in files_of(f"{self.path}/state"):
            if _SCHEMAS in path:
                content = read(f"{self.path}/state/{path}") or b""
                moved = relocated(content, self.path if "://" in self.path else f"file:{self.path}")
                if moved != content:
                    write(f"{self.path}/state/{path}", moved)

    def check_newest(self) -> None:
        """Make sure that the newest two files of both logs can be read, which Spark reads at a start.

        Raises:
            StateError: STATE-036, a file is damaged.
        """
        for log in ("offsets", "commits"):
            for batch in self.batches(log)[-2:]:
                self._lines(log, batch)

    def check(self, batch: int) -> None:
        """Make sure that the existing log files of a micro-batch can be read.

        Raises:
            StateError: STATE-036, a file is damaged.
        """
        for log in ("offsets", "commits"):
            self._lines(log, batch)

    def _lines(self, log: str, batch: int) -> list[str] | None:
        content = read(f"{self.path}/{log}/{batch}") if batch >= 0 else None
        if content is None:
            return None
        lines = content.decode("utf-8", "replace").splitlines()
        if not _readable(lines):
            raise garbage(self.path, f"{log}/{batch}", content)
        return lines

    def copy_to(self, target: str, batch: int) -> Mapping[str, File]:
        """Copy the checkpoint as of a committed micro-batch into a folder; its stream may run meanwhile.

        The state of a micro-batch is written before its commit and never again, so commits are copied first. Files that vanish meanwhile
        are older files that Spark cleans up.

        Raises:
            StateError: STATE-021, the checkpoint lacks files.
        """
        for path in (f"{log}/{n}" for log in ("commits", "offsets") for n in (batch - 1, batch) if n >= 0):
            try:
                copy(f"{self.path}/{path}", f"{target}/{path}")
            except FileNotFoundError as error:
                raise broken(f"checkpoint {self.path}", f"one without '{path}'") from error
        for path in files_of(self.path):
            if not _belongs(path, batch):
                continue
            try:
                if _SCHEMAS in path:
                    write(f"{target}/{path}", relocated(read(f"{self.path}/{path}") or b"", HERE))
                else:
                    copy(f"{self.path}/{path}", f"{target}/{path}")
            except FileNotFoundError:
                continue
        missing = Checkpoint(target).missing_state(batch)
        if missing:
            raise broken(f"checkpoint {self.path}", f"one without the state '{missing}' of micro-batch {batch}")
        return {}

    def restore_from(self, source: str, files: Iterable[str]) -> None:
        """Fill the empty folder of this checkpoint from a savepoint: ``files`` below ``source``. Its query gets a new id."""
        for path in files:
            if _SCHEMAS in path:
                write(
                    f"{self.path}/{path}", read(f"{source}/{path}") or b""
                )  # not linked, as ``relocate`` writes to the file
            elif path == "metadata":
                write(f"{self.path}/{path}", json.dumps({"id": str(uuid.uuid4())}).encode())
            else:
                copy(f"{source}/{path}", f"{self.path}/{path}")
        self.relocate()

    def owed(self) -> list[tuple[str, str]]:
        """Commits that tables lack: none, as Spark computes a micro-batch that is not committed again."""
        return []

    def engine(self, batch: int) -> dict[str, str]:
        """The software that wrote the state of a micro-batch: versions of packages and of Python, number of state partitions."""
        versions = {package: package_version(package) for package in _PACKAGES}
        return versions | {"python": platform.python_version(), "state partitions": str(self.partitions(batch))}

    def manifest_format(self, batch: int) -> int:  # noqa: ARG002 - the same for all micro-batches
        """The format of the manifest of a savepoint of this state."""
        return PLAIN


def checkpoint_of(timeline: Timeline) -> Checkpoint:
    """The checkpoint of a timeline as a checkpoint of Spark's."""
    return Checkpoint(timeline.checkpoint.path)


def _belongs(path: str, batch: int) -> bool:
    """Whether a file of a checkpoint belongs to the checkpoint as of a micro-batch."""
    top, *below = path.split("/")
    if top in {"commits", "offsets", plans.PLANS}:
        return False  # copied by number, or of this timeline alone
    numbered = _VERSIONED.fullmatch(below[-1]) if below else None
    if numbered is None or "SSTs" in below:
        return True
    number = int(numbered[1] or numbered[2])
    if "_stateSchema" in below or "_metadata" in below:
        return number <= batch
    return number <= batch + 1  # the state of micro-batch N has version N + 1
