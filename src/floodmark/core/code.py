"""The code of a function or class of the user, with that of what it uses: two are taken for the same only when they must do the same.

What counts: source without comments, formatting and docstrings; values of the variables around it; helpers and constants of the user's
modules, and theirs in turn. Of libraries the name counts.
"""

from __future__ import annotations

import ast
import dis
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from floodmark.core.errors import DefinitionError

_NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})
_PLACES = tuple(
    str(Path(path).resolve())
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)
_OURS = str(Path(__file__).resolve().parent.parent)


def code_of(function: Callable[..., Any] | type) -> str:
    """Text that is another one when the function, or anything of the user's that it uses, is.

    Raises:
        DefinitionError: DEFINITION-003, the source cannot be read (typed at a prompt), so its changes could not be seen.
    """
    if isinstance(function, partial) or not (isinstance(function, type) or hasattr(function, "__code__")):
        return _text(function, set())
    plain = function.__func__ if isinstance(function, MethodType) else function
    return _with_uses(plain, {id(plain)})


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those inside it: comprehensions, inner functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def variables(function: FunctionType) -> dict[str, Any]:
    """What the names outside a function stand for; without those that have no value yet."""
    found = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not filled yet
            found.pop(name, None)
    return found


def names_in(code: CodeType) -> list[str]:
    """The names outside of it that a code object reads, in order."""
    return [str(step.argval) for step in dis.get_instructions(code) if step.opname in _NAMES]


def _with_uses(function: Any, seen: set[int]) -> str:
    lines = [_source(function)]
    for name, value in sorted(_uses(function).items()):
        lines.append(f"{name} = {_text(value, seen)}")
    return "\n".join(lines)


def _uses(function: Any) -> dict[str, Any]:
    """Name -> value of what a function, or the methods of a class, read beside their arguments."""
    if isinstance(function, type):
        members = (m.__func__ if isinstance(m, staticmethod | classmethod) else m for m in vars(function).values())
        found = {base.__qualname__: base for base in function.__bases__ if base is not object}
        for member in members:
            if isinstance(member, FunctionType):
                found |= _uses(member)
        return {name: value for name, value in found.items() if value is not function}
    known = variables(function)
    return {name: known[name] for code in codes(function.__code__) for name in names_in(code) if name in known}


def _text(value: Any, seen: set[int]) -> str:
    """A value as text that does not depend on the process."""
    match value:
        case None | bool() | int() | float() | str() | bytes() | Enum():
            return repr(value)
        case tuple() | list():
            return f"[{', '.join(_text(one, seen) for one in value)}]"
        case set() | frozenset():
            return f"{{{', '.join(sorted(_text(one, seen) for one in value))}}}"
        case Mapping():
            return f"{{{', '.join(sorted(f'{_text(k, seen)}: {_text(v, seen)}' for k, v in value.items()))}}}"
        case type() | FunctionType():
            return _definition(value, seen)
        case _:
            return _object(value, seen)


def _definition(value: type | FunctionType, seen: set[int]) -> str:
    """A function or class: that of a library by its name."""
    name = f"{value.__module__}.{value.__qualname__}"
    if id(value) in seen or _of_library(value):
        return name
    seen.add(id(value))
    try:
        return f"{name}: {_with_uses(value, seen)}"
    except DefinitionError:  # made by a program: what it compiles to has to do
        return f"{name}: {_compiled(value, seen)}"


def _compiled(value: type | FunctionType, seen: set[int]) -> str:
    if isinstance(value, type):
        members = {name: member for name, member in vars(value).items() if isinstance(member, FunctionType)}
        return _text({name: f"{_compiled(member, seen)}" for name, member in members.items()}, seen)
    constants = [one for one in value.__code__.co_consts if not isinstance(one, CodeType)]
    return f"{value.__code__.co_code.hex()} {_text(constants, seen)}"


def _object(value: Any, seen: set[int]) -> str:
    """Any other object: what it says of itself, where that is a library's; its class and what it holds, where it is the user's."""
    match value:
        case ModuleType():
            return f"module {value.__name__}"
        case partial():
            return f"partial({_text(value.func, seen)}, {_text(value.args, seen)}, {_text(value.keywords, seen)})"
        case MethodType():
            return f"{_text(value.__func__, seen)} of {_text(value.__self__, seen)}"
    if callable(value) and hasattr(value, "__name__") and not hasattr(value, "__dict__"):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"  # built in
    name = _text(type(value), seen)
    if id(value) in seen:
        return name
    seen.add(id(value))
    if _of_library(type(value)):
        said = repr(value)
        return name if " at 0x" in said else f"{name} {said}"
    slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
    held = {slot: getattr(value, slot, None) for slot in slots} | getattr(value, "__dict__", {})
    return f"{name} {_text(held, seen)}"


def _of_library(value: type | FunctionType) -> bool:
    """Whether something belongs to Python, to an installed package or to floodmark."""
    file = getattr(sys.modules.get(value.__module__), "__file__", None)
    return value.__module__ in sys.builtin_module_names if file is None else _installed(file)


@cache
def _installed(file: str) -> bool:
    return str(Path(file).resolve()).startswith((*_PLACES, _OURS))


def _source(function: Callable[..., Any] | type) -> str:
    where = f"function '{getattr(function, '__qualname__', function)}'"
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        fix = "Define it in a module of your operators/ folder; its source is part of the version."
        raise DefinitionError(where, "readable source", "none", fix, code="DEFINITION-003") from None
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a lambda inside a larger expression: its surrounding lines have to do
        return text.strip()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]  # checked to exist just above
    return ast.unparse(tree)
