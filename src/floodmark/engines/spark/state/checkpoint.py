"""What a Spark checkpoint says: committed batches, their watermarks, and whose it is."""

from __future__ import annotations

import json
import platform
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as package_version
from typing import Any

from pyarrow.fs import FileSelector, FileType

from floodmark.core import crash
from floodmark.core.time import NEVER
from floodmark.lake.canonical import Marks, Passed
from floodmark.lake.carrier import progress_of
from floodmark.lake.checkpoint import Position, garbage
from floodmark.lake.copies import copy, files_of
from floodmark.lake.storage import file_system, read, write
from floodmark.lake.timeline import Timeline
from floodmark.lifecycle.savepoint import broken

HERE = "floodmark-checkpoint:"
"""In a savepoint, in place of the one absolute path that Spark keeps in a checkpoint."""
_NOTHING = "-"
"""Spark's word for a source that has not given anything yet."""
_AT_FIRST: dict[str, Any] = {"reservoirId": "", "reservoirVersion": 0, "index": -1, "isStartingVersion": False}


_PASSED = "passed.json"
_SCHEMAS = "/_metadata/v2/"
"""In the paths of the descriptions of state, which hold the absolute path."""
_VERSIONED = re.compile(r"(\d+)[_.].*|(\d+)")
_PACKAGES = ("floodmark", "pyspark", "delta-spark")
_PLACE = re.compile(rb'"[^"]*(/state/\d+/_stateSchema/[^"]*)"')


def relocated(content: bytes, place: str) -> bytes:
    """A description of state with the one absolute path Spark keeps in a checkpoint put in another place."""
    return _PLACE.sub(rb'"' + place.replace("\\", r"\\").encode() + rb'\1"', content)


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
    place = {"reservoirVersion": version, "index": position.file, "isStartingVersion": begins}
    return _compact({"sourceVersion": 1, "reservoirId": position.table, **place})


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _readable(lines: list[str]) -> bool:
    """Whether a file of offsets or commits is one: a version, a JSON object, and per source JSON or the word for nothing."""
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
        """Whether a batch was planned."""
        return bool(self.batches("offsets"))

    def batches(self, log: str) -> list[int]:
        """Numbers in ``offsets`` or ``commits``, ascending. Spark keeps about a hundred."""
        files, base = file_system(f"{self.path}/{log}")
        found = files.get_file_info(FileSelector(base, allow_not_found=True))
        return sorted(
            int(f.base_name)
            for f in found
            if f.type == FileType.File and f.base_name.isascii() and f.base_name.isdecimal()
        )

    def last_committed(self) -> int:
        """The last batch that is done; -1 for none."""
        return max(self.batches("commits"), default=-1)

    def restorable(self) -> list[int]:
        """Committed batches that a stream can be started from again, ascending.

        The first one that is kept is none, if there are others: Spark reads the one before a batch too, and where the stream has gone on from
        another timeline it is there for that alone.
        """
        found = self.batches("commits")
        return found[1:] or found

    def progress_before(self, batch: int) -> int:
        """Progress in force in a batch: that of all batches before it. NEVER where it is not kept."""
        lines = self._lines("offsets", batch)
        return NEVER if lines is None else progress_of(int(json.loads(lines[1])["batchWatermarkMs"]))

    def progress_after(self, batch: int) -> int:
        """Progress once a committed batch is taken into account."""
        lines = self._lines("commits", batch)
        return NEVER if lines is None else progress_of(int(json.loads(lines[1])["nextBatchWatermarkMs"]))

    def settled(self, batch: int) -> int:
        """What readers may be told once a committed batch has nothing behind it: timers up to it have fired, or there are none."""
        return self.progress_before(batch) if self._state(batch) else self.progress_after(batch)

    def missing_state(self, batch: int) -> str | None:
        """A file of state that a committed batch says it has and that is not there; None when all are."""
        there = set(files_of(f"{self.path}/state")) if self._state(batch) else set()
        for step, partitions in self._state(batch).items():
            for number, stores in enumerate(partitions):
                for one in stores:
                    name = f"{step}/{number}/{batch + 1}_{one}"
                    if not there & {f"{name}.changelog", f"{name}.zip"}:
                        return f"state/{name}"
        return None

    def stateful(self, batch: int) -> bool:
        """Whether a committed batch has state."""
        return bool(self._state(batch))

    def partitions(self, batch: int) -> int:
        """State partitions of a batch."""
        lines = self._lines("offsets", batch)
        return 0 if lines is None else int(json.loads(lines[1])["conf"]["spark.sql.shuffle.partitions"])

    def _state(self, batch: int) -> dict[str, list[list[str]]]:
        """Step -> state partition -> ids of the state of its stores, as a commit says; nothing without state."""
        lines = self._lines("commits", batch)
        return {} if lines is None else dict(json.loads(lines[1]).get("stateUniqueIds") or {})

    def clock(self, batch: int) -> int:
        """Processing time of a batch, ms; Spark notes it before the batch begins, so a repeated one has the same."""
        lines = self._lines("offsets", batch)
        return NEVER if lines is None else int(json.loads(lines[1])["batchTimestampMs"])

    def positions(self, batch: int) -> list[Position]:
        """Per source of the query, in order, how far it is read at the end of a batch."""
        lines = self._lines("offsets", batch)
        offsets = [json.loads(line) if line != _NOTHING else _AT_FIRST for line in (lines or [])[2:]]
        passed = self.passed() if any(offset["isStartingVersion"] for offset in offsets) else {}
        return [_position(offset, passed) for offset in offsets]

    def passed(self) -> dict[str, Passed]:
        """What rows of a version's files are read already, by the table's id; a query leaves them out."""
        content = read(f"{self.path}/{_PASSED}")
        return {table: Passed(*one) for table, one in json.loads(content or b"{}").items()}

    def place(self, batch: int, source: int, position: Position, passed: Passed | None = None) -> None:
        """Let a source of the query, by its number, go on somewhere else; for a checkpoint no query runs on.

        The micro-batch before is said to have ended there too: Spark plans the last one again at a start.

        Args:
            batch: the last one.
            source: its number.
            position: where it goes on.
            passed: what is read already of the files behind that.
        """
        if passed is not None:  # first: rows up to there are read, whatever the offsets say
            write(f"{self.path}/{_PASSED}", _compact(self.passed() | {position.table: passed}).encode())
            crash.point("shorten.after_passed")
        offset = json.loads(_offset(position))
        for number in (batch - 1, batch):
            lines = self._lines("offsets", number)
            if lines is not None:
                was = lines[2 + source]
                lines[2 + source] = _compact(offset if was == _NOTHING else json.loads(was) | offset)
                write(f"{self.path}/offsets/{number}", "\n".join(lines).encode())
                crash.point("shorten.after_first" if number < batch else "shorten.after_place")

    def read_beside(self, count: int) -> None:
        """Let a stream that another engine has begun read a source beside each of its inputs, from the source's first row on.

        Args:
            count: of the inputs.
        """
        for number in self.batches("offsets")[-2:]:
            lines = self._lines("offsets", number) or []
            if len(lines) == count + 2:
                beside = [line for position in lines[2:] for line in (position, _NOTHING)]
                write(f"{self.path}/offsets/{number}", "\n".join([*lines[:2], *beside]).encode())

    def forget(self, batch: int) -> None:
        """Take back the plan of a micro-batch that is not committed and that no table has rows of; for a checkpoint no query runs on."""
        files, folder = file_system(f"{self.path}/offsets")
        for name in (f".{batch}.crc", f"{batch}"):  # Spark writes no file whose checksum is there already
            if files.get_file_info(f"{folder}/{name}").type != FileType.NotFound:
                files.delete_file(f"{folder}/{name}")
                crash.point("shorten.after_checksum" if name.startswith(".") else "shorten.after_plan")

    def marks(self, batch: int) -> Marks:
        """Of a committed batch that is kept."""
        offsets, commits = (self._lines(log, batch) or [] for log in ("offsets", "commits"))
        said = json.loads(offsets[1])
        after = int(json.loads(commits[1])["nextBatchWatermarkMs"])
        before, clock = int(said["batchWatermarkMs"]), int(said["batchTimestampMs"])
        return Marks(before, after, clock, self.positions(batch), self.passed())

    def begin(self, seed: Checkpoint, batch: int, marks: Marks) -> None:
        """Become what a checkpoint of one micro-batch is, as if that had been another one, of a query with other sources.

        The micro-batch before is said to have ended there too: Spark plans the last one again at a start.

        Args:
            seed: the one; it holds whole snapshots of its state.
            batch: the other one's number.
            marks: of it.
        """
        first = seed.last_committed()
        offsets, commits = (seed._lines(log, first) or [] for log in ("offsets", "commits"))
        said = {"batchWatermarkMs": marks.before, "batchTimestampMs": marks.clock}
        offsets = [offsets[0], _compact(json.loads(offsets[1]) | said), *map(_offset, marks.positions)]
        commits = [commits[0], _compact(json.loads(commits[1]) | {"nextBatchWatermarkMs": marks.after})]
        for log, lines in (("offsets", offsets), ("commits", commits)):
            for number in range(max(batch - 1, 0), batch + 1):
                write(f"{self.path}/{log}/{number}", "\n".join(lines).encode())
        if marks.passed:
            write(f"{self.path}/{_PASSED}", _compact(marks.passed).encode())
        copy(f"{seed.path}/metadata", f"{self.path}/metadata")
        for path in files_of(f"{seed.path}/state"):
            place, name = path.rsplit("/", 1)
            snapshot = re.fullmatch(r"(\d+)(_.*\.zip)", name)
            if _SCHEMAS in path:
                write(f"{self.path}/state/{path}", relocated(read(f"{seed.path}/state/{path}") or b"", HERE))
            elif snapshot is None:
                copy(f"{seed.path}/state/{path}", f"{self.path}/state/{path}")
            elif int(snapshot[1]) == first + 1:  # state of a micro-batch is of the version behind it
                copy(f"{seed.path}/state/{path}", f"{self.path}/state/{place}/{batch + 1}{snapshot[2]}")

    def move(self, batch: int, source: int, version: int, table: str) -> None:
        """Let a source of the query, by its number, go on behind a version of its table; for a checkpoint no query runs on.

        The micro-batch before is said to have ended there too: Spark plans the last one again at a start, and a table whose columns
        were others in between cannot be read across it.

        Args:
            batch: the last one.
            source: its number.
            version: of its table.
            table: id of it.
        """
        self.place(batch, source, Position(version, -1, table))

    def owe(self) -> None:
        """Write down the micro-batch without rows that fires what the last one has made due, where the stream was stopped before it.

        Spark runs such a one only in the process that has run the one before; one that is written down it runs at its start. Without it what
        is due would wait for the next rows. No query runs on the checkpoint.
        """
        last = self.last_committed()
        offsets = self._lines("offsets", last)
        if offsets is None or not self.stateful(last) or max(self.batches("offsets")) > last:
            return
        said, commits = json.loads(offsets[1]), self._lines("commits", last) or []
        after = int(json.loads(commits[1])["nextBatchWatermarkMs"])
        if after > int(said["batchWatermarkMs"]):
            offsets[1] = _compact(said | {"batchWatermarkMs": after})
            write(f"{self.path}/offsets/{last + 1}", "\n".join(offsets).encode())

    def relocate(self) -> None:
        """Make the paths in it those of the place it is in; for a lake that was moved or copied."""
        for path in files_of(f"{self.path}/state"):
            if _SCHEMAS in path:
                content = read(f"{self.path}/state/{path}") or b""
                found = relocated(content, self.path if "://" in self.path else f"file:{self.path}")
                if found != content:
                    write(f"{self.path}/state/{path}", found)

    def check_newest(self) -> None:
        """Make sure that the newest two files of both logs can be read: Spark begins with them.

        Raises:
            StateError: STATE-036, one is not what Spark writes.
        """
        for log in ("offsets", "commits"):
            for batch in self.batches(log)[-2:]:
                self._lines(log, batch)

    def check(self, batch: int) -> None:
        """Make sure that the files of a micro-batch can be read where they are there.

        Raises:
            StateError: STATE-036, one is not what Spark writes.
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

    def copy_to(self, target: str, batch: int) -> None:
        """Copy the checkpoint as of a committed batch into a folder, while its stream may run on.

        State of batch N is there before its commit is, and never written again; so commits are copied first. Files that vanish meanwhile
        are older ones that Spark cleans up.

        Raises:
            StateError: STATE-021, it lacks files.
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

    def restore_from(self, source: str, files: Iterable[str]) -> None:
        """Make the folder, which is empty, what a savepoint holds: ``files`` below ``source``. Its query gets a new id."""
        for path in files:
            if _SCHEMAS in path:
                write(f"{self.path}/{path}", read(f"{source}/{path}") or b"")  # not linked: it is written into
            elif path == "metadata":
                write(f"{self.path}/{path}", json.dumps({"id": str(uuid.uuid4())}).encode())
            else:
                copy(f"{source}/{path}", f"{self.path}/{path}")
        self.relocate()

    def owed(self) -> list[tuple[str, str]]:
        """None: a micro-batch that is not committed is computed again."""
        return []

    def engine(self, batch: int) -> dict[str, str]:
        """What wrote the state of a batch: packages and their versions, Python, state partitions."""
        versions = {package: package_version(package) for package in _PACKAGES}
        return versions | {"python": platform.python_version(), "state partitions": str(self.partitions(batch))}


def checkpoint_of(timeline: Timeline) -> Checkpoint:
    """The checkpoint of a timeline, with all that only Spark's has."""
    return Checkpoint(timeline.checkpoint.path)


def _belongs(path: str, batch: int) -> bool:
    """Whether a file of a checkpoint belongs to it as of a batch."""
    top, *below = path.split("/")
    if top in {"commits", "offsets"}:
        return False  # copied by number
    numbered = _VERSIONED.fullmatch(below[-1]) if below else None
    if numbered is None or "SSTs" in below:
        return True
    number = int(numbered[1] or numbered[2])
    if "_stateSchema" in below or "_metadata" in below:
        return number <= batch
    return number <= batch + 1  # state of a batch is of the version behind it
