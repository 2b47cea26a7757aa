"""Packages: the code of a workspace as it was when a stream was deployed. What runs loads only that; editing a file changes nothing."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from floodmark.connectors.files import FileReader
from floodmark.core.errors import DefinitionError
from floodmark.lake.paths import is_local
from floodmark.spec.source import DeltaTable, Files
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
"""Endings of files that modules read from their own folder."""
_LARGEST = 1_000_000
"""Bytes of such a file."""
_TIME, _MODE = 315_532_800, 0o644
"""Of every file of a package: 1980, s since 1970; its owner may write it."""
DRAFT = ".draft"
"""The ending of a package that is being put in or taken out."""
_OTHERS = {"__pycache__", "node_modules", "site-packages", "_floodmark", "_delta_log"}
"""Folders that hold no code of a workspace, wherever they are."""
_BUILT = {"build", "dist"}
"""Folders that hold copies of code, unless they are packages of Python."""
_MARKS = ("pyvenv.cfg", "conda-meta", "_floodmark", "_delta_log")
"""What is in the folder of an environment of Python, of a lake, or of a table."""


def home(root: Path) -> Path:
    """The folder of a workspace's packages, logs and, by default, its control store."""
    return root / ".floodmark" / "control"


def has_store(settings: Settings, root: Path) -> bool:
    """Whether a workspace has a control store; nothing is made."""
    return settings.control is not None or (home(root) / "control.db").exists()


@dataclass(frozen=True, slots=True)
class Data:
    """What lies in the folder of a workspace and is no code.

    Args:
        inboxes: folders that connectors read; one that has modules of Python in it may hold files for them.
        tables: folders of tables.
        lands: whether a source lands a file.
    """

    inboxes: frozenset[Path] = frozenset()
    tables: frozenset[Path] = frozenset()
    lands: Callable[[Path], bool] = lambda _: False

    @staticmethod
    def of(workspace: Workspace) -> Data:
        """Of a workspace with absolute paths."""
        settings, folder = workspace.settings, Path(workspace.settings.folder)
        readers, tables = list[FileReader](), [settings.lake, *([settings.logs] if settings.logs else [])]
        for source in workspace.sources:
            match source.connector:
                case Files(path=path) as files if is_local(path):
                    readers.append(FileReader(replace(files, path=str(folder / path)), source.contract, source.name))
                case DeltaTable(path=path):
                    tables.append(path)
                case _:
                    pass
        return Data(
            inboxes=frozenset(Path(reader.folder) for reader in readers),
            tables=frozenset(folder / path for path in tables if is_local(path)),
            lands=lambda path: any(reader.lands(path) for reader in readers),
        )


def pack(root: Path, folder: Path, data: Data | None = None, say: Callable[[str], None] = print) -> str:
    """Keep the code of a workspace; its hash, which is the same for the same code.

    Code is what drivers load: ``pyproject.toml``, modules of Python, and what lies beside modules or below them for them to read.

    Args:
        root: folder of the workspace.
        folder: of all packages.
        data: what lies there and is no code.
        say: told which files are too large to be code.
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
            os.utime(folder / package)  # it is new again for those that remove old ones
        else:
            _write(folder / f"{package}{DRAFT}", files)
            (folder / f"{package}{DRAFT}").rename(folder / package)
    return package


@contextmanager
def packing(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of packages while one is put in or taken out; what a killed process has left of one goes."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        for left in folder.glob(f"*{DRAFT}"):
            shutil.rmtree(left)
        yield


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """A folder that depends on the names and contents of its files alone."""
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
        names[:] = [name for name in names if not _foreign(here / name, data)]
        if here != root and (here.parent in packages or any(name.endswith(".py") for name in files)):
            packages.add(here)
        for path in (here / name for name in files if not name.startswith(".")):
            resource = here in packages and path.suffix in _RESOURCES and not data.lands(path)
            if path.is_file() and (path.suffix == ".py" or resource or path == root / "pyproject.toml"):
                yield path


def _foreign(folder: Path, data: Data) -> bool:
    """Whether a folder holds no code of the workspace."""
    name = folder.name
    return (
        name.startswith(".")
        or name in _OTHERS
        or folder in data.tables
        or (folder in data.inboxes and not any(folder.glob("*.py")))
        or (name in _BUILT and not (folder / "__init__.py").exists())
        or name.endswith(".egg-info")
        or any((folder / mark).exists() for mark in _MARKS)
    )


def load(folder: Path, environment: str, root: str, lake: str) -> Workspace:
    """The workspace of a package, in a process of its own.

    Args:
        folder: of the package.
        environment: settings to use.
        root: folder of the workspace it was made of; relative paths start there.
        lake: root of the tables.

    Raises:
        DefinitionError: DEFINITION-085, the package has no workspace.
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
    return workspace.at(root, lake=lake)
