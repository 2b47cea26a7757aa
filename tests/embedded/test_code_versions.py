"""Changed code behind whatever import style is another version."""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_code import CHANGES, STYLES, prices


@pytest.mark.feature("Z23")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_behind_an_import_is_another_version(tmp_path: Path, style: str, change: str) -> None:
    before, again = (prices(tmp_path, style) for _ in range(2))
    assert before.version == again.version != prices(tmp_path, style, CHANGES[change]).version
