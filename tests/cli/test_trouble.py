"""Everyday trouble with a machine: an error with a code before anything slow starts, never a traceback."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest
from processes import paths

from floodmark.engines.spark.setup import home, jars, java

from .conftest import Verb


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
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


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (["land", "orders", "--engine", "spark"], "floodmark land orders --engine embedded"),
        (["--environment", "prod", "land", "orders"], "floodmark --environment prod land orders --engine embedded"),
        (["land", "orders", "--engine=spark"], "floodmark land orders --engine embedded"),
    ],
)
def test_without_java_its_installation_and_the_embedded_engine_are_offered(
    verb: Verb, shop: Path, no_java: None, arguments: list[str], instead: str
) -> None:
    result = verb(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-001 Java\n")
    assert f"Run `{java.install_command()}`." in result.stderr
    assert result.stderr.endswith(f" Here: `{instead}`.\n")
    assert verb(*instead.split()[1:]).exit_code == 0


_WITHOUT_JAVA = """
from floodmark.engines.spark.setup import java
java._USUAL_HOMES = ()
from floodmark.cli.main import main
main()
"""


def test_a_program_without_java_says_so_on_spark_and_works_on_the_embedded_engine(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": str(tmp_path), "PYTHONPATH": paths()}

    def floodmark(*arguments: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "shop" if (tmp_path / "shop").exists() else tmp_path
        command = [sys.executable, "-c", _WITHOUT_JAVA, *arguments]
        return forked.run(command, cwd=folder, env=environment)

    assert "Rows and results" in floodmark("--help").stdout
    for arguments in (["init", "shop"], ["land", "orders"], ["run", "hourly_sales"]):
        done = floodmark(*arguments)
        assert done.returncode == 0, done.stderr
    for options in (["--force"], ["--unbounded", "--until-caught-up"]):
        refused = floodmark("run", "hourly_sales", *options, "--engine", "spark")
        assert refused.returncode == 1
        assert "SETUP-001 Java\n" in refused.stderr
        typed = " ".join(["floodmark run hourly_sales", *options, "--engine embedded"])
        assert refused.stderr.endswith(f" Here: `{typed}`.\n"), refused.stderr
        done = floodmark(*typed.split()[1:])
        assert done.returncode == 0, done.stderr


def test_without_spark_the_extra_is_named(verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "find_spec", lambda _: None)
    result = verb("land", "orders", "--engine", "spark")
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-004 Spark\n")
    assert "fix:      Run `pip install 'floodmark[spark]'`" in result.stderr


def test_a_misspelt_master_is_named_with_the_closest_one_before_anything_is_fetched(
    verb: Verb, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "cache_folder", lambda: tmp_path / "empty")
    monkeypatch.setenv("FLOODMARK_MASTER", "lcoal[2]")
    result = verb("land", "orders", "--engine", "spark")
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-054 Spark master\n")
    assert "got:      'lcoal[2]'\n  fix:      Did you mean 'local'?" in result.stderr
    assert not (tmp_path / "empty").exists()


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


def test_an_empty_lake_is_wrong_usage_and_not_the_current_folder(verb: Verb, shop: Path) -> None:
    result = verb("status", "--lake", "")
    assert result.exit_code == 2
    assert "--lake is empty" in result.stderr


@pytest.mark.parametrize(
    ("name", "project"), [("1 bad-name", "1-bad-name"), ('l"\u00e4den', "l-den"), ("\u00fc", "workspace")]
)
def test_a_workspace_in_an_odd_folder_can_be_entered_and_installed(
    verb: Verb, tmp_path: Path, name: str, project: str
) -> None:
    result = verb("init", name, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["next"][0] == f"cd {shlex.quote(name)}"
    settings = tomllib.loads((tmp_path / name / "pyproject.toml").read_text("utf-8"))
    assert settings["project"]["name"] == project


def test_a_single_file_as_a_source_is_refused_by_validate(verb: Verb, shop: Path) -> None:
    assets = shop / "assets" / "orders.py"
    text = assets.read_text("utf-8")
    assert 'Files("inbox/orders' in text
    start = text.index('Files("') + len('Files("')
    end = text.index('"', start)
    assets.write_text(text[:start] + "inbox/orders/orders_2025-03-01_09.csv" + text[end:], "utf-8")
    result = verb("validate")
    assert result.exit_code == 1
    assert result.stderr.startswith("CONNECTOR-003 source 'orders'\n")
