"""Where a name stands: the variables that it may be one of, and the file that says so."""

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
    """Where a name stands: what it may be."""

    variables: Mapping[str, Any]
    cells: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None

    @property
    def module(self) -> str:
        """The name of the module."""
        return str(self.variables.get("__name__", ""))

    @property
    def loading(self) -> bool:
        """Whether the module is still being imported: what stands further down is not there yet."""
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
        """The variables of a function."""
        source = source_of(function.__code__.co_filename, function.__globals__)
        return Where(variables=function.__globals__, cells=cells(function), source=source)

    @staticmethod
    def of_module(module: ModuleType, name: str = "") -> Where:
        """The variables of a module; with one that it only has when it is asked for."""
        variables = vars(module)
        if name and name not in variables:
            variables = {**variables, name: getattr(module, name)}
        file = getattr(module, "__file__", None)
        return Where(
            variables=variables, source=source_of(file, vars(module)) if file and file.endswith(".py") else None
        )


def cells(function: FunctionType) -> dict[str, Any]:
    """The variables a function has taken along from around it; without those that have no value yet."""
    values: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return values


def portable(text: str, where: Where) -> str:
    """A text; a path beside the module it is used in is told from there, as the code may lie elsewhere tomorrow."""
    folder = str(Path(where.file).parent) if where.file else ""
    root = folder
    for _ in range(where.package.count(".") + 1 if where.package else 0):
        root = str(Path(root).parent)
    inside = len(root) > 1 and (text == root or text.startswith(root + os.sep))
    if not inside or (where.source is not None and text in where.source.text):
        return constant(text)
    return f"path {Path(os.path.relpath(text, folder)).as_posix()}"
