"""The folders that another Python process on this machine has to search to import the same modules as this process."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path


def import_folders(path: Sequence[str]) -> tuple[str, ...]:
    """(``sys.path``) -> its folders that a worker on this machine does not search by default, such as a workspace's; in order, without duplicates."""
    known = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own = (place for place in path if Path(place).is_dir() and place not in {"", *known})
    return tuple(
        dict.fromkeys(p for p in own if not {"site-packages", "dist-packages", "lib-dynload"} & {*Path(p).parts})
    )
