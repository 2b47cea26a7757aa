"""Arrow's file system over buckets (``bucket``): Arrow reads and writes through the same client as everything else. Paths in it are ``bucket/key``."""

from __future__ import annotations

import io
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Any, NoReturn

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from floodmark.lake.folder import bucket

_IN_MEMORY = 64 << 20
"""Most bytes of a file being written that are in memory; larger files are on disk until they are complete."""


@dataclass(frozen=True)
class BucketFiles(FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no types
    """The files of the buckets of a scheme.

    Args:
        scheme: ``s3``, ``gs``, ``abfss``.
    """

    scheme: str

    def get_type_name(self) -> str:
        """The scheme."""
        return self.scheme

    def normalize_path(self, path: str) -> str:
        """The path."""
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """Type, size and date of files; a prefix of keys counts as a folder."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """The files below a folder, or the files and folders in it."""
        base = selector.base_dir.rstrip("/")
        name = base.partition("/")[0]
        if selector.recursive:
            infos = [self._file(name, stat) for stat in bucket.below(self._uri(base))]
        else:
            stats, folders = bucket.beside(self._uri(base))
            infos = [self._file(name, stat) for stat in stats]
            infos += [FileInfo(f"{base}/{folder}", FileType.Directory) for folder in folders]
        if not infos and not selector.allow_not_found:
            raise FileNotFoundError(self._uri(base))
        return infos

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - as pyarrow calls it
        """Nothing: a bucket has no folders."""

    def delete_dir(self, path: str) -> None:
        """Delete all files below a folder."""
        name = path.partition("/")[0]
        bucket.remove(self._uri(f"{name}/{stat.path}") for stat in list(bucket.below(self._uri(path))))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - as pyarrow calls it
        """Delete all files below a folder."""
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> NoReturn:
        """Refused."""
        raise PermissionError(self.scheme)

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        bucket.remove([self._uri(path)])

    def move(self, src: str, dest: str) -> NoReturn:
        """Refused: nothing here relies on a rename, which a bucket has not."""
        message = f"a bucket cannot rename {src} to {dest}"
        raise io.UnsupportedOperation(message)

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file in the store."""
        bucket.copy(self._uri(src), self._uri(dest))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading at any place. A small file is one request."""
        location = self._uri(path)
        front, size = bucket.front(location)
        if len(front) == size:
            return pa.BufferReader(front)
        return pa.PythonFile(_Ranges(location, size), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:  # noqa: ARG002 - as pyarrow calls it
        """Open a new file, which appears when it is closed."""
        return pa.PythonFile(_Whole(self._uri(path)), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> NoReturn:  # noqa: ARG002 - as pyarrow calls it
        """Refused: a file of a bucket is never changed."""
        raise io.UnsupportedOperation(path)

    def _uri(self, path: str) -> str:
        return f"{self.scheme}://{path}"

    def _info(self, path: str) -> FileInfo:
        stat = bucket.stat(self._uri(path)) if "/" in path.strip("/") else None
        if stat is not None:
            return FileInfo(path, FileType.File, size=stat.size, mtime_ns=stat.modified * 1_000_000)
        return FileInfo(path, FileType.Directory if bucket.holds(self._uri(path)) else FileType.NotFound)

    def _file(self, name: str, stat: bucket.Stat) -> FileInfo:
        return FileInfo(f"{name}/{stat.path}", FileType.File, size=stat.size, mtime_ns=stat.modified * 1_000_000)


class _Ranges(io.RawIOBase):
    """A large file, read by ranges."""

    def __init__(self, location: str, size: int) -> None:
        super().__init__()
        self._location, self._size, self._at = location, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        length = left if size < 0 else min(size, left)
        content = bucket.read_range(self._location, self._at, length) if length else b""
        self._at += len(content)
        return content

    def size(self) -> int:
        return self._size


class _Whole(io.RawIOBase):
    """A file that is written to the store when it is closed."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self._location = location
        self._content: IO[bytes] = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed with this file

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        return self._content.write(content)

    def tell(self) -> int:
        return self._content.tell()

    def close(self) -> None:
        if not self.closed:
            self._content.seek(0)
            bucket.write_stream(self._location, self._content)
            self._content.close()
        super().close()
