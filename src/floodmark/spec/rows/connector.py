"""Connectors: what a source reads. Frozen settings, without I/O, from which a reader is made where rows land."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from attrs import frozen

from floodmark.core.code.shapes import LATER
from floodmark.core.errors import DefinitionError, closest
from floodmark.core.time import span
from floodmark.spec.rows.checks import not_negative
from floodmark.spec.rows.debezium import Debezium
from floodmark.spec.values.implementation import implementation_of

if TYPE_CHECKING:
    from floodmark.connectors.unit import Reader
    from floodmark.spec.rows.source import Source


class Connector:
    """Where the rows of a source come from.

    A connector is a frozen class with this base, whose fields are its settings. It either names what makes its reader by ``implementation``,
    or has a method ``reader`` of its own. See docs/connectors.md.
    """

    __slots__ = ()

    implementation: ClassVar[str] = ""
    """``"module:callable"``: called with the connector and its source, it makes the reader; imported where rows land."""
    partitioned: ClassVar[bool] = False
    """Whether each unit has rows of one source partition only, which the unit names. Without ``Source(partition_by=...)`` the watermark is then the
    minimum over these partitions."""

    unit: ClassVar[str] = "as its reader divides it"
    """What lands whole or not at all, for people."""
    order: ClassVar[str] = "that of its reader"
    """The order in which rows land, for people."""

    added: ClassVar[frozenset[str]] = frozenset()
    """Fields that the connector adds to each row, which no contract has to name."""

    def reader(self, source: Source) -> Reader:
        """The reader of a source with these settings.

        Raises:
            DefinitionError: DEFINITION-310, the connector does not say how it is read.
        """
        implementation = implementation_of(self.implementation)
        if implementation is None:
            kind = type(self).__name__
            fix = f'Write {kind}.reader(self, source), or {kind}.implementation = "module:callable".'
            raise DefinitionError(f"source '{source.name}'", f"a reader of {kind}", "none", fix, code="DEFINITION-310")
        reader: Reader = implementation(self, source)
        return reader

    def located(self, folder: Path) -> Self:  # noqa: ARG002 - for connectors with paths
        """These settings with absolute paths.

        Args:
            folder: where relative paths start.
        """
        return self

    def adds(self) -> frozenset[str]:
        """Fields that these settings add to each row: ``added``, unless a connector has a choice."""
        return self.added

    def partition_of(self, unit: str) -> str:  # noqa: ARG002 - for connectors with partitions
        """The source partition of all rows of a unit, by the unit's name; empty unless the connector is ``partitioned``."""
        return ""

    def meaning(self) -> dict[str, Any]:
        """The settings that decide what a row of the log means, for the canonical form of the source; {} if none does."""
        return {}

    @property
    def revisable(self) -> bool:
        """Whether rows may be retracted."""
        return False

    @property
    def pattern_of_lines(self) -> str:
        """What each line has to match, for people; empty if rows are no lines of a pattern."""
        return ""


def located(path: str, folder: Path) -> str:
    """A path made absolute; a URI as it is."""
    return path if "://" in path else str((folder / path).expanduser().absolute())


@dataclass(frozen=True, slots=True)
class Files(Connector):
    """A folder of files, landed in the order of ``order_by``, each file once.

    Args:
        path: a folder or glob, relative to the workspace, or a URI Spark can read.
        format: ``"csv"``, ``"json"`` (one object per line, or an array of objects), ``"parquet"``, ``"avro"``, ``"text"`` (a row per line, by
            ``pattern``) or ``"logfmt"`` (``key=value`` pairs); by default by the end of the file's name. ``.gz`` files are decompressed.
        order_by: ``"name"`` or ``"modified"``: the order of arrival between files. Inside a file it is the row order.
        null_values: CSV texts that mean null in every field.
        missing_values: CSV texts that mean null in fields that hold no text: numbers, times, booleans. None, the default: ``NA``, unless
            ``null_values`` is given; each landing says how often it was read so.
        delimiter: of CSV.
        decimal: ``"."`` or ``","``: the sign between whole and fraction in CSV; with a comma, points may stand between thousands.
        encoding: of text, as Python names it: ``"utf-16"``, ``"cp1252"``.
        header: names of the columns of CSV files that have no header line.
        skip: number of lines before the header of CSV files.
        pattern: of a whole line of text, as Python's ``re`` writes it: each named group is a field of that name. Or the name of a
            pattern: ``"common"`` and ``"combined"``, of the logs of web servers. A line that does not match is set aside.
        min_age: a file lands once it has been unchanged for this long, by its date, or by size and date over two looks. By default a file
            lands at the next look, and on a local disk an end of input waits for files that have changed in the last 5 seconds. ``"0 s"``:
            files appear whole, by a rename. A writer that pauses for longer than this lands in halves.

        envelope: ``Debezium()``: each row of JSON or Avro is a change of a table.

    Raises:
        DefinitionError: DEFINITION-153; DEFINITION-201, the pattern; DEFINITION-001 and 004, ``min_age`` is no duration.
    """

    implementation: ClassVar[str] = "floodmark.connectors.readers.files:reader"
    unit: ClassVar[str] = "a file, by its name"
    order: ClassVar[str] = "the names of the files, or their dates with `order_by`; the rows of a file"

    path: str
    format: Literal["csv", "json", "parquet", "avro", "text", "logfmt"] | None = None
    order_by: Literal["name", "modified"] = "name"
    null_values: tuple[str, ...] = ("",)
    missing_values: tuple[str, ...] | None = None
    delimiter: str = ","
    decimal: Literal[".", ","] = "."
    encoding: str = "utf-8"
    header: tuple[str, ...] = ()
    skip: int = 0
    pattern: str | None = None
    min_age: str | timedelta | None = None
    envelope: Debezium | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        self._check_pattern()
        if self.min_age is not None:
            not_negative(self.min_age, f"Files({self.path!r}), min_age")
        wrong = {
            "format": self.format not in {None, "csv", "json", "parquet", "avro", "text", "logfmt"},
            "envelope": not isinstance(self.envelope, Debezium | None)
            or (self.envelope is not None and self.format not in {"json", "avro"}),
            "order_by": self.order_by not in {"name", "modified"},
            "delimiter": len(self.delimiter) != 1 or self.delimiter in '"\r\n',
            "decimal": self.decimal not in {".", ","} or self.decimal == self.delimiter,
            "encoding": not _is_encoding(self.encoding),
            "header": isinstance(self.header, str) or len(set(self.header)) < len(self.header),
            "skip": self.skip < 0,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            got = f"{name}={getattr(self, name)!r}"
            raise DefinitionError(
                f"Files({self.path!r})", _FILE_SETTINGS[name], got, f"Correct {name}.", code="DEFINITION-153"
            )

    def located(self, folder: Path) -> Self:
        """With an absolute path."""
        return replace(self, path=located(self.path, folder))

    @property
    def pattern_of_lines(self) -> str:
        """Of text."""
        return {"logfmt": "logfmt", "text": f"the pattern {self.pattern}"}.get(self.format or "", "")

    def adds(self) -> frozenset[str]:
        """Those of changes."""
        return frozenset() if self.envelope is None else self.envelope.added

    def meaning(self) -> dict[str, Any]:
        """Which changes are rows."""
        return {} if self.envelope is None else self.envelope.meaning()

    @property
    def revisable(self) -> bool:
        """Whether changes retract rows."""
        return self.envelope is not None and self.envelope.read == "changes"

    @property
    def min_age_ms(self) -> int | None:
        """``min_age``, ms; None if it is not declared."""
        return None if self.min_age is None else span(self.min_age)

    def _check_pattern(self) -> None:
        """Raise DefinitionError DEFINITION-201 if the pattern is missing, in vain, no pattern, or has no named group."""
        where, expected = f"Files({self.path!r})", 'a pattern with named groups, for format="text" alone'
        fix = 'For example Files(..., format="text", pattern=r"(?P<at>\\S+) (?P<level>\\w+) (?P<message>.*)").'
        if (self.format == "text") != (self.pattern is not None):
            got = f"format={self.format!r}, pattern={self.pattern!r}"
            raise DefinitionError(where, expected, got, fix, code="DEFINITION-201")
        if self.pattern is not None:
            try:
                groups = re.compile(PATTERNS.get(self.pattern, self.pattern)).groupindex
            except re.error as error:
                got = f"pattern={self.pattern!r} ({error})"
                raise DefinitionError(where, expected, got, fix, code="DEFINITION-201") from error
            if not groups:
                got = f"pattern={self.pattern!r}"
                fix = f"{closest(self.pattern, PATTERNS)}{fix}"
                raise DefinitionError(where, expected, got, fix, code="DEFINITION-201")


_REQUEST = r'''"(?:(?P<method>[A-Z]+) (?P<path>\S+)(?: (?P<protocol>HTTP/[0-9.]+))?|(?P<request>(?:[^"\\]|\\.)*))"'''
_COMMON = (
    r"(?P<host>\S+) (?P<identity>\S+) (?P<user>.+?) \[(?P<at>[^\]]+)\] "
    + _REQUEST
    + r" (?P<status>[0-9]{3}) (?P<bytes>[0-9]+|-)"
)
_COMBINED = _COMMON + r''' "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"'''
PATTERNS = {
    "common": _COMMON,
    "combined": _COMBINED,
    "combined and more": _COMBINED + r" (?P<more>.+)",
    "virtual hosts": r"(?P<server>\S+) " + _COMBINED,
}
"""Patterns of the logs of web servers by name: Apache's and nginx's ``common`` and ``combined`` formats, the latter with more behind the agent, or
with the server in front. ``request`` is what no request of HTTP is."""
_FILE_SETTINGS = {
    "format": '"csv", "json", "parquet", "avro", "text" or "logfmt"',
    "envelope": 'Debezium(), with format="json" or "avro"',
    "order_by": '"name" or "modified"',
    "delimiter": "one character between fields",
    "decimal": '"." or ",", and another one than the delimiter',
    "encoding": 'an encoding of Python\'s, such as "utf-8", "utf-16" or "cp1252"',
    "header": 'the names of all columns, each once: ("at", "amount")',
    "skip": "a number of lines",
}


def _is_encoding(name: str) -> bool:
    try:
        return bool(codecs.lookup(name))
    except LookupError:
        return False


@dataclass(frozen=True, slots=True)
class DeltaTable(Connector):
    """A Delta table that another system writes, landed commit by commit.

    Args:
        path: of the table.
        starting_version: the first version to land; 0: all versions that the table still has.
        read: ``"appends"``: the table is only appended to; a version that updates or deletes rows stops the landing.
            ``"changes"``: the input is the table's content: a delete retracts the inserted row, an update retracts the old row and
            inserts the new one. ``"events"``: every change is a row of its own, with three more columns, named as in Delta:
            ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage``, ``delete``), ``_commit_version`` and
            ``_commit_timestamp``; a contract reads them by ``Field(alias="_change_type")``.

    Set ``delta.enableChangeDataFeed`` on a table that is updated: without change files an update lands as a delete and an insert of every
    row of the files it rewrites, which has the same result but costs more.

    Time: lateness of a retraction is decided by its own event time, as for any row: behind the watermark it is late.
    Source: Delta Lake, change data feed.
    """

    implementation: ClassVar[str] = "floodmark.connectors.readers.delta:reader"
    unit: ClassVar[str] = "a commit, by its version"
    order: ClassVar[str] = "the commits of the table"
    added: ClassVar[frozenset[str]] = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})

    path: str
    starting_version: int = 0
    read: Literal["appends", "changes", "events"] = "appends"

    def located(self, folder: Path) -> Self:
        """With an absolute path."""
        return replace(self, path=located(self.path, folder))

    def adds(self) -> frozenset[str]:
        """Those of changes."""
        return frozenset() if self.read == "appends" else self.added

    def meaning(self) -> dict[str, Any]:
        """Which changes are rows."""
        return {} if self.read == "appends" else {"read": self.read}

    @property
    def revisable(self) -> bool:
        """Whether deletes and updates of the table retract rows."""
        return self.read == "changes"


@frozen(init=False)
class Rows(Connector):
    """Rows in memory, for tests and examples; landed once, in their order.

    Args:
        rows: dictionaries, one per row.
    """

    implementation: ClassVar[str] = "floodmark.connectors.readers.memory:reader"
    unit: ClassVar[str] = "the list"
    order: ClassVar[str] = "the list"

    rows: tuple[str, ...]

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.__attrs_init__(tuple(json.dumps(row, default=_as_json) for row in rows))


def _as_json(value: object) -> object:
    """A value that JSON has no form for, as a value that has one: a number of numpy as a number, any other value as text."""
    return value.item() if hasattr(value, "item") else str(value)
