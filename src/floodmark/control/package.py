"""Packages: the code of a workspace as it was when a stream was deployed. What runs loads only that; editing a file changes nothing."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from floodmark.core.errors import DefinitionError
from floodmark.spec.workspace import Settings, Workspace

_DATA = {".toml", ".yaml", ".yml", ".json", ".sql", ".csv", ".txt"}
"""Endings of files that modules read from their own folder."""
_LARGEST = 1_000_000
"""Bytes of such a file."""
_OTHERS = {"__pycache__", "node_modules", "site-packages", "_floodmark", "_delta_log"}
"""Folders that hold no code of a workspace, wherever they are."""
_BUILT = {"build", "dist"}
"""Folders that hold copies of code, unless they are packages of Python."""


def home(root: Path) -> Path:
    """The folder of a workspace's packages, logs and, by default, its control store."""
    return root / ".floodmark" / "control"


def kept(settings: Settings, root: Path) -> bool:
    """Whether a workspace has a control store; nothing is made."""
    return settings.control is not None or (home(root) / "control.db").exists()


def pack(root: Path, folder: Path, inboxes: Iterable[Path] = ()) -> str:
    """Keep the code of a workspace; its hash, which is the same for the same code.

    Code is what drivers load: ``pyproject.toml``, modules of Python, and what lies beside modules or below them for them to read.

    Args:
        root: folder of the workspace.
        folder: of all packages.
        inboxes: folders that connectors read; files in them are rows, not code.
    """
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(_code(root, frozenset(inboxes)))}
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{len(name.encode())} {name} {len(content)} ".encode() + content)
    package = digest.hexdigest()[:16]
    target = folder / package
    if not target.is_dir():
        draft = folder / f"{package}.{uuid.uuid4().hex}.draft"
        for name, content in files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_bytes(content)
        try:
            draft.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(draft)
    return package


def _code(root: Path, inboxes: frozenset[Path]) -> Iterator[Path]:
    packages = set[Path]()
    for base, names, files in os.walk(root):
        here = Path(base)
        names[:] = [name for name in names if not _foreign(here / name, inboxes)]
        if here != root and (here.parent in packages or any(name.endswith(".py") for name in files)):
            packages.add(here)
        for path in (here / name for name in files if not name.startswith(".")):
            data = here in packages and path.suffix in _DATA and path.stat().st_size <= _LARGEST
            if path.suffix == ".py" or data or path == root / "pyproject.toml":
                yield path


def _foreign(folder: Path, inboxes: frozenset[Path]) -> bool:
    """Whether a folder holds no code of the workspace."""
    name = folder.name
    return (
        name.startswith(".")
        or name in _OTHERS
        or (folder in inboxes and not any(folder.glob("*.py")))
        or (name in _BUILT and not (folder / "__init__.py").exists())
        or name.endswith(".egg-info")
        or (folder / "pyvenv.cfg").exists()
        or (folder / "_floodmark").exists()
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
    found = module.workspace(environment)
    if not isinstance(found, Workspace):
        fix = "Deploy it again: floodmark start ..."
        raise DefinitionError(f"package {folder.name}", "a Workspace", type(found).__name__, fix, code="DEFINITION-085")
    return found.at(root, lake=lake)
