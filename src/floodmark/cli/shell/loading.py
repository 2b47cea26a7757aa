"""Finds and loads the workspace around the current folder."""

from __future__ import annotations

import builtins
import importlib
import inspect
import linecache
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

import floodmark
from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation
from floodmark.core import machine
from floodmark.core.errors import DefinitionError, FloodmarkError, UserCodeError, shown
from floodmark.spec.workspace import Workspace

VARIABLES = "FLOODMARK_"
"""Prefix of the environment variables that ``resources/settings.py`` of a workspace reads."""
_DEFINITIONS = "definitions"
"""The module of definitions, unless ``[tool.floodmark]`` names another module, which may be installed elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedWorkspace:
    """A loaded workspace with every path made absolute.

    Args:
        root: the folder of the workspace's ``pyproject.toml``.
        workspace: sources, operators and settings.
        lake: root of the tables to act on.
        logs: root of another lake whose logs are read; None for logs in ``lake``.
    """

    root: Path
    workspace: Workspace
    lake: str
    logs: str | None

    @property
    def environment(self) -> str:
        """``dev`` or ``prod``."""
        return self.workspace.settings.environment


def open_workspace(invocation: Invocation, start: Path | None = None) -> LoadedWorkspace:
    """Find, import and build the workspace.

    Args:
        invocation: environment, and lake if the command line names one.
        start: the folder to search from, upwards; by default the current one.

    Raises:
        DefinitionError: DEFINITION-080, no workspace here or above; DEFINITION-081, no such module; DEFINITION-082, no ``workspace``
            function; DEFINITION-083, the function returns something else; and the codes of invalid definitions.
        SetupError: SETUP-050, the lake is a file.
        UserCodeError: USER-002, the workspace's own code raised.
    """
    root, name = find((start or current_folder()).resolve())
    module = _import(name, root)
    build = getattr(module, "workspace", None)
    if not callable(build):
        where = f"module '{name}' ({module.__file__})"
        fix = "Add: def workspace(environment: str) -> Workspace: return Workspace(sources=[...], operators=[...])."
        raise DefinitionError(where, "a function `workspace`", "none", fix, code="DEFINITION-082")
    if not _takes_environment(build):
        where, got = f"module '{name}' ({module.__file__})", f"workspace{inspect.signature(build)}"
        fix = "Let it take the environment: def workspace(environment: str) -> Workspace."
        raise DefinitionError(where, "a function `workspace` of one argument", got, fix, code="DEFINITION-082")
    with _UserCode(f"{name}.workspace({invocation.environment!r})", root):
        workspace = build(invocation.environment)
    if not isinstance(workspace, Workspace):
        fix = "Return floodmark.Workspace(sources=[...], operators=[...], settings=...)."
        where, got = f"{name}.workspace({invocation.environment!r})", type(workspace).__name__
        raise DefinitionError(where, "a Workspace", got, fix, code="DEFINITION-083")
    # relative paths of settings start at the workspace, those of the command line at the current folder
    lake = invocation.lake
    if lake is not None and "://" not in lake:
        lake = str(Path(lake).expanduser().resolve())
    workspace = workspace.at(str(root), lake=lake)
    for path in filter(None, (workspace.settings.lake, workspace.settings.logs)):
        machine.refuse_file(path, f"lake {path}")
    return LoadedWorkspace(root=root, workspace=workspace, lake=workspace.settings.lake, logs=workspace.settings.logs)


def opened_lake(invocation: Invocation, console: Console) -> LoadedWorkspace:
    """Open the workspace and print its lake. Every verb that writes does this first."""
    opened = open_workspace(invocation)
    console.lake(opened.lake, opened.environment)
    return opened


def _takes_environment(build: Callable[..., object]) -> bool:
    try:
        inspect.signature(build).bind("dev")
    except TypeError:
        return False
    return True


def current_folder() -> Path:
    """The current folder.

    Raises:
        DefinitionError: DEFINITION-080, the folder was removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        fix = "Go to your workspace's folder: cd"
        raise DefinitionError(
            "current folder", "one that exists", "one that was removed", fix, code="DEFINITION-080"
        ) from None


def find(start: Path) -> tuple[Path, str]:
    """(folder of the nearest ``pyproject.toml`` with ``[tool.floodmark]``, module of definitions that the file names).

    Raises:
        DefinitionError: DEFINITION-080, there is no such file; DEFINITION-084, the file is not TOML.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            settings = _settings(file)
            if settings is not None:
                return folder, str(settings.get("definitions", _DEFINITIONS))
    fix = "Go to your workspace's folder, or make one: `floodmark init shop`."
    expected = "a pyproject.toml with [tool.floodmark] here or in a folder above"
    raise DefinitionError(f"folder {start}", expected, "none", fix, code="DEFINITION-080")


def _settings(file: Path) -> dict[str, object] | None:
    try:
        settings = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("floodmark")
    except ValueError as error:  # no TOML, or no text at all
        raise DefinitionError(str(file), "TOML", str(error), "Correct that line.", code="DEFINITION-084") from None
    return settings if isinstance(settings, dict) else None


def _import(name: str, root: Path) -> ModuleType:
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        with _UserCode(f"module '{name}'", root):
            module = importlib.import_module(name)
    except ModuleNotFoundError:
        raise _no_module(name, root, "none") from None
    if name == _DEFINITIONS and not any(Path(place).resolve().is_relative_to(root) for place in _places(module)):
        raise _no_module(name, root, f"only that of another workspace, {', '.join(_places(module))}")
    return module


def _places(module: ModuleType) -> list[str]:
    """The file of a module, or the folders of a package without a file."""
    return [module.__file__] if module.__file__ else list(getattr(module, "__path__", ()))


def _no_module(name: str, root: Path, got: str) -> DefinitionError:
    fix = f"Create {root / name / '__init__.py'}, or correct `definitions` under [tool.floodmark]."
    where = f"{root / 'pyproject.toml'}"
    return DefinitionError(where, f"a module '{name}' below its folder", got, fix, code="DEFINITION-081")


class _UserCode:
    """A context for code of a workspace: floodmark's errors pass, any other exception becomes USER-002 with file and line of the user's code."""

    def __init__(self, where: str, root: Path) -> None:
        self.where, self.root = where, root

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, FloodmarkError) or not isinstance(error, Exception | SystemExit):
            return
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(self.root)]
        if isinstance(error, ModuleNotFoundError) and not frames:
            raise error
        code_line = f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else self.where
        if isinstance(error, SyntaxError) and error.filename:
            code_line = f"{error.filename}:{error.lineno}: {(error.text or '').strip()}"
        got = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        fix = f"See {code_line}"
        if isinstance(error, NameError) and error.name in floodmark.__all__:
            fix = f"Import it, from floodmark import {error.name}: {code_line}"
        elif isinstance(error, TypeError) and (name := _builtin_called(error, self.root)):
            fix = f"{name} is Python's own here. Import floodmark's, from floodmark import {name}: {code_line}"
        elif isinstance(error, ValidationError):
            got = "; ".join(_violations(error))
            variables = [name for name in _variables(error) if name in os.environ]
            fix = f"Correct {' and '.join(variables)} in the environment. {fix}" if variables else fix
        raise UserCodeError(self.where, "code that runs", got, fix, code="USER-002") from error


def _builtin_called(error: TypeError, root: Path) -> str:
    """The builtin, such as ``sum``, that the user's last line calls where an aggregate of the same name is meant; empty if there is none."""
    traces = []
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).is_relative_to(root):
            traces.append(trace)
        trace = trace.tb_next
    if not traces:
        return ""
    frame = traces[-1].tb_frame
    line = linecache.getline(frame.f_code.co_filename, traces[-1].tb_lineno)
    own = [name for name in floodmark.__all__ if hasattr(builtins, name) and name not in frame.f_globals]
    return next((name for name in own if re.search(rf"(?<![\w.]){name}\(", line)), "")


def _violations(error: ValidationError) -> Iterator[str]:
    """``field: what is wrong, got value`` of each violation."""
    for violation in error.errors():
        field = ".".join(map(str, violation["loc"])) or error.title
        yield f"{field}: {violation['msg']}, got {shown(violation['input'])}"


def _variables(error: ValidationError) -> list[str]:
    """Names of the environment variables that the settings of a workspace read for the violated fields."""
    return [f"{VARIABLES}{violation['loc'][0]}".upper() for violation in error.errors() if violation["loc"]]
