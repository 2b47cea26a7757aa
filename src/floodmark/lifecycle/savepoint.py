"""Savepoints: the manifest of a savepoint, its check against the stored files, and the differences of two savepoints.

A savepoint is Flink's: state, positions in the inputs and the definition, at one consistent cut, retained until it is deleted. Unlike
Flink's, it also records the versions of the output tables.
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

PLAIN, STANDING = 1, 2
"""Formats of manifests: in the second, a group of the state stands for others, which releases that read only the first do not know."""
MANIFEST = "manifest.json"
MARKS = "marks.json"
"""The file whose presence marks a canonical savepoint: the content of a checkpoint's logs, without state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """A version of a Delta table.

    Args:
        table: its name: ``hourly_departures``.
        id: of the Delta table; a table created anew under the same name has another id.
        version: of the table; for an input, the last version that is read completely.
        file: number of the last file read of the next version; -1 for none.
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
    """The manifest of a savepoint.

    Args:
        id: ``hourly_departures-20261122T084512-f3k9c``.
        at: time of creation, ms UTC.
        operator: its name.
        version: ``hourly_departures@3f9a2c1b``.
        fingerprint: of the version.
        graph: canonical form of the operator.
        tables: output table -> its columns, (name, type).
        timeline: of the stream at that time.
        batch: last micro-batch that the savepoint contains.
        watermark: progress of the outputs after that micro-batch, ms UTC.
        inputs: input name -> the version of its table up to which all rows are read.
        outputs: versions of the output tables after that micro-batch.
        engine: name -> version of the software that wrote the state.
        code: origin of the code: ``package`` of a supervised stream, otherwise ``commit`` and ``dirty``.
        why: the user's note.
        files: path in the savepoint -> size and digest.
        shared: the paths whose content lies among the shared files of the operator's savepoints, in a bucket.
        format: ``PLAIN`` or ``STANDING``; newer formats are refused.
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
    shared: tuple[str, ...] = ()
    format: int = PLAIN

    @property
    def deployed(self) -> Deployed:
        """The definition, for a plan."""
        return Deployed(version=self.version, fingerprint=self.fingerprint, graph=self.graph, tables=self.tables)

    @property
    def canonical(self) -> bool:
        """True for an engine-independent export. Import it before starting a stream from it."""
        return MARKS in self.files

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    def as_json(self) -> str:
        """The manifest as it is written."""
        fields = asdict(self)
        if not self.shared:
            fields.pop("shared")
        return json.dumps({"format": fields.pop("format"), **fields}, indent=1)

    @staticmethod
    def parse(text: bytes, where: str) -> Manifest:
        """A manifest as it was written.

        Raises:
            StateError: STATE-020 the manifest has a newer format, STATE-021 the text is not a manifest.
        """
        try:
            document = json.loads(text)
            written = document["format"] = int(document["format"])
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise broken(where, f"'{MANIFEST}' that cannot be read: {error}") from error
        if written > STANDING:
            fix = "Use the floodmark that wrote it, or a newer one: pip install --upgrade floodmark"
            raise StateError(where, f"format {STANDING} or older", f"format {written}", fix, code="STATE-020")
        try:
            return _manifests().validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            location = ".".join(map(str, first["loc"]))
            raise broken(where, f"'{MANIFEST}' with other entries: {location}: {first['msg']}") from error


@cache
def _manifests() -> TypeAdapter[Manifest]:
    """The validator of manifests, cached: building a validator takes a hundred times as long as one validation."""
    return TypeAdapter(Manifest)


def broken(where: str, got: str) -> StateError:
    """STATE-021: a savepoint is damaged."""
    fix = "Nothing can be started from it. Copy it again from where it came, or take another: floodmark savepoint list"
    return StateError(where, "a savepoint as it was written", got, fix, code="STATE-021")


def damage(manifest: Manifest, present: Mapping[str, File]) -> Iterator[str]:
    """The damaged files of a savepoint, one sentence each; nothing if all files are as written.

    Files that the manifest does not name are ignored: nothing reads them.

    Args:
        manifest: of the savepoint.
        present: path -> size and digest of each stored file, without the manifest.
    """
    for path, wanted in manifest.files.items():
        got = present.get(path)
        if got is None:
            yield f"{path} is missing"
        elif got.size != wanted.size:
            yield f"{path} has {got.size:,} bytes instead of {wanted.size:,}"
        elif got.sha256 != wanted.sha256:
            yield f"{path} has other content than was written"


def differences(before: Manifest, after: Manifest) -> Iterator[tuple[str, str, str]]:
    """The differences of two savepoints of an operator: (name, in the first, in the second). Definitions are compared by ``plan``."""
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


def _version(table_version: TableVersion | None) -> str:
    return "" if table_version is None else f"version {table_version.version} of {table_version.id}"
