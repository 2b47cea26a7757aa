"""What the unit tests share: the year of flights is read and sorted once, and not for each inbox that is written of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from demo import inbox


@pytest.fixture(scope="session", autouse=True)
def _flights_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbox, "_read_flights", cache(inbox._read_flights))
        yield
