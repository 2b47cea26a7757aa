"""What a machine refuses in a step is a failure that says what to do, as in the command line. Needs no Java."""

from __future__ import annotations

import errno

import dagster as dg
import pytest

from floodmark.orchestration.work import failing


def test_a_disk_that_is_full_is_a_failure_with_a_code() -> None:
    with (
        pytest.raises(
            dg.Failure, match=r"SETUP-052 step 'sales': expected room on the disk, got .*: /lake/x"
        ) as caught,
        failing("sales"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", "/lake/x")
    assert not caught.value.allow_retries


def test_what_nobody_has_foreseen_stays_what_it_is() -> None:
    with pytest.raises(FileNotFoundError), failing("sales"):
        raise FileNotFoundError(errno.ENOENT, "No such file", "/x")
