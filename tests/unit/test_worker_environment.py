"""The archive of packages for workers of a cluster."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from floodmark.core.errors import SetupError
from floodmark.engines.spark.setup import environment

_LARGE = frozenset({"pyarrow", "pandas", "deltalake", "duckdb", "sqlalchemy", "numpy"})


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of floodmark and what it requires, without what is large."""
    path = tmp_path_factory.mktemp("archive") / "environment.tar.gz"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(environment, "_LEFT_OUT", environment._LEFT_OUT | _LARGE)
        environment.write(path)
    return path


def test_modules_are_imported_from_the_archive_alone(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "worker", filter="data")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'worker')!r}); import floodmark.core.errors as e, pydantic, importlib.metadata as m;"
        "print(e.__file__, pydantic.__file__, m.version('floodmark'))"
    )
    done = subprocess.run([sys.executable, "-IS", "-c", program], capture_output=True, text=True, check=True)
    own, library, version = done.stdout.split()
    assert own == str(tmp_path / "worker/floodmark/core/errors.py")
    assert library == str(tmp_path / "worker/pydantic/__init__.py")
    assert version


def test_the_archive_has_no_spark_and_no_compiled_python(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith(("pyspark", "pysail")) or name.endswith(".pyc")]


def test_a_package_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="SETUP-086 package 'no-such-package': expected an installed one, got none"):
        environment.write(tmp_path / "a.tar.gz", ["no-such-package"])


def test_names_of_requirements() -> None:
    assert environment.names(["numpy>=2", "scikit-learn [x] ; python_version > '3'", "a"]) == (
        "numpy",
        "scikit-learn",
        "a",
    )
