"""Spark SQL text as tokens."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "quoted", "number", "string", "operator", "end"]


class Unreadable(Exception):  # noqa: N818 - ``expression`` makes it a DefinitionError with the step it is in
    """Text that is no expression of Spark SQL.

    Args:
        got: what is wrong with it.
        fix: what to write instead.
        code: of the DefinitionError.
    """

    def __init__(
        self, got: str, fix: str = "Correct the SQL; strings stand in single quotes.", code: str = "DEFINITION-021"
    ) -> None:
        super().__init__(got)
        self.got, self.fix, self.code = got, fix, code


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text.

    Args:
        kind: ``quoted`` is a name in backticks.
        text: as written; of names and strings the content.
        start: where it begins, counted in characters.
        end: behind its last character.
    """

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """A bare word in upper case; empty for any other token."""
        return self.text.upper() if self.kind == "word" else ""


_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>--|/\*)
    |(?P<string>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?(?![\w.]))
    |(?P<word>\w+)
    |(?P<operator><=>|>>>|<<|>>|<=|>=|<>|!=|!>|!<|==|\|\||->|=>|::|[-+*/%&|^~!<>=(),.\[\]:?;@$])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_RAW = re.compile(r"""[rR](?:'[^']*'|"[^"]*")""")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.)", re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
"""A surrogate; Spark replaces one without its other half by a question mark."""
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}


def tokens(text: str) -> list[Token]:
    """All tokens, then one of kind ``end``.

    Raises:
        Unreadable: a comment, several statements, a character outside SQL.
    """
    read: list[Token] = []
    position = 0
    while position < len(text):
        match = _RAW.match(text, position) or _TOKEN.match(text, position)
        if match is None:
            message = f"{text[position]!r} at character {position + 1}"
            raise Unreadable(message)
        kind = match.lastgroup or "string"
        if kind == "comment":
            fix = "Take the comment out; write it in Python, beside the expression."
            raise Unreadable("a comment", fix, "DEFINITION-140")
        if match[0] == ";":
            raise Unreadable("a semicolon", "Write one expression, without a semicolon.", "DEFINITION-141")
        if kind != "space":
            read.append(_token(kind, match[0], match.start()))
        position = match.end()
    return [*read, Token("end", "", len(text), len(text))]


def _token(kind: str, text: str, start: int) -> Token:
    end = start + len(text)
    match kind:
        case "string":
            return Token("string", unescaped(text), start, end)
        case "quoted":
            return Token("quoted", text[1:-1].replace("``", "`"), start, end)
        case "number" | "word" | "operator":
            return Token(kind, text, start, end)
        case _:
            raise AssertionError(kind)


def unescaped(text: str) -> str:
    """The content of a string literal, as Spark reads it."""
    if text[0] in "rR":
        return text[2:-1]
    body = text[1:-1].replace(text[0] * 2, text[0])
    units = _ESCAPE.sub(lambda match: _escaped(match[1]), body).encode("utf-16-le", "surrogatepass")
    return _HALF.sub("?", units.decode("utf-16-le", "surrogatepass"))


def _escaped(code: str) -> str:
    if code[0] in "uU" and len(code) > 1:
        if int(code[1:], 16) > sys.maxunicode:
            raise Unreadable(f"\\{code}", "Characters end at \\U0010FFFF.")
        return chr(int(code[1:], 16))
    if len(code) == len("000"):
        return chr(int(code, 8))
    return _ESCAPES.get(code, code)
