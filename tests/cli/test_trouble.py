"""Everyday trouble with a machine: an error with a code before anything slow starts, never a traceback."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from floodmark.engines.spark import java

from .conftest import Verb


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_USUAL_HOMES", ())
    java.find_java.cache_clear()
    yield
    java.find_java.cache_clear()


@pytest.mark.parametrize(
    "arguments",
    [
        ["land", "orders"],
        ["status"],
        ["plan"],
        ["run", "hourly_sales"],
        ["run", "hourly_sales", "--unbounded"],
        ["savepoint", "list"],
        ["maintain"],
        ["start", "hourly_sales"],
        ["rollback", "hourly_sales", "--to", "x"],
        ["quarantine", "show", "hourly_sales"],
    ],
)
def test_a_lake_that_is_a_file_is_refused_by_every_verb(verb: Verb, shop: Path, arguments: list[str]) -> None:
    (shop / "notes.txt").touch()
    result = verb(*arguments, "--lake", "notes.txt")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"SETUP-050 lake {shop / 'notes.txt'}\n  expected: a folder\n")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [["land", "orders"], ["init", "other"]])
def test_without_java_its_installation_is_offered_and_nothing_is_made(
    verb: Verb, shop: Path, no_java: None, arguments: list[str]
) -> None:
    result = verb(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-001 Java\n")
    assert f"Run `{java.install_command()}`." in result.stderr
    assert not (shop / "other").exists()


def test_a_misspelt_master_is_named_with_the_closest_one(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_MASTER", "lcoal[2]")
    result = verb("land", "orders")
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-054 Spark master\n")
    assert "got:      'lcoal[2]'\n  fix:      Did you mean 'local'?" in result.stderr


def test_a_lake_that_cannot_be_written_is_refused_before_spark_starts(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    result = verb("land", "orders")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"SETUP-051 lake {shop / 'lake'}\n")
    assert "no permission" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/lake/x"), "SETUP-051"),
        (OSError(errno.ENOSPC, "No space left on device", "/lake/x"), "SETUP-052"),
    ],
)
def test_what_the_machine_refuses_in_the_middle_of_a_verb_has_a_code_too(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, code: str
) -> None:
    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr("floodmark.observe.status.status", refused)
    result = verb("status")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{code} floodmark status\n")
    assert "Traceback" not in result.stderr
