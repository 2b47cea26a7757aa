"""A landing that goes on beside a test, which waits for what it does and says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from deltalake.exceptions import TableNotFoundError

TRIES, SECONDS = 3_000, 0.1


class Following:
    """A landing in a thread; ``stop`` ends it."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failed: list[BaseException] = []
        self._pause = threading.Event()

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds, which may be of a table that is not there yet; fail if the landing has, or if it never does."""
        for _ in range(TRIES):
            with suppress(TableNotFoundError):
                if holds():
                    break
            if self.failed:
                break
            self._pause.wait(SECONDS)
        assert not self.failed, self.failed
        assert holds()

    def until_said(self, text: str, capsys: Any) -> None:
        """Wait until the landing has said a text."""
        printed = list[str]()

        def is_said() -> bool:
            printed.append(capsys.readouterr().err)
            return text in "".join(printed)

        self.until(is_said)


@contextmanager
def following(land: Callable[..., object], **how: Any) -> Iterator[Following]:
    """A landing that goes on until the block ends; what it fails with is raised then.

    Args:
        land: called with ``until_caught_up``, ``stop`` and ``poll_seconds``.
        how: further settings of it.
    """
    followed = Following()

    def follow() -> None:
        try:
            land(until_caught_up=False, stop=followed.stop, poll_seconds=0.05, **how)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            followed.failed.append(error)

    landing = threading.Thread(target=follow, daemon=True)
    landing.start()
    try:
        yield followed
    finally:
        followed.stop.set()
        landing.join()
    assert not followed.failed, followed.failed
