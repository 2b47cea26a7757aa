"""The installed packages that a cluster's workers need, as an archive that Spark unpacks beside each executor: for workers without an image that has them.

The archive has no Python: workers have one of the same minor version, and the same kind of machine, as packages hold compiled modules.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from floodmark.core.errors import SetupError

NAME = "environment"
"""Folder into which Spark unpacks the archive, in the working folder of an executor."""
_OWN = ("floodmark", "protobuf")
"""What each worker needs; Spark's Python state server asks for the second one by no requirement of its own."""
_LEFT_OUT = frozenset({"pysail", "pyspark", "pyspark-client", "py4j", "delta-spark"})
"""Workers have Spark, with its Python; the embedded engine does not run there."""
_REQUIRED = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?([^;]*)(?:;(.*))?$")


def settings(archive: Path) -> tuple[tuple[str, str], ...]:
    """Spark's settings with which workers use an archive."""
    return ("spark.archives", f"{archive}#{NAME}"), ("spark.executorEnv.PYTHONPATH", NAME)


def write(archive: Path, further: Iterable[str] = ()) -> tuple[str, ...]:
    """Write the installed packages, and what they require, into an archive. Returns their names with versions.

    Args:
        archive: to write, ``.tar.gz``.
        further: packages beside floodmark's own, such as those that a workspace imports.

    Raises:
        SetupError: SETUP-086, a package is not installed here.
    """
    packages = _closure((*_OWN, *further))
    partial = archive.with_name(f".{archive.name}.partial")
    with tarfile.open(partial, "w:gz", compresslevel=1) as target:
        for package in packages:
            for path, name in _files(package):
                target.add(path, name, recursive=False)
    partial.replace(archive)
    return tuple(f"{package.name} {package.version}" for package in packages)


def names(requirements: Iterable[str]) -> tuple[str, ...]:
    """The names of packages in requirements such as ``numpy>=2``."""
    return tuple(match[1] for text in requirements if (match := _REQUIRED.match(text.strip())))


def _closure(wanted: Sequence[str]) -> tuple[Distribution, ...]:
    """Packages and all that they require and that is installed, by name."""
    packages: dict[str, Distribution] = {}
    waiting = [(name, True) for name in wanted]
    while waiting:
        name, is_needed = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in packages or key in _LEFT_OUT:
            continue
        try:
            packages[key] = distribution(name)
        except PackageNotFoundError:
            if is_needed:
                fix = f"Install it: python -m pip install {name}. Or leave it out."
                raise SetupError(f"package '{name}'", "an installed one", "none", fix, code="SETUP-086") from None
            continue  # required on another system, or by another version of Python
        for text in packages[key].requires or ():
            match = _REQUIRED.match(text)
            if match and "extra" not in (match[3] or ""):
                waiting.append((match[1], False))
    return tuple(package for _, package in sorted(packages.items()))


def _files(package: Distribution) -> Iterator[tuple[Path, str]]:
    """(file, name in the archive) of a package: its modules and its metadata, without programs and compiled code."""
    root = Path(str(package.locate_file("")))
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if not file.parts[0].startswith(("..", "/")) and file.suffix not in {".pyc", ".pth"} and path.is_file():
            yield path, str(file)
    spec = find_spec(package.name.replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if not Path(folder).is_relative_to(root):  # an editable install
            modules = Path(folder)
            for path in sorted(modules.rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    yield path, str(path.relative_to(modules.parent))
