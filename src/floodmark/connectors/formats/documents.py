"""Records of JSON files: one object per line, or a document over several lines: an array of objects, or objects one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain

from floodmark.connectors.entries import Record
from floodmark.connectors.unit import Unreadable

_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 16
"""Bytes of a document that are read at least before its objects are parsed."""
_BETWEEN = " \t\r\n,"


def json_records(lines: Iterator[bytes]) -> Iterator[Record]:
    """The objects of a file, each with its raw text and its line; in a document over several lines, the object's number.

    Raises:
        Unreadable: a document is broken, so that the beginning of its other objects is unknown.
    """
    first = next(((number, line) for number, line in enumerate(lines, start=1) if line.strip(_BOM + b" \t\r\n")), None)
    if first is None:
        return
    number, line = first[0], first[1].removeprefix(_BOM)
    second = next(lines, None)
    following = lines if second is None else chain([second], lines)
    if _is_document(line, second):
        yield from _documents(chain([line], following))
        return
    for at, other in enumerate(chain([line], following), start=number):
        raw = other.rstrip(b"\r\n")
        if raw.strip():
            yield Record(at, raw, raw)


def _is_document(line: bytes, second: bytes | None) -> bool:
    """Whether a file is a document by its first two lines: an array, or an object over several lines.

    A line whose JSON ends too early is the beginning of an object only if the next line is not an object of its own.
    """
    text = line.strip()
    if text == b"{":
        return True
    if text.startswith(b"["):
        return second is None or not _is_json(text)
    return text.startswith(b"{") and second is not None and _ends_early(text) and not _is_json(second)


def _ends_early(text: bytes) -> bool:
    """Whether a text is the beginning of JSON that is cut off."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return False


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _documents(lines: Iterator[bytes]) -> Iterator[Record]:
    """The objects of a document over several lines, numbered from 1."""
    text, decoder = _Text(lines), json.JSONDecoder()
    inside = text.ahead() == "["
    text.at += inside
    number = 0
    while (character := text.ahead()) and not (inside and character == "]"):
        end = text.end_of_value(decoder)
        number += 1
        raw = text.read[text.at : end].encode(errors="surrogateescape")
        yield Record(number, raw, raw)
        text.at = end
    text.at += inside
    if inside and (not character or text.ahead()):
        reason = "its array is not closed" if not character else f"something follows its array of {number:,} objects"
        raise Unreadable(reason)


class _Text:
    """A document while it is parsed: ``read`` is its text in memory, ``at`` the position in that text up to which objects are parsed."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines, self.read, self.at = lines, "", 0

    def ahead(self) -> str:
        """The next character that is more than space or a comma; empty at the end."""
        while True:
            while self.at < len(self.read) and self.read[self.at] in _BETWEEN:
                self.at += 1
            if self.at < len(self.read) or not self._read_on():
                return self.read[self.at : self.at + 1]

    def end_of_value(self, decoder: json.JSONDecoder) -> int:
        """The position behind the value that begins at ``at``.

        Raises:
            Unreadable: the text there is no JSON.
        """
        while True:
            try:
                end = decoder.raw_decode(self.read, self.at)[1]
            except RecursionError as error:
                reason = "its JSON is nested too deeply"
                raise Unreadable(reason) from error
            except ValueError as error:
                if not self._read_on():
                    reason = f"it is no JSON: {error}"
                    raise Unreadable(reason) from error
            else:
                if end < len(self.read) or not self._read_on():  # the next line may hold more digits of a number
                    return end

    def _read_on(self) -> bool:
        """Read more lines, as many bytes as are unparsed in memory or more; False at the end of the file."""
        self.read, self.at = self.read[self.at :], 0
        pieces, wanted = [self.read], max(len(self.read), _PIECE)
        while wanted > 0 and (line := next(self._lines, None)) is not None:
            pieces.append(line.decode(errors="surrogateescape"))
            wanted -= len(line)
        self.read = "".join(pieces)
        return len(pieces) > 1
