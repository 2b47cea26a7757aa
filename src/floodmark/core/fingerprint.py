"""Canonical form of declarations, and its digest: two definitions are the same if their canonical forms are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import attrs

METHOD = 2
"""Version of the method that computes fingerprints, incremented whenever the same definition gets another digest. Prefix of each fingerprint: ``m2:...``."""

Comparison = Literal["same", "other", "unknown"]

SKIPPED: Final[Mapping[str, Any]] = {"skipped": True}
"""Metadata of a field that is not part of the canonical form."""

OMITTED: Final[Mapping[str, Any]] = {"omitted": True}
"""Metadata of a field that is part of the canonical form unless the field has its default value."""


def renamed(name: str) -> Mapping[str, Any]:
    """Metadata of a field that has another name in the canonical form."""
    return {"name": name}


class Declared:
    """A declaration made of ``attrs`` fields. Its canonical form maps each field to a JSON value."""

    __slots__ = ()
    entry: ClassVar[str | None] = None
    """The entry of the canonical form that names the kind of declaration; None if there is only one kind."""
    called: ClassVar[str | None] = None
    """The value of ``entry``; None means the name of the class."""

    def canonical(self) -> dict[str, Any]:
        """{entry: JSON value} of everything that decides the meaning of the declaration. Versions are digests of this form."""
        kind: dict[str, Any] = {} if self.entry is None else {self.entry: self.called or type(self).__name__}
        return kind | fields_of(self)


def fields_of(declaration: Any) -> dict[str, Any]:
    """(declaration) -> {entry: JSON value} of its fields. The fields' metadata applies: ``SKIPPED``, ``OMITTED``, ``renamed``."""
    return {
        setting.metadata.get("name", setting.name): form(getattr(declaration, setting.name))
        for setting in attrs.fields(type(declaration))
        if "skipped" not in setting.metadata
        and not ("omitted" in setting.metadata and getattr(declaration, setting.name) == setting.default)
    }


def form(value: Any) -> Any:
    """(value) -> JSON value: ``value.canonical()`` if the value has that method; a list for a tuple; any other value unchanged."""
    if hasattr(value, "canonical"):
        return value.canonical()
    return [form(item) for item in value] if isinstance(value, tuple) else value


def canonical(value: object) -> str:
    """JSON text with sorted keys and no spaces; equal definitions give the same text on any machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def marked(text: str) -> str:
    """A digest with the method that made it: ``m2:3f9a...``."""
    return f"m{METHOD}:{text}"


def method_of(text: str) -> int:
    """The number of the method in a digest's prefix; 1 for a digest without a prefix."""
    mark, colon, _ = text.partition(":")
    return int(mark[1:]) if colon and mark.startswith("m") and mark[1:].isdigit() else 1


def hex_of(text: str) -> str:
    """The digits of a digest, without its method."""
    return text.rpartition(":")[2]


def compare(before: str, after: str) -> Comparison:
    """``same`` for equal digests, ``other`` for different digests of one method, ``unknown`` for different digests of different methods."""
    if before == after:
        return "same"
    return "other" if method_of(before) == method_of(after) else "unknown"
