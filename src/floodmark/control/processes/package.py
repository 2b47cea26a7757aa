"""Packages: copies of a workspace's code, made when a stream is deployed. Drivers load only their package, so editing files does not affect them."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from floodmark.core.errors import DefinitionError
from floodmark.lake.folder.paths import is_local
from floodmark.spec.workspace import Settings, Workspace

_RESOURCES = {
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".sql",
    ".csv",
    ".tsv",
    ".txt",
    ".ini",
    ".cfg",
    ".md",
    ".j2",
    ".avsc",
    ".proto",
}
"""Suffixes of resource files that modules read from their own folder."""
_LARGEST = 1_000_000
"""Largest size of a resource file, bytes."""
_TIME, _MODE = 315_532_800, 0o644
"""Modification time (1980, in s since 1970) and mode of every file of a package."""
DRAFT = ".draft"
"""Suffix of the folder of a package that is being written."""
_NO_CODE_FOLDERS = {"__pycache__", "node_modules", "site-packages", "_floodmark", "_delta_log"}
"""Names of folders that never contain code of a workspace."""
_BUILD_FOLDERS = {"build", "dist"}
"""Names of folders that contain copies of code, unless they are Python packages."""
_MARKER_FILES = ("pyvenv.cfg", "conda-meta", "_floodmark", "_delta_log")
"""Names that identify the folder of a Python environment, a lake or a table."""


def home(root: Path) -> Path:
    """The folder of a workspace's packages, logs and, by default, its control store."""
    return root / ".floodmark" / "control"


def has_store(settings: Settings, root: Path) -> bool:
    """True if a workspace has a control store. Creates nothing."""
    return settings.control is not None or (home(root) / "control.db").exists()


@dataclass(frozen=True, slots=True)
class Data:
    """The data in a workspace's folder, which is not packed.

    Args:
        inboxes: folders that connectors read. Folders that contain Python modules are packed nevertheless.
        tables: folders of lakes and tables.
        lands: path -> True if a source lands the file.
    """

    inboxes: frozenset[Path] = frozenset()
    tables: frozenset[Path] = frozenset()
    lands: Callable[[Path], bool] = lambda _: False

    @staticmethod
    def of(workspace: Workspace) -> Data:
        """The data of a workspace with absolute paths."""
        settings, folder = workspace.settings, Path(workspace.settings.folder)
        readers = [source.connector.located(folder).reader(source) for source in workspace.sources]
        there = [on_disk for on_disk in (reader.on_disk(0) for reader in readers) if on_disk is not None]
        lakes = [path for path in (settings.lake, settings.logs) if path and is_local(path)]
        tables = [*lakes, *(on_disk.folder for on_disk in there if on_disk.is_table)]
        return Data(
            inboxes=frozenset(Path(on_disk.folder) for on_disk in there if not on_disk.is_table),
            tables=frozenset(folder / path for path in tables),
            lands=lambda path: any(reader.lands(path) for reader in readers),
        )


def pack(root: Path, folder: Path, data: Data | None = None, say: Callable[[str], None] = print) -> str:
    """Copy the code of a workspace into a package. Returns the package's name, a hash of the code.

    Code is what drivers load: ``pyproject.toml``, Python modules, and resource files beside or below modules.

    Args:
        root: folder of the workspace.
        folder: folder of all packages.
        data: data in the workspace's folder, which is left out.
        say: called with a line per file that is too large to be packed.
    """
    paths, large = list[Path](), list[Path]()
    for path in sorted(_code(root, data or Data())):
        (large if path.suffix != ".py" and path.stat().st_size > _LARGEST else paths).append(path)
    for path in large:
        say(
            f"not in the package: {path.relative_to(root)}, {path.stat().st_size:,} bytes: a file that is not Python may have {_LARGEST:,}. "
            "Code that runs by itself does not find it beside its module: let it read the file by an absolute path, or land it as a source"
        )
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{len(name.encode())} {name} {len(content)} ".encode() + content)
    package = digest.hexdigest()[:16]
    with packing(folder):
        if (folder / package).is_dir():
            os.utime(folder / package)  # counts as new for the removal of old packages
        else:
            _write(folder / f"{package}{DRAFT}", files)
            (folder / f"{package}{DRAFT}").rename(folder / package)
    return package


@contextmanager
def packing(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of packages while a package is added or removed. Removes drafts left by killed processes."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        for left in folder.glob(f"*{DRAFT}"):
            shutil.rmtree(left)
        yield


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, with fixed times and modes so that the result depends only on names and contents."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(_MODE)
        os.utime(path, (_TIME, _TIME))


def _code(root: Path, data: Data) -> Iterator[Path]:
    packages = set[Path]()
    for base, names, files in os.walk(root):
        here = Path(base)
        names[:] = [name for name in names if not _has_no_code(here / name, data)]
        if here != root and (here.parent in packages or any(name.endswith(".py") for name in files)):
            packages.add(here)
        for path in (here / name for name in files if not name.startswith(".")):
            resource = here in packages and path.suffix in _RESOURCES and not data.lands(path)
            if path.is_file() and (path.suffix == ".py" or resource or path == root / "pyproject.toml"):
                yield path


def _has_no_code(folder: Path, data: Data) -> bool:
    """True if a folder contains no code of the workspace."""
    name = folder.name
    return (
        name.startswith(".")
        or name in _NO_CODE_FOLDERS
        or folder in data.tables
        or (folder in data.inboxes and not any(folder.glob("*.py")))
        or (name in _BUILD_FOLDERS and not (folder / "__init__.py").exists())
        or name.endswith(".egg-info")
        or any((folder / mark).exists() for mark in _MARKER_FILES)
    )


def load(folder: Path, environment: str, root: str, lake: str) -> Workspace:
    """Load the workspace of a package. Call it once per process, as it changes ``sys.path``.

    Args:
        folder: folder of the package.
        environment: name of the environment whose settings apply.
        root: folder of the original workspace, to which relative paths refer.
        lake: root of the lake.

    Raises:
        DefinitionError: DEFINITION-085, the package defines no workspace.
    """
    settings = tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("tool", {}).get("floodmark", {})
    sys.path.insert(0, str(folder))
    module = importlib.import_module(str(settings.get("definitions", "definitions")))
    workspace = module.workspace(environment)
    if not isinstance(workspace, Workspace):
        fix = "Deploy it again: floodmark start ..."
        raise DefinitionError(
            f"package {folder.name}", "a Workspace", type(workspace).__name__, fix, code="DEFINITION-085"
        )
    return workspace.at(root, lake=lake, code=str(folder))
