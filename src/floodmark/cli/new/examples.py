"""Example workspaces as new workspaces: those of the repository's folder ``examples``, which an installation has among its data files."""

from __future__ import annotations

import re
import shutil
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import floodmark
from floodmark.cli.new.scaffold import check_new
from floodmark.core.errors import SetupError, closest

_INSTALLED = "share/floodmark/examples/"
"""Where the data files of an installation lie, below a folder that the installer chooses."""
_EXTRA = re.compile(r"^floodmark\[([\w, -]+)\]")


def examples() -> dict[str, list[Path]]:
    """Name of an example -> its files. In a clone those of its folder ``examples``, elsewhere those that were installed."""
    clone = Path(floodmark.__file__).parents[2] / "examples"
    if clone.is_dir():
        files = [file for file in clone.glob("*/*") if file.is_file()]
    else:
        installed = distribution("floodmark").files or ()
        files = [Path(str(file.locate())) for file in installed if _INSTALLED in file.as_posix()]
    names: dict[str, list[Path]] = {}
    for file in sorted(files):
        if file.parent.parent.name == "examples" and file.suffix != ".pyc":
            names.setdefault(file.parent.name, []).append(file)
    return names


def make_example(folder: Path, name: str) -> list[Path]:
    """Copy an example into a new folder.

    Args:
        folder: a new or empty folder.
        name: name of the example.

    Returns:
        The files written, relative to the folder.

    Raises:
        SetupError: SETUP-149, there is no such example; SETUP-150, an extra of floodmark that the example needs is not installed.
        LifecycleError: LIFECYCLE-020, the folder is not empty, or is a file.
    """
    known = examples()
    where = f"example '{name}'"
    if name not in known:
        fix = f"{closest(name, known)}Nothing was written."
        raise SetupError(where, f"one of {', '.join(known)}", "none of that name", fix, code="SETUP-149")
    check_new(folder)
    _check_extras(where, known[name])
    folder.mkdir(parents=True, exist_ok=True)
    for file in known[name]:
        shutil.copyfile(file, folder / file.name)
    return [Path(file.name) for file in known[name]]


def _check_extras(where: str, files: list[Path]) -> None:
    """Check that the extras in the dependencies of an example are installed.

    Raises:
        SetupError: SETUP-150, a package of an extra is missing.
    """
    project = tomllib.loads(next(file for file in files if file.name == "pyproject.toml").read_text("utf-8"))["project"]
    for match in filter(None, map(_EXTRA.match, project["dependencies"])):
        missing = [package for extra in match[1].split(",") for package in _missing(extra.strip())]
        if missing:
            fix = f"Install it: pip install '{match[0]}'. Nothing was written."
            raise SetupError(where, match[0], f"no {', '.join(missing)}", fix, code="SETUP-150")


def _missing(extra: str) -> list[str]:
    """Packages of an extra of floodmark that are not installed."""
    required = [
        text for text in distribution("floodmark").requires or () if re.search(rf"extra == ['\"]{extra}['\"]", text)
    ]
    names = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in required]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
