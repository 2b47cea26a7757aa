"""Lines of text as records: by a pattern with named groups, or as logfmt."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from floodmark.connectors.entries import Record
from floodmark.connectors.formats.cells import Cells
from floodmark.core.errors import ConnectorError, closest
from floodmark.spec.rows.connector import PATTERNS
from floodmark.spec.rows.contract import inputs_of

_PAIR = re.compile(r"""\s*([^\s="]+)(?:=("(?:[^"\\]|\\.)*"|[^\s"]*))?(?=\s|$)""")
"""A key of logfmt, with its value if there is one."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """How to read lines of text.

    Args:
        cells: how to read the texts of a row.
        pattern: of a line, as of ``Files``; None for logfmt.
        where: for messages.
    """

    cells: Cells
    pattern: str | None
    where: str

    def as_json(self) -> dict[str, object]:
        """The settings that are needed to read one line again."""
        kind = {"format": "logfmt"} if self.pattern is None else {"format": "text", "pattern": self.pattern}
        return {**kind, **self.cells.as_json()}

    def check(self) -> None:
        """Make sure that the pattern has a group for each field that a row must have.

        Raises:
            ConnectorError: CONNECTOR-201.
        """
        if self.pattern is None:
            return
        groups = list(re.compile(PATTERNS.get(self.pattern, self.pattern)).groupindex)
        for name, field in inputs_of(self.cells.contract).items():
            if field.is_required() and name not in groups:
                fix = (
                    f"{closest(name, groups)}Name a group of the pattern (?P<{name}>...), or give the field a default."
                )
                got = f"groups {', '.join(groups)}"
                raise ConnectorError(self.where, f"a group '{name}' in the pattern", got, fix, code="CONNECTOR-201")


def text_records(
    lines: Iterable[bytes], settings: Lines, *, default_nulls: Counter[str] | None = None
) -> Iterator[Record]:
    """A record for each line that is not empty, with the line's number.

    Args:
        lines: of the text.
        settings: how to read the lines.
        default_nulls: counter of field and text that are read as null by default.
    """
    fields, read = fields_of(settings.pattern), settings.cells.reader(default_nulls)
    expected = "a line of logfmt, key=value" if settings.pattern is None else "a line that matches the pattern"
    for number, line in enumerate(lines, start=1):
        raw = (line.removeprefix(_BOM) if number == 1 else line).rstrip(b"\r\n")
        if not raw.strip():
            continue
        try:
            values = fields(raw.decode())
        except UnicodeDecodeError:
            yield Record(number, raw, None, "expected UTF-8 text, got other bytes (shown as \\xNN)")
            continue
        if values is None:
            yield Record(number, raw, None, f"expected {expected}, got another one")
        else:
            yield Record(number, raw, read({**values}))


def fields_of(pattern: str | None) -> Callable[[str], dict[str, str | None] | None]:
    """(pattern, or None for logfmt) -> a function: (line) -> its fields; None if the line is another one."""
    if pattern is None:
        return _logfmt
    compiled = re.compile(PATTERNS.get(pattern, pattern))

    def fields(line: str) -> dict[str, str | None] | None:
        match = compiled.fullmatch(line)
        return None if match is None else match.groupdict()

    return fields


def _logfmt(line: str) -> dict[str, str | None] | None:
    values, at, text = dict[str, str | None](), 0, line.rstrip()
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None or pair[1] in values:
            return None
        value = "true" if pair[2] is None else pair[2]
        if value.startswith('"'):
            try:
                value = json.loads(value, strict=False)
            except ValueError:  # an escape that JSON does not have
                value = re.sub(r"\\(.)", r"\1", value[1:-1])
        values[pair[1]], at = value, pair.end()
    return values if "=" in text else None
