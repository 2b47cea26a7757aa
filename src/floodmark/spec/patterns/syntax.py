"""The PATTERN of ``MATCH_RECOGNIZE`` as a tree, read from its text by recursive descent. Source: ISO/IEC 9075-2, row pattern syntax."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from floodmark.core.errors import DefinitionError

MOST_PERMUTED = 7
"""Parts of PERMUTE at most: seven have 5,040 orders."""
MOST_REPEATED = 1_000
"""The greatest number in a quantifier."""
MOST_NESTED = 50
"""Parentheses within each other at most."""
MOST_LABELS = 100_000
"""Variables of a pattern at most, each as often as it is repeated: each start, on each worker, makes an instruction of each."""


@dataclass(frozen=True, slots=True)
class Label:
    """One row of a variable.

    Args:
        name: of the variable.
        excluded: whether the row is left out of ALL ROWS PER MATCH: it stands in ``{- -}``.
    """

    name: str
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after the other; none for the empty pattern."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of several parts, the first one that matches preferred."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A part, ``least`` to ``most`` times; as many as there are preferred, or as few if ``reluctant``."""

    part: Part
    least: int
    most: int | None
    reluctant: bool


@dataclass(frozen=True, slots=True)
class Anchor:
    """The beginning or the end of the partition."""

    at: Literal["start", "end"]


Part = Label | Sequence | Alternatives | Repeated | Anchor

_TOKENS = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*)|\"(?P<double>(?:[^\"]|\"\")+)\"|`(?P<tick>(?:[^`]|``)+)`|(?P<number>\d+)|(?P<sign>\{-|-\}|[()|*+?{},^$]))"
)


def identifier(text: str) -> str:
    """A name as SQL reads it: in upper case unless it is quoted, with ``"`` or backticks."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in '"`':
        return text[1:-1].replace(text[0] * 2, text[0])
    return text.upper()


def row_pattern(text: object, where: str) -> Part:
    """(text of a pattern) -> its tree.

    Raises:
        DefinitionError: DEFINITION-430, it is no pattern.
    """
    if not isinstance(text, str):
        raise _unreadable(where, repr(text))
    reader = _Reader(text, where)
    part = reader.alternatives(excluded=False)
    reader.finished()
    if (number := _size(part)) > MOST_LABELS:
        raise _unreadable(where, f"one of {number:,} variables, repetitions multiplied; {MOST_LABELS:,} are the most")
    return part


def labels(part: Part) -> Iterator[Label]:
    """The labels in a pattern, in their order."""
    match part:
        case Label():
            yield part
        case Sequence(parts=parts) | Alternatives(parts=parts):
            for inner in parts:
                yield from labels(inner)
        case Repeated(part=inner):
            yield from labels(inner)


def _size(part: Part) -> int:
    """Number of the labels, each as often as it is repeated; a part that is repeated any number of times has one more than its least number."""
    match part:
        case Sequence(parts=parts) | Alternatives(parts=parts):
            return sum(map(_size, parts))
        case Repeated(part=inner, least=least, most=most):
            return _size(inner) * (least + 1 if most is None else most)
        case _:
            return 1


def nullable(part: Part) -> bool:
    """Whether a part matches without a row."""
    match part:
        case Label():
            return False
        case Anchor():
            return True
        case Sequence(parts=parts):
            return all(map(nullable, parts))
        case Alternatives(parts=parts):
            return any(map(nullable, parts))
        case Repeated(part=inner, least=least):
            return least == 0 or nullable(inner)


def is_row_by_row(part: Part) -> bool:
    """Whether a part is one variable after the other, a row each: the last row of a match decides it."""
    match part:
        case Label():
            return True
        case Sequence(parts=parts):
            return bool(parts) and all(map(is_row_by_row, parts))
        case _:
            return False


def anchored(part: Part) -> bool:
    """Whether a part names the beginning of the partition."""
    match part:
        case Anchor(at=at):
            return at == "start"
        case Sequence(parts=parts) | Alternatives(parts=parts):
            return any(map(anchored, parts))
        case Repeated(part=inner):
            return anchored(inner)
        case _:
            return False


def _unreadable(where: str, got: str) -> DefinitionError:
    fix = 'For example pattern="A B+ (C | D)?", with names, quantifiers, ( ), |, PERMUTE(A, B), {- A -}, ^ and $.'
    return DefinitionError(where, "a row pattern", got, fix, code="DEFINITION-430")


class _Reader:
    """Reads one pattern."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where, self.position = text, where, 0
        self.tokens: list[tuple[str, str]] = []
        self.depth = 0
        offset = 0
        end = len(text.rstrip())
        while offset < end:
            token = _TOKENS.match(text, offset)
            if token is None:
                raise self._unexpected(text[offset:].strip()[:20])
            kind = str(token.lastgroup)
            self.tokens.append((kind, token.group(kind)))
            offset = token.end()

    def alternatives(self, *, excluded: bool) -> Part:
        """Sequences separated by ``|``."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self._unexpected(f"more than {MOST_NESTED} parentheses within each other")
        parts = [self._sequence(excluded=excluded)]
        while self._accept("|"):
            parts.append(self._sequence(excluded=excluded))
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def finished(self) -> None:
        """Refuse what is left over."""
        if self.position < len(self.tokens):
            raise self._unexpected(self.tokens[self.position][1])

    def _sequence(self, *, excluded: bool) -> Part:
        parts: list[Part] = []
        while self.position < len(self.tokens) and self._next() not in {"|", ")", "-}", ","}:
            parts.append(self._repeated(self._primary(excluded=excluded)))
        if not parts:
            raise self._unexpected(self._next() or "nothing; an empty pattern is ()")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _primary(self, *, excluded: bool) -> Part:
        kind, text = self.tokens[self.position]
        self.position += 1
        match kind, text:
            case "word", _ if text.upper() == "PERMUTE" and self._accept("("):
                return self._permuted(excluded=excluded)
            case "word", _:
                return Label(text.upper(), excluded)
            case "double", _:
                return Label(text.replace('""', '"'), excluded)
            case "tick", _:
                return Label(text.replace("``", "`"), excluded)
            case "sign", "(":
                if self._accept(")"):
                    return Sequence(())
                part = self.alternatives(excluded=excluded)
                self._expect(")")
                return part
            case "sign", "{-":
                part = self.alternatives(excluded=True)
                self._expect("-}")
                return part
            case "sign", "^":
                return Anchor("start")
            case "sign", "$":
                return Anchor("end")
        self.position -= 1
        raise self._unexpected(text)

    def _permuted(self, *, excluded: bool) -> Part:
        parts = [self.alternatives(excluded=excluded)]
        while self._accept(","):
            parts.append(self.alternatives(excluded=excluded))
        self._expect(")")
        if len(parts) > MOST_PERMUTED:
            raise self._unexpected(f"PERMUTE of {len(parts)} parts, of which {MOST_PERMUTED} are the most")
        return Alternatives(tuple(Sequence(order) for order in itertools.permutations(parts)))

    def _repeated(self, part: Part) -> Part:
        while (sign := self._next()) in {"*", "+", "?", "{"}:
            self.position += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign, (0, 0))
            if sign == "{":
                least, most = self._numbers()
            part = Repeated(part, least, most, self._accept("?"))
        return part

    def _numbers(self) -> tuple[int, int | None]:
        least = self._number()
        if self._accept(","):
            most = self._number()
            self._expect("}")
            bounds = least or 0, most
        else:
            self._expect("}")
            bounds = least or 0, least
            if least is None:
                raise self._unexpected("{}")
        if bounds[1] is not None and (bounds[1] < bounds[0] or bounds[1] == 0):
            raise self._unexpected(f"{{{bounds[0]},{bounds[1]}}}")
        if max(bounds[0], bounds[1] or 0) > MOST_REPEATED:
            raise self._unexpected(f"a quantifier above {MOST_REPEATED:,}")
        return bounds

    def _number(self) -> int | None:
        if self.position < len(self.tokens) and self.tokens[self.position][0] == "number":
            self.position += 1
            return int(self.tokens[self.position - 1][1])
        return None

    def _next(self) -> str:
        kind, text = self.tokens[self.position] if self.position < len(self.tokens) else ("", "")
        return text if kind == "sign" else ""

    def _accept(self, sign: str) -> bool:
        if self._next() != sign:
            return False
        self.position += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._unexpected(f"no {sign} at its place")

    def _unexpected(self, what: str) -> DefinitionError:
        return _unreadable(self.where, f"{what} in {self.text!r}")
