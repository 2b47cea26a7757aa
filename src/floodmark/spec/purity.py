"""What a function of the user reads beside its arguments: a clock, a random number, the network. A replay of it may say something else.

Read from the code of the function and of the helpers it calls, without running it; so it can miss what is hidden well, and says nothing
of what is only imported.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from floodmark.core.code import codes, names_in, variables

_ALWAYS = frozenset({"random", "secrets", "uuid", "socket", "requests", "httpx", "urllib", "http", "numpy.random"})
_SOMETIMES: Mapping[str, frozenset[str]] = {
    "time": frozenset(
        {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime", "gmtime"}
    ),
    "datetime": frozenset({"now", "utcnow", "today"}),
    "os": frozenset({"urandom", "environ", "getenv", "getpid"}),
    "numpy": frozenset({"random"}),
}


_TRUSTED = frozenset({"floodmark", "pyspark", "pyarrow", "numpy", "pandas", "pydantic"})
"""Libraries whose helpers are not looked into."""


def impurities(function: Callable[..., Any] | type) -> list[str]:
    """Names such as ``time.time`` or ``random``, in the order in which they are met; empty for a function of its arguments alone."""
    return list(dict.fromkeys(_found(function, set())))


def _found(function: Any, seen: set[int]) -> Iterator[str]:
    if id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(function, type):
        for member in vars(function).values():
            inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if isinstance(inner, FunctionType):
                yield from _found(inner, seen)
        return
    function = function.__func__ if isinstance(function, MethodType) else function
    if isinstance(function, FunctionType):
        known = variables(function)
        for code in codes(function.__code__):
            yield from _read(code, known, seen)


def _read(code: CodeType, known: Mapping[str, Any], seen: set[int]) -> Iterator[str]:
    steps = list(dis.get_instructions(code))
    attributes = {str(step.argval) for step in steps if step.opname in _ATTRIBUTES}
    for step in steps:
        if step.opname == "IMPORT_NAME":
            yield from _of_module(str(step.argval), attributes)
    for name in names_in(code):
        if name in known:
            yield from _judged(name, known[name], attributes, seen)


_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"})


def _judged(name: str, value: Any, names: set[str], seen: set[int]) -> Iterator[str]:
    """What a name stands for; ``names`` are the attributes that are read anywhere near."""
    if isinstance(value, ModuleType):
        yield from _of_module(value.__name__, names)
    elif value is datetime or value is date:
        yield from (f"{value.__name__}.{used}" for used in sorted(_SOMETIMES["datetime"] & names))
    elif callable(value):
        home, own = _home(value), getattr(value, "__name__", name)
        top = home.split(".")[0]
        if top in _ALWAYS or own in _SOMETIMES.get(home, ()):
            yield f"{home}.{own}"
        elif top not in sys.stdlib_module_names and top not in _TRUSTED:
            yield from _found(value, seen)


def _home(value: Any) -> str:
    """The module of a function; of a method bound to an object, such as ``random.random``, that of its class."""
    owner = getattr(value, "__self__", None)
    return str((value if owner is None or isinstance(owner, ModuleType) else type(owner)).__module__ or "")


def _of_module(module: str, names: set[str]) -> Iterator[str]:
    if not _ALWAYS.isdisjoint({module, module.split(".", 1)[0]}):
        yield module
    for used in sorted(_SOMETIMES.get(module, frozenset()) & names):
        yield f"{module}.{used}"
