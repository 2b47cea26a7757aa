"""Canonical form of declarations, and its digest: two definitions are the same if their canonical forms are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import attrs

METHOD = 2
"""Version of the way in which fingerprints are made: incremented whenever the same definition gets another digest. Fingerprints name it: ``m2:...``."""

Comparison = Literal["same", "other", "unknown"]

SKIPPED: Final[Mapping[str, Any]] = {"skipped": True}
"""Metadata of a field that is not part of the canonical form."""

OMITTED: Final[Mapping[str, Any]] = {"omitted": True}
"""Metadata of a field that is part of the canonical form unless it has its default."""


def renamed(name: str) -> Mapping[str, Any]:
    """Metadata of a field that has another name in the canonical form."""
    return {"name": name}


class Declared:
    """A declaration made of fields (``attrs``), whose canonical form follows from them: field -> JSON value."""

    __slots__ = ()
    entry: ClassVar[str | None] = None
    """The entry of the canonical form that names the kind of declaration; None if there is only one kind."""
    called: ClassVar[str | None] = None
    """The kind as that entry names it; None for the name of the class."""

    def canonical(self) -> dict[str, Any]:
        """Everything that decides what the declaration means, as JSON values. Versions are digests of it."""
        kind: dict[str, Any] = {} if self.entry is None else {self.entry: self.called or type(self).__name__}
        return kind | fields_of(self)


def fields_of(declaration: Any) -> dict[str, Any]:
    """The fields of a declaration as JSON values, as their metadata says: ``SKIPPED``, ``OMITTED``, ``renamed``."""
    return {
        setting.metadata.get("name", setting.name): form(getattr(declaration, setting.name))
        for setting in attrs.fields(type(declaration))
        if "skipped" not in setting.metadata
        and not ("omitted" in setting.metadata and getattr(declaration, setting.name) == setting.default)
    }


def form(value: Any) -> Any:
    """A value as JSON values: by its ``canonical``, tuples as lists, others as they are."""
    if hasattr(value, "canonical"):
        return value.canonical()
    return [form(item) for item in value] if isinstance(value, tuple) else value


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; the same text for equal definitions on any machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def marked(text: str) -> str:
    """A digest with the method that made it: ``m2:3f9a...``."""
    return f"m{METHOD}:{text}"


def method_of(text: str) -> int:
    """The method that made a digest; 1 for a digest that names none."""
    mark, colon, _ = text.partition(":")
    return int(mark[1:]) if colon and mark.startswith("m") and mark[1:].isdigit() else 1


def hex_of(text: str) -> str:
    """The digits of a digest, without its method."""
    return text.rpartition(":")[2]


def compare(before: str, after: str) -> Comparison:
    """Whether two digests are of the same definition; unknown if different methods made them."""
    if before == after:
        return "same"
    return "other" if method_of(before) == method_of(after) else "unknown"
