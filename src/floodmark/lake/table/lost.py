"""Lost data files: files named by a table's commits that are missing or truncated, the rows lost with them, and the remedy. No JVM.

Only upkeep, and runs that failed on a missing file, check all files of a table. Status checks the files of the newest commits, and those that the last
upkeep found missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import FileType

from floodmark.core.errors import ExecutionError
from floodmark.core.time import describe
from floodmark.lake.folder.paths import Lake, is_local
from floodmark.lake.folder.storage import file_system, read, write
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import Landing
from floodmark.spec.graph.operator import Input, Operator

NEWEST = 50
"""Newest commits whose files status checks."""
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFile:
    """A missing or truncated file, with the facts about its rows in the table's log, each None if unknown.

    Args:
        path: full path of the file.
        rows: number of its rows, including markers.
        sequences: (first, last) ``_sequence``.
        times: (first, last) event time, ms.
        units: names of the units from which its rows landed; empty for outputs.
        truncated: how much of a truncated file remains, in words; empty for a missing file.
    """

    path: str
    rows: int | None
    sequences: tuple[int, int] | None
    times: tuple[int, int] | None
    units: tuple[str, ...] = ()
    truncated: str = ""

    def describe(self) -> str:
        """A description for people."""
        parts = [
            self.path + self.truncated,
            "an unknown number of rows" if self.rows is None else f"{self.rows:,} rows",
        ]
        if self.sequences:
            parts.append(f"_sequence {self.sequences[0]} to {self.sequences[1]}")
        if self.times:
            parts.append(f"event time {describe(self.times[0])} to {describe(self.times[1])}")
        if self.units:
            parts.append(f"landed from {_shortened(self.units)}")
        return ", ".join(parts)


def lost_files(table: str) -> list[LostFile]:
    """The data files of a table's newest version that are missing or differ in size from the log. Checks all files."""
    actions = pa.table(DeltaTable(table).get_add_actions(flatten=True)).to_pylist()
    gone = [action for action in actions if _size(table, action["path"]) != action["size_bytes"]]
    landings = [landing for _, landing in history.standing_of(table, Landing, limit=None)] if gone else []
    files = []
    for action in gone:
        sequences = _range(action, "_sequence")
        times = _range(action, "_event_time")
        files.append(
            LostFile(
                path=f"{table}/{action['path']}",
                rows=action.get("num_records"),
                sequences=sequences,
                times=times and (_ms(times[0]), _ms(times[1])),
                units=_units(landings, sequences),
                truncated=_describe_truncation(_size(table, action["path"]), action["size_bytes"]),
            )
        )
    return sorted(files, key=lambda file: (file.sequences or (0, 0), file.path))


def known_lost(table: str) -> list[LostFile]:
    """The lost files of a table, with a cheap check first.

    Checks the files that the newest ``NEWEST`` commits added, and those that the last upkeep found missing. Only if one of these is missing
    all files are checked; otherwise the result is empty.
    """
    newest = entries.newest(table)
    if newest is None:
        return lost_files(table)
    commits = list(islice(entries.backwards(table, newest), NEWEST))
    gone = [name for name in _named(commits, "add") if not _is_there(table, name)]
    removed = set(_named(commits, "remove")) if gone else set()
    missed = [name for name in json.loads(read(_missing_file(table)) or b"[]") if not _is_there(table, name)]
    return lost_files(table) if missed or not removed.issuperset(gone) else []


def note_lost(table: str) -> None:
    """Check all files of a table's newest version, and store the names of lost ones for ``known_lost``."""
    names = [file.path.removeprefix(f"{table}/") for file in lost_files(table)]
    content = json.dumps(names).encode()
    if (read(_missing_file(table)) or b"[]") != content:
        write(_missing_file(table), content)


def _named(commits: Iterable[entries.Entry], action: Literal["add", "remove"]) -> Iterator[str]:
    """Paths of the files that commits added or removed."""
    mark = f'"{action}"'.encode()
    for entry in commits:
        for line in entry.content.splitlines():
            if mark in line and (file := json.loads(line).get(action)) is not None:
                yield file["path"]


def _missing_file(table: str) -> str:
    return entries.beside(table, "lost.json")


def _is_there(table: str, path: str) -> bool:
    return _size(table, path) is not None


def _size(table: str, path: str) -> int | None:
    """Size of a file, bytes; None if the file is missing."""
    if is_local(table):
        candidates = [Path(table, name) for name in dict.fromkeys((path, unquote(path)))]
        return next((file.stat().st_size for file in candidates if file.is_file()), None)
    files, file_path = file_system(f"{table}/{path}")
    info = files.get_file_info(file_path)
    return None if info.type == FileType.NotFound else info.size


def _describe_truncation(size: int | None, whole: int) -> str:
    return "" if size is None else f" (damaged: {size:,} of {whole:,} bytes)"


def _range(action: dict[str, Any], column: str) -> tuple[Any, Any] | None:
    low, high = (action.get(f"{side}.{column}") for side in ("min", "max"))
    return None if low is None or high is None else (low, high)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _units(landings: list[Landing], sequences: tuple[int, int] | None) -> tuple[str, ...]:
    """Names of the units landed by the commits that contain a range of sequences. The rows of a landing commit precede its marker."""
    if sequences is None:
        return ()
    first, last = sequences
    commits = [one for one in landings if one.next_sequence - 1 - one.rows <= last and one.next_sequence > first]
    return tuple(unit.name for one in reversed(commits) for unit in one.units if unit.status == "landed")


def lost(operator: Operator, lake: Lake, error: BaseException, again: str) -> ExecutionError | None:
    """The error EXECUTION-060 if a run failed because of a missing or damaged file of its inputs; else None.

    Args:
        operator: the operator that ran.
        lake: the lake it ran in.
        error: the engine's error, which names the file.
        again: the command to repeat once the file is restored.
    """
    text = _text(error)
    for operator_input in operator.inputs:
        files = lost_files(lake.input(operator_input)) if DeltaTable.is_deltatable(lake.input(operator_input)) else []
        if any(Path(file.path).name in text for file in files):
            return _error(operator, lake, operator_input, files, again)
    return None


@contextmanager
def found_lost(operator: Operator, lake: Lake, again: str) -> Iterator[None]:
    """Context manager around a run that converts failures caused by a missing or damaged file.

    Args:
        operator: the operator that runs.
        lake: the lake it runs in.
        again: the command to repeat once the file is restored.

    Raises:
        ExecutionError: EXECUTION-060, a file of an input is missing or damaged.
    """
    try:
        yield
    except ExecutionError as error:
        lost_error = lost(operator, lake, error, again)
        if lost_error is not None:
            raise lost_error from error
        raise


def _error(operator: Operator, lake: Lake, operator_input: Input, files: list[LostFile], again: str) -> ExecutionError:
    got = f"{len(files)} {'gone or damaged' if any(file.truncated for file in files) else 'gone'}: {'; '.join(file.describe() for file in files[:_SHOWN])}"
    got += f"; and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    fix = f"Nothing else is lost. Put a copy of the file back in its place, then: {again}. "
    if operator_input.upstream is not None:
        upstream = operator_input.upstream.operator.name
        fix += f"Or compute the table anew: floodmark run {upstream} --force; as a stream: floodmark run {upstream} --unbounded --from-scratch."
        return ExecutionError(_where(operator_input, lake), _EVERY_FILE, got, fix, code="EXECUTION-060")
    fix += (
        f"Without a copy: what is still at the source can be landed into another lake (floodmark land {operator_input.table} --lake FOLDER), and all of it "
        f"computed there. "
    )
    known = [file.times for file in files if file.times]
    divisible = bool(operator.stages) and not operator.reads_history
    divisible &= all(step.over_all_time is None for step in operator.stages)
    if len(known) == len(files) and divisible:
        first, last = min(low for low, _ in known), max(high for _, high in known)
        fix += (
            f"Time without these rows can be computed bounded: floodmark run {operator.name} --to {describe(first)}, "
            f"and from the first window on that begins after {describe(last)}: floodmark run {operator.name} --from TIME."
        )
    return ExecutionError(_where(operator_input, lake), _EVERY_FILE, got, fix.strip(), code="EXECUTION-060")


_EVERY_FILE = "every data file that its commits name"


def _where(operator_input: Input, lake: Lake) -> str:
    return f"{'output' if operator_input.upstream else 'log'} '{operator_input.table}' in {lake.root}"


def _shortened(names: tuple[str, ...]) -> str:
    suffix = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + suffix


def _text(error: BaseException) -> str:
    """The texts of an exception and its causes, one per line."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__
    return "\n".join(texts)
