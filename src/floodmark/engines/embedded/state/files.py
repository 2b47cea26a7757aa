"""Files of a checkpoint: on a local disk in their place; of a checkpoint in a bucket, copies in a local folder, which are sent once they are written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder import bucket, staging


def local(checkpoint: str) -> str:
    """The local folder of a checkpoint's files: its own, or a new folder for those of a bucket."""
    if not bucket.is_bucket(checkpoint):
        return checkpoint
    folder = staging.new_folder(checkpoint)
    for name in ("batches", "merged"):
        (folder / name).mkdir()
    return str(folder)


def fetch(checkpoint: str, folder: str, names: Iterable[str]) -> None:
    """Fetch files of a checkpoint in a bucket into its local folder; nothing for a local checkpoint.

    Raises:
        FileNotFoundError: a file does not exist.
    """
    if checkpoint != folder:
        bucket.fetch((f"{checkpoint}/{name}", Path(folder, name)) for name in names)


@contextmanager
def working(checkpoint: str, names: Iterable[str]) -> Iterator[str]:
    """Context manager with the local folder of a checkpoint that holds the named files."""
    folder = local(checkpoint)
    try:
        fetch(checkpoint, folder, names)
        yield folder
    finally:
        staging.release(checkpoint, Path(folder))


def replace(checkpoint: str, folder: str, name: str) -> None:
    """Send a file that no stream writes at the same time; nothing for a local checkpoint."""
    if checkpoint != folder:
        bucket.write(f"{checkpoint}/{name}", Path(folder, name))


def digest(folder: str, name: str) -> tuple[str, int]:
    """(SHA-256, bytes) of a file in the local folder."""
    with Path(folder, name).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest(), stream.tell()


def create(checkpoint: str, folder: str, name: str) -> None:
    """Send a file that only one process may write; nothing for a local checkpoint, where a lock keeps other processes away.

    Raises:
        LifecycleError: LIFECYCLE-220, another process has written the file: it runs the same stream.
    """
    if checkpoint == folder or bucket.create(f"{checkpoint}/{name}", Path(folder, name).read_bytes()):
        return
    fix = "Keep one process per stream. This one has committed nothing of the micro-batch and can go: floodmark status shows the stream."
    got = f"'{name}' of another process"
    raise LifecycleError(f"checkpoint {checkpoint}", "one process that runs the stream", got, fix, code="LIFECYCLE-220")
