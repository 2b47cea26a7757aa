"""Refusals of the machine as errors for people: a file in place of a folder, a full or read-only disk, too little memory.

One table maps errno to code and text. Python raises an ``OSError`` for a refusal; delta-rs and Java describe the refusal in the text of their own
exceptions. Floodmark's commands and runs call ``refused`` before they report an exception as unforeseen.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from floodmark.core.errors import ExecutionError, FloodmarkError, SetupError


@dataclass(frozen=True, slots=True)
class _Refusal:
    """One kind of refusal.

    Args:
        code: code of the error.
        expected: the condition that was required.
        got: the actual condition; the path follows.
        fix: the user's next step.
    """

    code: str
    expected: str
    got: str
    fix: str


_BEHIND_A_FILE = _Refusal(
    "SETUP-050", "a folder", "a path that leads through a file", "Name another folder, or move that file away."
)
_NOT_WRITABLE = _Refusal(
    "SETUP-051",
    "files that this user may read and write",
    "no permission",
    "See who may: ls -ld on that path. Then give this user the right (chmod, chown, a mount that is not read-only), or act on another lake: --lake FOLDER.",
)
_FULL = _Refusal("SETUP-052", "room on the disk", "a disk that is full", "Make room (df -h shows where).")
_LIMITED = _Refusal(
    "SETUP-052", "room on the disk", "a limit of the size of files", "Raise the limit (ulimit -f unlimited)."
)
_TOO_MANY_FILES = _Refusal(
    "SETUP-053", "room for open files", "the limit of open files", "Raise the limit (ulimit -n 65536)."
)
_BROKEN = _Refusal(
    "SETUP-056",
    "a disk that answers",
    "an error of the device",
    "See what the system says: dmesg, or the mount's server.",
)
_TOO_LONG = _Refusal(
    "SETUP-059",
    "names that the file system takes",
    "one that is too long",
    "Shorten it: most file systems take 255 bytes for a name and 4,096 for a path.",
)
_REFUSALS: Mapping[int, _Refusal] = MappingProxyType(
    {
        errno.ENOTDIR: _BEHIND_A_FILE,
        errno.EROFS: _NOT_WRITABLE,
        errno.EACCES: _NOT_WRITABLE,
        errno.EPERM: _NOT_WRITABLE,
        errno.ENOSPC: _FULL,
        errno.EDQUOT: _FULL,
        errno.EFBIG: _LIMITED,
        errno.ENAMETOOLONG: _TOO_LONG,
        errno.EMFILE: _TOO_MANY_FILES,
        errno.ENFILE: _TOO_MANY_FILES,
        errno.EIO: _BROKEN,
        errno.ESTALE: _BROKEN,
    }
)
_UNREACHABLE = _Refusal(
    "SETUP-057",
    "a store that answers",
    "an error of it",
    "Check the name, the network and the credentials (AWS_ACCESS_KEY_ID, AWS_REGION and their like in the environment).",
)
_NO_MEMORY = _Refusal(
    "SETUP-058",
    "queries that fit into the memory of the embedded engine",
    "more than that, also with what can be spilled to disk",
    "Give it more, Settings(memory=MEGABYTES) in resources/settings.py, or run it on Spark: --engine spark.",
)
_OF_SAIL = re.compile(r"[^\n]*Failed to allocate additional [^\n]*memory pool[^\n]*")
_OF_STORE = re.compile(
    r"[^\n]*(?:AWS Error|google::cloud::Status|GcsFileSystem|Azure|Generic S3 error|Generic GCS error)[^\n]*"
    r"|(?:s3|s3a|gs|gcs|abfss?|az|wasbs?)://\S+: [^\n]*"
)
"""A message about a bucket, which has no errno: floodmark's own begins with the URI."""
_OF_SPARK = re.compile(
    r"^(?!\s*at )[^\n]*(?:software\.amazon\.awssdk|\bfs\.s3a\.\w+(?:Exception|Error)|\.StoreError: |PermissionError: s3\w*://)[^\n]*",
    re.MULTILINE,
)
"""A line about a bucket in the text of an exception of Spark's: of its client in Java, or of floodmark in its Python workers."""
_MOST = 600
"""Characters of such a line: Java names an exception within another one."""
_OF_CODE = MappingProxyType(
    {
        "NoSuchBucket": "Make the bucket, or correct its name: --lake, or lake and logs in resources/settings.py.",
        "Expired": "Renew the credentials.",
        "InvalidAccessKeyId": "Correct the credentials.",
        "SignatureDoesNotMatch": "Correct the credentials.",
        "RequestTimeTooSkewed": "Set the clock of this machine.",
        "AuthorizationHeaderMalformed": "Set AWS_REGION, or Store(region=...) in resources/settings.py, to the region of the bucket.",
        "PermanentRedirect": "Set AWS_REGION, or Store(region=...) in resources/settings.py, to the region of the bucket.",
        "Status Code: 403": "Renew the credentials, or give them the right to read and write the bucket.",  # a look has no body that says which
    }
)
"""A store's name of a refusal, or the beginning of one -> the user's next step."""
_DRAWN = re.compile(r"\x1b\[[\d;]*m|\u21b3 ?")
"""Colours and arrows in messages of delta-rs."""
_OF_RUST = re.compile(r"[^\n]*(?:\(os error (\d+)\)|Os \{ code: (\d+),[^\n]*)")
_OF_JAVA = re.compile(r"\bjava\.[\w.]+(?:Exception|Error): [^\n]*")
_OF_DUCKDB = re.compile(r"^IO Error: [^\n]*")
_OF_FLOODMARK = re.compile(r"floodmark\.core\.errors\.\w+: ")
_JAVA_NAMES = {"AccessDeniedException": errno.EACCES, "ReadOnlyFileSystemException": errno.EROFS}
_MKDIRS = "Mkdirs failed to create"
"""Hadoop's message for a folder that cannot be created. The message gives no reason."""


def refused(error: BaseException, where: str, afterwards: str = "") -> SetupError | None:
    """The error for an exception that is, or is caused by, a refusal of the machine; None for any other exception.

    Args:
        error: searched together with its causes.
        where: the action that failed, for the error.
        afterwards: the user's step after the fix, appended to the fix.
    """
    for cause in _chain(error):
        number, path = _refusal(cause)
        refusal = _REFUSALS.get(number)
        is_own = isinstance(cause, OSError) and cause.errno is None
        if store := (_OF_STORE if is_own else _OF_SPARK).search(str(cause)):
            refusal, path = _UNREACHABLE, store[0].strip()[:_MOST]
            step = next((step for code, step in _OF_CODE.items() if code in str(cause)), None)
            refusal = refusal if step is None else replace(refusal, fix=step)
        if pool := _OF_SAIL.search(str(cause)):
            refusal, path = _NO_MEMORY, pool[0].strip()
        if refusal is not None:
            fix = f"{refusal.fix} {afterwards}".strip()
            return SetupError(where, refusal.expected, f"{refusal.got}: {path}", fix, code=refusal.code)
    return None


@contextmanager
def boundary(
    where: str, again: str, kinds: tuple[type[Exception], ...], text: Callable[[Exception], str]
) -> Iterator[None]:
    """Convert exceptions of an engine or the disk to errors for people. The original exception stays the cause.

    Args:
        where: the action in progress, for the error.
        again: the command that resumes the action.
        kinds: types of exceptions to convert.
        text: (exception) -> a short description.

    Raises:
        ExecutionError: EXECUTION-003, any other exception of ``kinds``.
        SetupError: SETUP-050..059, the machine refuses: the disk is full or cannot be written, memory is short.
    """
    try:
        yield
    except kinds as error:
        refusal = refused(error, where, f"Nothing is lost or there twice; run it again: {again}")
        if refusal is not None:
            raise refusal from error
        fix = f"Nothing is lost or there twice. Mend the cause, then run it again: {again}"
        raise ExecutionError(where, "to get through", text(error), fix, code="EXECUTION-003") from error


def refuse_file(path: str, where: str) -> None:
    """Refuse a path that cannot become a folder. A URI is not checked.

    Raises:
        SetupError: SETUP-050, the path or its nearest existing ancestor is a file.
    """
    there = _nearest(path)
    if there is not None and not there.is_dir():
        raise _raised(errno.ENOTDIR, there, where)


def refuse_read_only(path: str, where: str) -> None:
    """Refuse a folder that this user cannot write to. A URI is not checked.

    Raises:
        SetupError: SETUP-051, the folder or its nearest existing ancestor is not writable.
    """
    there = _nearest(path)
    if there is not None and not os.access(there, os.W_OK | os.X_OK):
        raise _raised(errno.EACCES, there, where)


def _raised(number: int, path: Path, where: str) -> SetupError:
    error = refused(OSError(number, os.strerror(number), str(path)), where)
    assert error is not None
    return error


def _nearest(path: str) -> Path | None:
    """The path, or its nearest ancestor that exists; None for URIs."""
    if "://" in path:
        return None
    start = Path(path).absolute()
    return next((folder for folder in (start, *start.parents) if os.path.lexists(folder)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and its causes, up to the first FloodmarkError, which is an error for people already."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen and not isinstance(cause, FloodmarkError):
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def _refusal(error: BaseException) -> tuple[int, str]:
    """(exception) -> (errno of the refusal, path or message); (0, "") if the exception is no refusal."""
    if isinstance(error, OSError) and error.errno is not None and error.errno in _REFUSALS:
        return error.errno, str(error.filename or error.strerror)
    text = _DRAWN.sub("", str(error))
    if _OF_FLOODMARK.search(text):  # floodmark raised it in one of Spark's processes: the text names the fault
        return 0, ""
    if rust := _OF_RUST.search(text):
        return int(rust[1] or rust[2]), rust[0].strip()
    if duckdb := _OF_DUCKDB.match(text):
        return _named(duckdb[0]), duckdb[0]
    return next(((number, line) for line in _of_java(text) if (number := _of_line(line))), (0, ""))


def _of_java(text: str) -> Iterator[str]:
    return (found[0] for found in _OF_JAVA.finditer(text))


def _of_line(line: str) -> int:
    """The errno that a message of Java stands for; 0 for any other message."""
    if number := _named(line):
        return number
    return next(
        (number for name, number in _JAVA_NAMES.items() if name in line), errno.EACCES if _MKDIRS in line else 0
    )


def _named(line: str) -> int:
    """The errno whose ``strerror`` text a line contains; 0 if there is none."""
    return next((number for number in _REFUSALS if os.strerror(number) in line), 0)
