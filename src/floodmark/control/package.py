"""Packages: the code of a workspace as it was when a stream was deployed. What runs loads only that; editing a file changes nothing."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import shutil
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from floodmark.core.errors import DefinitionError
from floodmark.spec.workspace import Settings, Workspace

_SUFFIXES = {".py", ".toml", ".yaml", ".yml", ".json", ".sql"}
_LARGEST = 1_000_000
"""Bytes of a file that is taken for code."""


def home(root: Path) -> Path:
    """The folder of a workspace's packages, logs and, by default, its control store."""
    return root / ".floodmark" / "control"


def kept(settings: Settings, root: Path) -> bool:
    """Whether a workspace has a control store; nothing is made."""
    return settings.control is not None or (home(root) / "control.db").exists()


def pack(root: Path, folder: Path) -> str:
    """Keep the code of a workspace; its hash, which is the same for the same code.

    Args:
        root: folder of the workspace.
        folder: of all packages.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(_code(root)):
            archive.writestr(zipfile.ZipInfo(path.relative_to(root).as_posix()), path.read_bytes())
    name = hashlib.sha256(content.getvalue()).hexdigest()[:16]
    target = folder / name
    if not target.is_dir():
        draft = folder / f"{name}.{os.getpid()}.draft"
        with zipfile.ZipFile(content) as archive:
            archive.extractall(draft)
        try:
            draft.rename(target)
        except OSError:  # somebody else was faster
            shutil.rmtree(draft)
    return name


def _code(root: Path) -> Iterator[Path]:
    for base, folders, names in os.walk(root):
        here = Path(base)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in {"__pycache__", "node_modules", "_floodmark", "_delta_log"}
            and not (here / name / "pyvenv.cfg").exists()
            and not (here / name / "_floodmark").exists()
        ]
        for name in names:
            path = here / name
            if path.suffix in _SUFFIXES and not name.startswith(".") and path.stat().st_size <= _LARGEST:
                yield path


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
