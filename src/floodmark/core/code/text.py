"""The text of a walk through code: tokens in order, the parts that the tokens belong to, and names used from libraries."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["function", "class", "constant", "module", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of code that a definition reaches.

    Args:
        kind: kind of code; ``unknown`` if the part cannot be followed.
        name: ``module.name``; for kind ``unknown``, a description.
        place: ``file:line``; for kind ``unknown``, how the part counts.
        digest: digest of the part's own text, without the parts it uses.
    """

    kind: Kind
    name: str
    place: str
    digest: str


class Text:
    """The text that a walk through code writes.

    Attributes:
        parts: (kind, name) -> the part, in the order of the walk.
        libraries: names used from libraries, such as ``math.floor``, ``builtins.open``.
    """

    def __init__(self) -> None:
        self.parts: dict[tuple[Kind, str], Part] = {}
        self.libraries: dict[str, None] = {}
        self._text: list[str] = []
        self._own: list[list[str]] = [[]]
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self._active: set[int] = set()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def digest(self) -> str:
        """SHA-256 of all tokens written, in hex."""
        return hashlib.sha256("\n".join(self._text).encode()).hexdigest()

    def put(self, *tokens: str) -> None:
        """Append tokens to the text and to the current part's own text, there without the numbers of definitions."""
        self._text += tokens
        self._own[-1] += ("#" if token.startswith("#") else token for token in tokens)

    @contextmanager
    def part(self, kind: Kind, name: str, location: str) -> Iterator[None]:
        """A context whose tokens are the own text of one part. A part stands in ``parts`` before the parts that it uses."""
        key = (kind, name)
        known = key in self.parts
        if not known:
            self.parts[key] = Part(kind=kind, name=name, place=location, digest="")
        self._own.append([])
        try:
            yield
        finally:
            digest = hashlib.sha256("\n".join(self._own.pop()).encode()).hexdigest()[:16]
            if not known:
                self.parts[key] = Part(kind=kind, name=name, place=location, digest=digest)
            elif kind in {"function", "class"}:  # a second part of the same name, such as lambdas of one module
                both = hashlib.sha256((self.parts[key].digest + digest).encode()).hexdigest()[:16]
                self.parts[key] = replace(self.parts[key], digest=both)

    def later(self, value: Any, write: Callable[[], None]) -> None:
        """Put the number of a definition. ``write`` is called once per definition, after the current definition, by ``finish``."""
        if self.number(value):
            self._waiting.append((self._numbers[id(value)], write))

    def finish(self) -> None:
        """Write all waiting definitions, including the definitions that these add."""
        while self._waiting:
            number, write = self._waiting.popleft()
            self.put(f"#{number}=")
            write()

    def number(self, value: Any) -> bool:
        """Put the number of a value that may occur again; True at its first occurrence."""
        known = self._numbers.get(id(value))
        self.put(f"#{len(self._numbers) if known is None else known}")
        if known is None:
            self._numbers[id(value)] = len(self._numbers)
            self._alive.append(value)
        return known is None
