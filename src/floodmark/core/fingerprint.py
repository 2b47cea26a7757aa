"""Canonical JSON and the digest of it: what makes two definitions the same."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Literal
from uuid import UUID
from zoneinfo import ZoneInfo

METHOD = 2
"""How fingerprints are made; another number whenever the same definition gets another digest. Records say which one made theirs."""

Comparison = Literal["same", "other", "unknown"]


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; the same text for equal definitions on any machine.

    Raises:
        TypeError: some part of it has no form that is the same on any machine: an open file, a lock, an object of any class.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_plain)


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def marked(text: str) -> str:
    """A digest with the method that made it: ``m2:3f9a...``."""
    return f"m{METHOD}:{text}"


def method_of(text: str) -> int:
    """The method that made a digest; 1 where none is named, as none was then."""
    mark, colon, _ = text.partition(":")
    return int(mark[1:]) if colon and mark.startswith("m") and mark[1:].isdigit() else 1


def hex_of(text: str) -> str:
    """The digits of a digest, without its method."""
    return text.rpartition(":")[2]


def compare(before: str, after: str) -> Comparison:
    """Whether two digests are of the same definition; unknown where two methods made them."""
    if before == after:
        return "same"
    return "other" if method_of(before) == method_of(after) else "unknown"


def incomparable(settings: Mapping[str, object]) -> str | None:
    """The first setting without a canonical form, and why, for people; None when all have one."""
    for name, value in sorted(settings.items()):
        try:
            canonical(value)
        except (TypeError, ValueError, RecursionError) as error:
            return f"self.{name}, a {type(value).__name__} ({error})"
    return None


def _plain(value: object) -> object:
    """What JSON does not know, as what it knows."""
    kind = type(value).__name__
    match value:
        case set() | frozenset():
            return {"set": sorted(canonical(item) for item in value)}
        case timedelta():
            return {kind: value // timedelta(microseconds=1)}
        case date() | time():
            return {kind: value.isoformat()}
        case Decimal() | UUID() | PurePath() | ZoneInfo():
            return {kind: str(value)}
        case bytes() | bytearray():
            return {kind: value.hex()}
        case Enum():
            return {type(value).__qualname__: value.name, "value": value.value}
        case re.Pattern():
            return {kind: value.pattern, "flags": value.flags}
        case range():
            return {kind: [value.start, value.stop, value.step]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {type(value).__qualname__: {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}}
    msg = f"a {kind} has no form that can be compared"
    raise TypeError(msg)
