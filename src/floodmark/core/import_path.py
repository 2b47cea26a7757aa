"""The folders a process of Python's on this machine has to search to import what this one imports."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path


def import_folders(path: Sequence[str]) -> tuple[str, ...]:
    """The folders of a ``sys.path`` that a worker on this machine does not search by itself: a workspace's, wherever the command was typed."""
    known = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own = (place for place in path if Path(place).is_dir() and place not in {"", *known})
    return tuple(
        dict.fromkeys(p for p in own if not {"site-packages", "dist-packages", "lib-dynload"} & {*Path(p).parts})
    )
