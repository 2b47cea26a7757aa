"""Savepoints: the manifest that says what one holds, checked against what is there, and how two differ.

A savepoint is Flink's: state, positions in the inputs and the definition, at one consistent cut, kept until it is deleted. What Flink
leaves to its sinks is part of it too: the versions its output tables had.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from floodmark.core.errors import StateError
from floodmark.core.time import describe
from floodmark.lifecycle.plan import Deployed

FORMAT = 1
"""Of manifests written now; older ones are read, newer ones are refused."""
MANIFEST = "manifest.json"
MARKS = "marks.json"
"""The file that says that a savepoint is canonical: what the logs of a checkpoint say besides state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """A version of a Delta table.

    Args:
        table: its name: ``hourly_departures``.
        id: of the Delta table, which a table of the same name that is made anew does not have.
        version: of the table; of an input, the last one that is read completely.
        file: number of the last file read of the version behind it; -1 for none.
    """

    table: str
    id: str
    version: int
    file: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a savepoint.

    Args:
        sha256: of its content.
        size: bytes.
    """

    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a savepoint holds.

    Args:
        id: ``hourly_departures-20261122T084512-9c1e``.
        at: when it was made, ms UTC.
        operator: its name.
        version: ``hourly_departures@3f9a2c1b``.
        fingerprint: of the version.
        graph: canonical form of the operator.
        tables: output table -> its columns, (name, type).
        timeline: the stream was on.
        batch: last micro-batch that is part of it.
        watermark: progress of the outputs once it is taken into account, ms UTC.
        inputs: input name -> the version of its table up to which all is read.
        outputs: output tables at that moment.
        engine: name -> version of what wrote the state.
        code: what is known of the code: ``package`` of a stream that runs by itself, otherwise ``commit`` and ``dirty``.
        why: the user's words.
        files: path in the savepoint -> what it holds.
    """

    id: str
    at: int
    operator: str
    version: str
    fingerprint: str
    graph: Mapping[str, Any]
    tables: Mapping[str, tuple[tuple[str, str], ...]]
    timeline: int
    batch: int
    watermark: int
    inputs: Mapping[str, TableVersion]
    outputs: tuple[TableVersion, ...]
    engine: Mapping[str, str]
    code: Mapping[str, Any]
    why: str
    files: Mapping[str, File]

    @property
    def deployed(self) -> Deployed:
        """The definition, for a plan."""
        return Deployed(version=self.version, fingerprint=self.fingerprint, graph=self.graph, tables=self.tables)

    @property
    def canonical(self) -> bool:
        """Whether it is of no engine: something to exchange, which cannot be gone on from as it is."""
        return MARKS in self.files

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    def as_json(self) -> str:
        """The manifest as it is written."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    @staticmethod
    def parse(text: bytes, where: str) -> Manifest:
        """A manifest as it was written.

        Raises:
            StateError: STATE-020 it is of a newer format, STATE-021 it is none.
        """
        try:
            found = json.loads(text)
            written = int(found.pop("format"))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise broken(where, f"'{MANIFEST}' that cannot be read: {error}") from error
        if written > FORMAT:
            fix = "Use the floodmark that wrote it, or a newer one: pip install --upgrade floodmark"
            raise StateError(where, f"format {FORMAT} or older", f"format {written}", fix, code="STATE-020")
        try:
            return _manifests().validate_python(found)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise broken(where, f"'{MANIFEST}' with other entries: {place}: {first['msg']}") from error


@cache
def _manifests() -> TypeAdapter[Manifest]:
    """Checks manifests; to make one takes a hundred times as long as to check a manifest."""
    return TypeAdapter(Manifest)


def broken(where: str, got: str) -> StateError:
    """STATE-021: a savepoint that is not whole."""
    fix = "Nothing can be started from it. Copy it again from where it came, or take another: floodmark savepoint list"
    return StateError(where, "a savepoint as it was written", got, fix, code="STATE-021")


def damage(manifest: Manifest, found: Mapping[str, File]) -> Iterator[str]:
    """What is wrong with the files of a savepoint, one sentence each; nothing when all is as it was written.

    Files beside them are nobody's: nothing reads them.

    Args:
        manifest: of the savepoint.
        found: path -> what is there, without the manifest.
    """
    for path, wanted in manifest.files.items():
        got = found.get(path)
        if got is None:
            yield f"{path} is missing"
        elif got.size != wanted.size:
            yield f"{path} has {got.size:,} bytes instead of {wanted.size:,}"
        elif got.sha256 != wanted.sha256:
            yield f"{path} has other content than was written"


def differences(before: Manifest, after: Manifest) -> Iterator[tuple[str, str, str]]:
    """In what two savepoints of an operator differ: what, in the first, in the second. Definitions are compared by ``plan``."""
    for name in ("version", "timeline", "batch"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            yield name, str(was), str(now)
    if before.watermark != after.watermark:
        yield "watermark", describe(before.watermark), describe(after.watermark)
    for what, old, new in (
        ("input", before.inputs, after.inputs),
        ("output", {o.table: o for o in before.outputs}, {o.table: o for o in after.outputs}),
    ):
        for name in {**old, **new}:
            was, now = (_version(side.get(name)) for side in (old, new))
            if was != now:
                yield f"{what} '{name}'", was, now
    for name in {**before.engine, **after.engine}:
        if before.engine.get(name) != after.engine.get(name):
            yield name, str(before.engine.get(name)), str(after.engine.get(name))
    if before.size != after.size:
        yield "bytes", f"{before.size:,}", f"{after.size:,}"


def _version(found: TableVersion | None) -> str:
    return "" if found is None else f"version {found.version} of {found.id}"
