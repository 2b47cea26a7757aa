"""A test with a browser is repeated once where a page was late; no other failure is, and what was repeated is named."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = """
import pytest
from playwright.sync_api import TimeoutError as LatePageError

TRIES = []

@pytest.fixture
def page(tmp_path):
    return tmp_path

def test_late_once(page):
    assert not list(page.iterdir()), "a repeat has fresh folders"
    (page / "mine").touch()
    TRIES.append("late once")
    if TRIES.count("late once") == 1:
        raise LatePageError("60 s")

def test_late_twice(page):
    raise LatePageError("60 s")

def test_wrong(page):
    TRIES.append("wrong")
    assert TRIES.count("wrong") > 1

def test_another_error_of_that_name(page):
    TRIES.append("built in")
    if TRIES.count("built in") == 1:
        raise TimeoutError

def test_late_without_a_page():
    TRIES.append("no page")
    if TRIES.count("no page") == 1:
        raise LatePageError("60 s")
"""


@pytest.fixture
def run() -> ModuleType:
    """``tests/run.py``."""
    spec = importlib.util.spec_from_file_location("run_of_tests", TESTS / "run.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def test_only_a_late_page_is_repeated_once_and_named(run: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_pages.py").write_text(PROGRAM)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  browser: x\n  spark: x\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    tries = run._tries(tmp_path / "report.xml")
    repeated = run._repeated(tries)
    assert {run._name(case) for case in repeated} == {"test_pages.py::test_late_once", "test_pages.py::test_late_twice"}
    cases = [case for case in tries if case not in repeated]
    assert run._counts(cases) == (5, 4, 0)
    assert "test_pages.py::test_late_once" not in run._failures(cases)
