"""Canonical JSON and the digest of it: what makes two definitions the same."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

METHOD = 2
"""How fingerprints are made; another number whenever the same definition gets another digest. Records say which one made theirs."""

Comparison = Literal["same", "other", "unknown"]


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
