"""A disk of few bytes, which a test fills."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILLER = "filler"


@contextmanager
def mounted(folder: Path, size: str, *, owner: Path | None = None) -> Iterator[Path]:
    """A new disk at a folder until the block ends; the test is left out where no disk may be mounted.

    Args:
        folder: is made.
        size: of the disk, as ``mount`` takes it.
        owner: a file whose owner is that of the disk, too.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a disk takes the rights of root")
    try:
        if owner is not None:
            os.chown(folder, owner.stat().st_uid, owner.stat().st_gid)
            folder.chmod(0o700)
        yield folder
    finally:
        # lazily: what still holds a file on it, as a server does, keeps the space until it ends
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte free."""
    with (folder / FILLER).open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(b"\0" * size)
            except OSError:
                size //= 2


def empty(folder: Path) -> None:
    """Take back what has filled it."""
    (folder / FILLER).unlink(missing_ok=True)
