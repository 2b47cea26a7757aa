"""Fixtures of streams that go on behind savepoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from engines import embedded

if TYPE_CHECKING:
    from floodmark.lake.folder.paths import Lake


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """What comes of ``test_savepoints``' streams in one go, on the embedded engine."""
    from floodmark.lake.folder.paths import Lake

    from .test_savepoints import largest, put, totals

    lake = Lake(str(tmp_path_factory.mktemp("truth")))
    for until, end in ((60, False), (120, False), (180, True)):
        put(lake, until, end=end)
    for one in (totals, largest):
        embedded().run_unbounded(one, lake, until_caught_up=True)
    return lake
