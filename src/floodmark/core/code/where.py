"""The surroundings of a name: the variables it can refer to, and the source that defines them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from floodmark.core.code.outline import constant
from floodmark.core.code.source import Source, source_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The surroundings of a name in code: everything the name can refer to.

    Args:
        variables: of the module, name -> value.
        cells: of the enclosing functions, name -> value.
        source: the file of the code; None if the file cannot be read.
    """

    variables: Mapping[str, Any]
    cells: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None

    @property
    def module(self) -> str:
        """The name of the module."""
        return str(self.variables.get("__name__", ""))

    @property
    def loading(self) -> bool:
        """True while the module is being imported, when variables defined further down do not exist yet."""
        return bool(getattr(self.variables.get("__spec__"), "_initializing", False))

    @property
    def file(self) -> str:
        """The file of the module."""
        return str(self.variables.get("__file__") or "")

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        name = self.variables.get("__package__")
        return self.module.rpartition(".")[0] if name is None else str(name)

    @staticmethod
    def of_function(function: FunctionType) -> Where:
        """The surroundings of a name in the body of a function."""
        source = source_of(function.__code__.co_filename, function.__globals__)
        return Where(variables=function.__globals__, cells=cells(function), source=source)

    @staticmethod
    def of_module(module: ModuleType, name: str = "") -> Where:
        """The surroundings of a name in a module. Adds the variable ``name`` if only the module's ``__getattr__`` supplies it."""
        variables = vars(module)
        if name and name not in variables:
            variables = {**variables, name: getattr(module, name)}
        file = getattr(module, "__file__", None)
        return Where(
            variables=variables, source=source_of(file, vars(module)) if file and file.endswith(".py") else None
        )


def cells(function: FunctionType) -> dict[str, Any]:
    """{name: value} of the closure of a function, without variables that have no value yet."""
    values: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    return values


def portable(text: str, where: Where) -> str:
    """The token of a text. A path inside the package's folder is written relative to the module, so that moving the code keeps the digest.

    A path that the source spells out literally is written as it is.
    """
    folder = str(Path(where.file).parent) if where.file else ""
    root = folder
    for _ in range(where.package.count(".") + 1 if where.package else 0):
        root = str(Path(root).parent)
    inside = len(root) > 1 and (text == root or text.startswith(root + os.sep))
    if not inside or (where.source is not None and text in where.source.text):
        return constant(text)
    return f"path {Path(os.path.relpath(text, folder)).as_posix()}"
