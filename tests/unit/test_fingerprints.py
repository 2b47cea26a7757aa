"""The canonical form of every declaration stays as it is: a stream goes on only where its version is the one it was started with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from declared import declarations, operators

from floodmark.core.fingerprint import digest

DIGESTS = Path(__file__).parent / "fingerprints.json"
"""Name -> the first digits of the digest. Written anew with ``python tests/unit/test_fingerprints.py``, which a release note has to say."""


@pytest.fixture(scope="module")
def forms() -> dict[str, Any]:
    """Name -> canonical form."""
    return dict(declarations())


def _digests(forms: dict[str, Any]) -> dict[str, str]:
    return {name: digest(form)[:12] for name, form in forms.items()}


def test_no_fingerprint_of_a_declaration_changes(forms: dict[str, Any]) -> None:
    wanted = json.loads(DIGESTS.read_text())
    now = _digests(forms)
    changed = {name: forms.get(name) for name in {**wanted, **now} if wanted.get(name) != now.get(name)}
    assert not changed


def test_a_declaration_that_is_made_twice_is_equal_and_another_one_is_not(forms: dict[str, Any]) -> None:
    first, again = dict(operators()), dict(operators())
    assert {name: hash(one) for name, one in first.items()} == {name: hash(one) for name, one in again.items()}
    for name, one in first.items():
        assert one == again[name]
        assert sum(one == other for other in first.values()) == sum(forms[name] == forms[other] for other in first)


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps(_digests(dict(declarations())), indent=0) + "\n")
