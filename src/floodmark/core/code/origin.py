"""Origin of code: the user's code is followed; code of Python, an installed package or floodmark counts by its name."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

_LIBRARIES = tuple(
    os.path.join(str(Path(path).resolve()), "")  # noqa: PTH118 - a text with the separator at its end
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)
_FLOODMARK = os.path.join(str(Path(__file__).resolve().parent.parent.parent), "")  # noqa: PTH118 - as above
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_ROOMS = re.compile(r"^(floodmark\.spec)\.(?:assets|graph|keyed|windowing|rows|values)\.")

_MOVED = {"floodmark.spec.connector": "floodmark.spec.source"}
"""Module of declarations, without its room -> the module they were in before."""
_SAME = {"posixpath": "os.path", "ntpath": "os.path", "nt": "os", "posix": "os"}


_OWN: set[str] = set()
"""Top-level packages that count as the user's even if they are installed."""


def count_as_own(module: str) -> None:
    """Count a package as the user's even if it is installed, because the package defines operators.

    Args:
        module: a module of the package.
    """
    package = module.split(".", maxsplit=1)[0]
    if package != "floodmark" and package not in sys.stdlib_module_names:
        _OWN.add(package)


def of_library(value: type | FunctionType | ModuleType) -> bool:
    """True if a function, class or module belongs to Python, an installed package or floodmark."""
    if isinstance(value, FunctionType):
        if str(value.__globals__.get("__name__", "")).split(".")[0] in _OWN:
            return False
        file = value.__code__.co_filename
        return file_of_library(file) if not file.startswith("<") else module_of_library(str(value.__module__))
    if isinstance(value, ModuleType):
        return _of_library(value, value.__name__)
    return module_of_library(value.__module__)


def module_of_library(name: str) -> bool:
    """(name of a module) -> True if the module belongs to Python, an installed package or floodmark. Does not load the module."""
    if name.split(".", maxsplit=1)[0] in _OWN:
        return False
    module = sys.modules.get(name)
    if module is not None:
        return _of_library(module, name)
    if name.split(".", maxsplit=1)[0] in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(name.split(".", maxsplit=1)[0])
    except (ImportError, ValueError):
        return False
    file = None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return file is not None and file_of_library(file)


def _of_library(module: ModuleType, name: str) -> bool:
    if name.split(".", maxsplit=1)[0] in _OWN:
        return False
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if file is None:
        return name.split(".", maxsplit=1)[0] in sys.stdlib_module_names
    return file_of_library(file)


@cache
def file_of_library(file: str) -> bool:
    """True if a file belongs to Python, an installed package or floodmark. A package installed in editable mode is the user's."""
    if file.startswith("<") or file in {"built-in", "frozen"}:
        return file.startswith("<frozen") or not file.startswith("<")
    path = Path(file).resolve()
    return not _INSTALLED.isdisjoint(path.parts) or str(path).startswith((*_LIBRARIES, _FLOODMARK))


def public(module: str) -> str:
    """The public name of a library's module: ``pathlib`` for ``pathlib._local``. Private modules differ between Python versions.

    The rooms of ``floodmark.spec`` are no part of a name: a declaration that moves to another room, or module, is the same to a fingerprint.
    """
    name = _ROOMS.sub(r"\1.", _SAME.get(module, module))
    name = _MOVED.get(name, name)
    parts = name.split(".")
    return ".".join(part for part in parts if not part.startswith("_")) or name.lstrip("_")


def name_of(value: Any) -> str:
    """``module.name`` of a function or class of a library, with the module's public name."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__)
    if isinstance(value, FunctionType) and value.__code__.co_filename != "<string>":
        name, home = value.__code__.co_qualname, value.__globals__.get("__name__", "")
    else:
        home = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", "")
    return f"{public(str(home))}.{name}" if home else str(name)


def load(module: str, package: str | None = None, level: int = 0) -> ModuleType | None:
    """Import a module of the user's; None if the import raises.

    Args:
        module: name of the module.
        package: package of the importing module, for a relative import.
        level: dots before the name; 0 for an absolute import.
    """
    try:
        return importlib.import_module("." * level + module, package) if level else importlib.import_module(module)
    except Exception:  # noqa: BLE001 - whatever a module of the user's raises when it is run
        return None


def is_builtin(name: str) -> bool:
    """True if a name is a builtin of Python: ``len``."""
    return hasattr(builtins, name)


def package_versions(names: set[str]) -> dict[str, str]:
    """{distribution: version} of the installed packages that provide modules.

    Args:
        names: top-level modules. Modules of Python and floodmark are ignored.
    """
    from importlib.metadata import PackageNotFoundError, packages_distributions, version  # noqa: PLC0415 - slow to import

    asked = {name for name in names if name not in sys.stdlib_module_names and name != "floodmark"}
    if not asked:
        return {}
    homes, versions_by_distribution = packages_distributions(), dict[str, str]()
    for name in sorted(asked):
        for distribution in sorted(set(homes.get(name, ()))):
            try:
                versions_by_distribution[distribution] = version(distribution)
            except PackageNotFoundError:
                continue
    return versions_by_distribution
