"""What the unit tests share: the year of flights is read and sorted once, and written whole once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from demo import inbox


@pytest.fixture(scope="session", autouse=True)
def _flights_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbox, "_read_flights", cache(inbox._read_flights))
        yield


@pytest.fixture(scope="session")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inbox of all of 2013; nobody writes into it."""
    folder = tmp_path_factory.mktemp("year")
    inbox.write_inbox(folder)
    return folder
