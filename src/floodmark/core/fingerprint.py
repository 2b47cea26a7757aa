"""Canonical JSON and the digest of it: what makes two definitions the same."""

from __future__ import annotations

import hashlib
import json


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; the same text for equal definitions on any machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
