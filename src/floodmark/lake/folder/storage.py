"""Storage: local folders and buckets behind one pyarrow file system, atomic file replacement, and reading with a digest."""

from __future__ import annotations

import glob
import hashlib
import io
import os
import shutil
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

from pyarrow import ArrowInvalid, NativeFile
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, PyFileSystem

from floodmark.core.errors import SetupError
from floodmark.lake.folder import bucket
from floodmark.lake.folder.arrow import BucketFiles

_CHUNK = 1 << 20
_SYNCS = 8
"""Files that are synced in parallel."""
_ABANDONED_SECONDS = 3600
"""Age above which a draft counts as left by a killed process, and is removed."""


def file_system(location: str) -> tuple[FileSystem, str]:
    """Path or URI -> (file system, path in it). Files of buckets are reached through ``bucket``.

    Raises:
        SetupError: SETUP-042, no file system for the URI.
    """
    if "://" not in location:
        return LocalFileSystem(), str(Path(location).expanduser().absolute())
    if bucket.is_bucket(location):
        scheme, name, key = bucket.split(location)
        return PyFileSystem(BucketFiles(scheme)), f"{name}/{key}".rstrip("/")
    try:
        files, path = FileSystem.from_uri(location)
    except (ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and "libjvm" not in str(error):
            raise  # a store that does not answer
        got = "one whose library is not on this machine" if isinstance(error, OSError) else "another one"
        fix = "Correct it: --lake, or lake and logs in resources/settings.py."
        raise SetupError(
            location, "a folder, or a URI of a store: file, s3, s3a, gs or abfss", got, fix, code="SETUP-042"
        ) from error
    return files, path


def folders(location: str) -> list[str]:
    """Names of the subfolders of a folder, sorted, without hidden ones; empty if the folder does not exist."""
    return _names(location, FileType.Directory)


def files(location: str) -> list[str]:
    """Names of the files of a folder, sorted, without hidden ones; empty if the folder does not exist."""
    return _names(location, FileType.File)


def _names(location: str, kind: FileType) -> list[str]:
    system, base = file_system(location)
    if isinstance(system, LocalFileSystem):  # a tenth of the time, as no entry is looked at by itself
        try:
            with os.scandir(base) as listing:
                is_kind = os.DirEntry.is_dir if kind == FileType.Directory else os.DirEntry.is_file
                names = [entry.name for entry in listing if is_kind(entry)]
        except FileNotFoundError:
            names = []
    else:
        entries = system.get_file_info(FileSelector(base, allow_not_found=True))
        names = [entry.base_name for entry in entries if entry.type == kind]
    return sorted(name for name in names if not name.startswith("."))


def remove(location: str) -> None:
    """Remove a file, if it exists."""
    if bucket.is_bucket(location):
        bucket.remove([location])
        return
    system, path = file_system(location)
    if system.get_file_info(path).type != FileType.NotFound:
        system.delete_file(path)


def read(location: str) -> bytes | None:
    """The content of a file; None if it does not exist."""
    if bucket.is_bucket(location):
        return bucket.read(location)
    files, path = file_system(location)
    if files.get_file_info(path).type == FileType.NotFound:
        return None
    with files.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())


def write(location: str, content: bytes) -> None:
    """Create or replace a file atomically: readers see the old content or the new. A local file is synced before the replacement."""
    if bucket.is_bucket(location):
        bucket.write(location, content)
        return
    files, path = file_system(location)
    files.create_dir(path.rsplit("/", 1)[0])
    if not isinstance(files, LocalFileSystem):
        with files.open_output_stream(path) as stream:  # an object appears once it is complete
            stream.write(content)
        return
    target = Path(path)
    draft = Path(f"{path}.{uuid.uuid4().hex}.draft")  # unique across hosts and threads
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _remove_abandoned(target, draft.stat().st_mtime)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def create(location: str, content: bytes) -> bool:
    """Create a file unless it exists: of several writers at once, one creates the file. A local file is synced before it appears.

    Stores other than buckets and disks, and disks without hard links, have no such request: of several writers, each may return True there.

    Args:
        location: path or URI of the file.
        content: bytes that no other writer would write, such as bytes with a random id.

    Returns:
        True if the file has this content; False if another writer has created the file.
    """
    if bucket.is_bucket(location):
        return bucket.create(location, content)
    files, path = file_system(location)
    if not isinstance(files, LocalFileSystem):
        is_new = read(location) is None
        if is_new:
            write(location, content)
        return is_new
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.draft")
    try:
        draft.write_bytes(content)
        sync(draft)
        _remove_abandoned(target, draft.stat().st_mtime)
        try:
            os.link(draft, target)
        except FileExistsError:
            return False
        except OSError:  # a disk without hard links
            if target.exists():
                return False
            draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return True


def exists(location: str) -> bool:
    """True if there is a file, not a folder."""
    if bucket.is_bucket(location):
        return bucket.stat(location) is not None
    return os.path.isfile(location)  # noqa: PTH113 - a start asks a dozen times, and a Path takes longer than the answer


def _remove_abandoned(target: Path, now: float) -> None:
    """Remove the drafts of a file that killed writers have left.

    Args:
        target: the file.
        now: the date of a draft just written, so that the clock of the files says how old another draft is: the clock of this machine may be
            ahead of it, and a draft that is being written would be removed.
    """
    drafts = f"{glob.escape(target.name)}.*.draft"
    for abandoned in (*target.parent.glob(drafts), *target.parent.glob(f".{drafts}")):
        with suppress(FileNotFoundError):  # another writer has just removed or replaced it
            if now - abandoned.stat().st_mtime > _ABANDONED_SECONDS:
                abandoned.unlink()


class Hashed(io.RawIOBase):
    """A readable file that counts and digests (SHA-256) the bytes read."""

    def __init__(self, raw: NativeFile) -> None:
        super().__init__()
        self._raw, self._digest = raw, hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Read the next bytes into a buffer. Returns their number; 0 at the end."""
        view = memoryview(buffer)  # type: ignore[arg-type]  # what io passes is a buffer
        data = self._raw.read(len(view))
        view[: len(data)] = data
        self.size += len(data)
        self._digest.update(data)
        return len(data)

    def copy_to(self, target: IO[bytes]) -> None:
        """Copy the content into another file and rewind that file."""
        shutil.copyfileobj(self, target, _CHUNK)
        target.seek(0)

    def finish(self) -> tuple[int, str]:
        """Read the remaining bytes. Returns (size in bytes, hex digest) of the whole file."""
        buffer = bytearray(_CHUNK)
        while self.readinto(buffer):
            pass
        return self.size, self._digest.hexdigest()


def sync(path: Path) -> None:
    """Sync a local file's content, or a local folder's names, to disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[Path]) -> None:
    """``sync`` several paths in parallel, which a disk handles together."""
    with ThreadPoolExecutor(_SYNCS) as threads:
        for done in [threads.submit(sync, path) for path in paths]:
            done.result()


def open_hashed(location: str) -> Hashed:
    """Open a file for one sequential read."""
    files, path = file_system(location)
    return Hashed(files.open_input_stream(path, compression=None))


def digest_of(location: str) -> str:
    """SHA-256 of a file's content, in hex."""
    return open_hashed(location).finish()[1]
