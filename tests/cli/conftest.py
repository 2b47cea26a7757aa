"""Verbs in this process without a JVM, and as a program where one is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import pytest
from click.testing import CliRunner, Result

from floodmark.cli.main import cli
from floodmark.cli.new.scaffold import scaffold

WORKSPACE_MODULES = ("definitions", "assets", "operators", "resources")
Verb = Callable[..., Result]


@pytest.fixture
def fresh_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workspaces of different tests use the same module names.

    None is compiled into a file: Python takes that for the module's, too, if the module is edited within the same second and keeps its length.
    """
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    kept, path = {name: module for name, module in sys.modules.items() if _of_a_workspace(name)}, list(sys.path)
    for name in kept:
        del sys.modules[name]
    yield
    forget_modules()
    sys.modules.update(kept)
    sys.path[:] = path


def forget_modules() -> None:
    """Let the next verb read the files of the workspace again."""
    for name in [name for name in sys.modules if _of_a_workspace(name)]:
        del sys.modules[name]


def _of_a_workspace(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in WORKSPACE_MODULES


@pytest.fixture
def verb(fresh_modules: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Run a verb in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli, list(arguments))


@pytest.fixture
def shop(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scaffolded workspace, as the current folder."""
    scaffold(tmp_path / "shop", None)
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


def command(*arguments: str) -> list[str]:
    """The program's command line."""
    return [sys.executable, "-m", "floodmark.cli.main", *arguments]


def program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run floodmark as a program."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLOODMARK_LAKE")}
    return forked.run(command(*arguments), cwd=folder, env=environment)
