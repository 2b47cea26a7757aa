"""``floodmark init --example``: each example is a workspace that loads; a wrong name, a folder that is there and a missing extra are named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from floodmark.cli.new import examples

from .conftest import Verb, program

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/pyproject.toml"))


def test_the_list_names_each_example_and_what_it_shows(verb: Verb) -> None:
    listed = json.loads(verb("init", "--example", "list", "--json").output)["examples"]
    assert sorted(listed) == NAMES
    assert all(listed.values())
    page = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert [name for name in NAMES if f"({name}/README.md)" not in page] == []


@pytest.mark.parametrize(
    "name", ["fraud", *(pytest.param(name, marks=pytest.mark.soak) for name in NAMES if name != "fraud")]
)
def test_an_example_is_a_workspace_that_loads(name: str, tmp_path: Path) -> None:
    made = program(tmp_path, "init", "mine", "--example", name, "--json")
    assert made.returncode == 0, made.stdout
    files = {path.name for path in (ROOT / "examples" / name).iterdir() if path.is_file()}
    assert set(json.loads(made.stdout)["files"]) == files
    valid = program(tmp_path / "mine", "validate")
    assert valid.returncode == 0, valid.stderr
    assert "valid: " in valid.stdout


def test_without_a_name_the_folder_is_called_as_the_example(verb: Verb, tmp_path: Path) -> None:
    assert verb("init", "--example", "fraud").exit_code == 0
    assert (tmp_path / "fraud" / "workspace.py").is_file()


def test_a_misspelt_example_is_named_with_the_nearest(verb: Verb, tmp_path: Path) -> None:
    result = verb("init", "mine", "--example", "taxi")
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-149 example 'taxi'\n")
    assert "Did you mean 'taxis'? Nothing was written." in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_with_files_is_left_as_it_is(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "fraud").mkdir()
    (tmp_path / "fraud" / "notes.txt").write_text("mine")
    result = verb("init", "--example", "fraud")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"LIFECYCLE-020 folder {tmp_path / 'fraud'}\n")
    assert [path.name for path in (tmp_path / "fraud").iterdir()] == ["notes.txt"]


def test_a_missing_extra_is_named_before_anything_is_written(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "_is_installed", lambda name: name != "delta-spark")
    result = verb("init", "--example", "differences")
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-150 example 'differences'\n")
    assert "no delta-spark" in result.stderr
    assert "pip install 'floodmark[spark]'" in result.stderr
    assert not list(tmp_path.iterdir())


def test_an_example_takes_neither_data_nor_sql(verb: Verb) -> None:
    for option in (["--sql"], ["--from", "x.csv"]):
        assert verb("init", "--example", "fraud", *option).exit_code == 2
    assert verb("init").exit_code == 2


@pytest.mark.soak
def test_a_wheel_brings_the_examples(tmp_path: Path) -> None:
    source = tmp_path / "clone"
    for name in ("src", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    brought = {
        name.split("/examples/")[1]
        for name in zipfile.ZipFile(wheel).namelist()
        if "/share/floodmark/examples/" in name
    }
    assert brought == {
        f"{name}/{file.name}" for name in NAMES for file in (ROOT / "examples" / name).iterdir() if file.is_file()
    }
    target = tmp_path / "installed"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    asked = "from floodmark.cli.new.examples import examples; print(*examples())"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={"PYTHONPATH": str(target)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == NAMES


def test_an_installation_brings_each_example() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["setuptools"]["data-files"] == {
        f"share/floodmark/examples/{name}": [f"examples/{name}/*"] for name in NAMES
    }
