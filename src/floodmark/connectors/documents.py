"""JSON: one object per line, or documents over several lines: an array of objects, or objects one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain

from floodmark.connectors.unit import Record, Unreadable

_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 16
"""Bytes of a document that are read at least before its objects are looked for."""
_BETWEEN = " \t\r\n,"


def json_records(lines: Iterator[bytes]) -> Iterator[Record]:
    """The objects of a file, each with its raw text and its line; in a document over several lines, its number.

    Raises:
        Unreadable: a document is broken, so that it is not known where its other objects begin.
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

    A line that ends too early is the beginning of an object only if the next line is not an object of its own.
    """
    text = line.strip()
    if text == b"{":
        return True
    if text.startswith(b"["):
        return second is None or not _whole(text)
    return text.startswith(b"{") and second is not None and _ends_early(text) and not _whole(second)


def _ends_early(text: bytes) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text.decode(errors="replace"))
    except ValueError:
        return False
    return False


def _whole(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _documents(lines: Iterator[bytes]) -> Iterator[Record]:
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
    """A document on its way: what is read of it, and the place that is reached."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines, self.read, self.at = lines, "", 0

    def ahead(self) -> str:
        """The next character that is more than space or a comma; empty at the end."""
        while True:
            while self.at < len(self.read) and self.read[self.at] in _BETWEEN:
                self.at += 1
            if self.at < len(self.read) or not self._more():
                return self.read[self.at : self.at + 1]

    def end_of_value(self, decoder: json.JSONDecoder) -> int:
        """Where the value ends that begins here."""
        while True:
            try:
                end = decoder.raw_decode(self.read, self.at)[1]
            except ValueError as error:
                if not self._more():
                    reason = f"it is no JSON: {error}"
                    raise Unreadable(reason) from error
            else:
                if end < len(self.read) or not self._more():  # a number may go on
                    return end

    def _more(self) -> bool:
        """Read on, as much again as waits already."""
        self.read, self.at = self.read[self.at :], 0
        pieces, wanted = [self.read], max(len(self.read), _PIECE)
        while wanted > 0 and (line := next(self._lines, None)) is not None:
            pieces.append(line.decode(errors="surrogateescape"))
            wanted -= len(line)
        self.read = "".join(pieces)
        return len(pieces) > 1
