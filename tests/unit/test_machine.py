"""What the machine refuses is told in words: one table from errno, whoever says it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from floodmark.core import machine
from floodmark.core.errors import ExecutionError, SetupError

FULL = "Job aborted: [TASK_WRITE_FAILED] Task failed.\nCaused by: java.io.IOException: No space left on device\n\tat x"
RUST = "Generic LocalFileSystem error: Unable to open file /lake/a#1: Read-only file system (os error 30)"
MKDIRS = "java.io.IOException: Mkdirs failed to create file:/lake/x/_temporary/0 (exists=false, cwd=file:/)"
DUCKDB = 'IO Error: Could not write file "/tmp/x/duckdb_temp_1.tmp": No space left on device'
EXPIRED = (
    "An error occurred while calling o50.load.\n: java.nio.file.AccessDeniedException: s3://b/lake: getFileStatus on s3://b/lake: "
    "software.amazon.awssdk.services.s3.model.S3Exception: The token has expired (Service: S3, Status Code: 400):ExpiredToken\n\tat x"
)
DENIED = "o50.parquet: java.nio.file.AccessDeniedException: /lake/logs"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOTDIR, "SETUP-050"),
        (errno.EROFS, "SETUP-051"),
        (errno.EACCES, "SETUP-051"),
        (errno.EPERM, "SETUP-051"),
        (errno.ENOSPC, "SETUP-052"),
        (errno.EDQUOT, "SETUP-052"),
        (errno.EFBIG, "SETUP-052"),
        (errno.EMFILE, "SETUP-053"),
        (errno.ENFILE, "SETUP-053"),
        (errno.EIO, "SETUP-056"),
        (errno.ESTALE, "SETUP-056"),
    ],
)
def test_each_refusal_of_the_system_has_a_code_and_names_the_path(number: int, code: str) -> None:
    error = machine.refused(OSError(number, os.strerror(number), "/lake/x"), "landing of 'orders'", "Then go on.")
    assert error is not None
    assert (error.code, error.where) == (code, "landing of 'orders'")
    assert error.got.endswith(": /lake/x")
    assert error.fix.endswith("Then go on.")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (FULL, "SETUP-052"),
        (RUST, "SETUP-051"),
        (MKDIRS, "SETUP-051"),
        (DENIED, "SETUP-051"),
        (DUCKDB, "SETUP-052"),
        (EXPIRED, "SETUP-057"),
    ],
)
def test_java_and_rust_say_the_same_in_their_own_words(text: str, code: str) -> None:
    error = machine.refused(RuntimeError(text), "a run")
    assert error is not None
    assert error.code == code


def test_what_delta_rs_draws_is_left_out() -> None:
    arrow = "\x1b[31m\u21b3\x1b[0m"
    text = f"Generic LocalFileSystem error\n  {arrow} Unable to copy data to file\n   {arrow} No space left on device (os error 28)\n"
    error = machine.refused(OSError(text), "upkeep")
    assert error is not None
    assert error.got == "a disk that is full: No space left on device (os error 28)"


def test_a_refusal_is_found_behind_the_exception_that_reports_it() -> None:
    error = RuntimeError("the write failed")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    refusal = machine.refused(error, "a run")
    assert refusal is not None
    assert refusal.code == "SETUP-052"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/x"),
        ValueError("Permission denied"),
        RuntimeError("floodmark.core.errors.UserCodeError: USER-001 java.io.IOException: No space left on device"),
        ExecutionError("a run", "room", "none", "Make room.", code="EXECUTION-009"),
    ],
)
def test_what_the_machine_does_not_refuse_stays_what_it_is(error: Exception) -> None:
    assert machine.refused(error, "a run") is None


def test_a_lake_below_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "deep" / "below"):
        with pytest.raises(SetupError, match=f"SETUP-050 lake: expected a folder, got .*{file}"):
            machine.refuse_file(str(path), "lake")
    machine.refuse_file(str(tmp_path / "new" / "lake"), "lake")
    machine.refuse_file("s3://bucket/lake", "lake")


def test_a_lake_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.refuse_read_only(str(tmp_path / "new"), "lake")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)  # root may write everywhere
    with pytest.raises(SetupError, match=f"SETUP-051 lake: .* no permission: {tmp_path}"):
        machine.refuse_read_only(str(tmp_path / "new"), "lake")
    machine.refuse_read_only("s3://bucket/lake", "lake")


def test_a_bucket_that_does_not_answer_is_told_with_what_arrow_says() -> None:
    text = "When resolving region for bucket 'b': AWS Error NETWORK_CONNECTION during HeadBucket operation: curlCode: 6"
    error = machine.refused(OSError(text), "floodmark status")
    assert error is not None
    assert (error.code, error.got) == ("SETUP-057", f"an error of it: {text}")


def test_a_query_that_does_not_fit_into_memory_is_told_with_what_sail_says() -> None:
    text = "Failed to allocate additional 2.0 KB for GroupedHashAggregateStream[0] - 0.0 B remain available for the total memory pool: fair(pool_size: 4.0 MB)"
    error = machine.refused(
        RuntimeError(f"execution failed\n{text}"), "unbounded run of a@1", "Go on with: floodmark run a"
    )
    assert error is not None
    assert (error.code, error.got.rsplit(": Failed", 1)[1]) == ("SETUP-058", text.removeprefix("Failed"))
    assert error.fix.endswith("Go on with: floodmark run a")


def test_a_look_at_a_bucket_that_is_forbidden_says_no_more_than_403() -> None:
    text = "o5.load.\n: java.nio.file.AccessDeniedException: s3://b/x: software.amazon.awssdk.services.s3.model.S3Exception: (Service: S3, Status Code: 403, Request ID: null)"
    error = machine.refused(RuntimeError(text), "a run")
    assert error is not None
    assert error.code == "SETUP-057"
    assert error.fix.startswith("Renew the credentials, or give them the right")
