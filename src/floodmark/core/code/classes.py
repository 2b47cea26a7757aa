"""Classes: telling the members that the user wrote from those that Python and libraries add."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from enum import EnumMeta
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from floodmark.core.code.origin import of_library
from floodmark.core.code.source import source_of
from floodmark.core.code.where import Where, cells

_NOT_MEMBERS = frozenset(
    {
        "__module__",
        "__qualname__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__slots__",
        "__slotnames__",
        "__annotations__",
        "__hash__",
    }
    | {"__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotations_cache__", "__classdictcell__"}
    | {
        "__dataclass_params__",
        "__dataclass_fields__",
        "__match_args__",
        "__parameters__",
        "__orig_bases__",
        "__type_params__",
    }
    | {"__abstractmethods__", "_abc_impl", "__protocol_attrs__", "_is_protocol", "__non_callable_proto_members__"}
    | {
        "_is_runtime_protocol",
        "__attrs_attrs__",
        "__attrs_own_setattr__",
        "__signature__",
        "__class_vars__",
        "__private_attributes__",
    }
)
_FIELDS = ("__dataclass_fields__", "_field_defaults", "__attrs_attrs__", "__total__")
"""Attributes of a class whose annotations are its fields."""


def plain(member: Any) -> Any:
    """(member of a class) -> the function of a method or property; any other member unchanged."""
    if isinstance(member, property):
        return member.fget
    inner = getattr(member, "__func__", None) or getattr(member, "func", None) or member
    return inner if isinstance(inner, FunctionType) else member


def methods_of(kind: type) -> list[FunctionType]:
    """The functions of the methods and properties of a class."""
    return [m for m in map(plain, vars(kind).values()) if isinstance(m, FunctionType)]


def node_of(kind: type, where: Where) -> ast.ClassDef | None:
    """The definition of a class in its file."""
    methods = methods_of(kind)
    file = file_of(kind, methods)
    lines = [m.__code__.co_firstlineno for m in methods if m.__code__.co_filename == file]
    return None if where.source is None else where.source.of_class(kind.__qualname__, lines)


def inherited(classes: list[tuple[type, Where]]) -> Iterator[tuple[str, Any, Where]]:
    """The members of a class and its bases by name, those of a class before those of its bases: where they stand does not count."""
    members = [(name, member, home) for kind, home in classes for name, member in _members(kind)]
    yield from sorted(members, key=lambda member: member[0])


def file_of(kind: type, methods: Iterable[FunctionType]) -> str:
    """The file of a class: that of its methods, as another module may have taken the name of its own since."""
    files = [m.__code__.co_filename for m in methods if m.__module__ == kind.__module__ and not of_library(m)]
    files = [file for file in files if not file.startswith("<")] or files
    return files[0] if files else str(getattr(sys.modules.get(kind.__module__), "__file__", "") or "")


def where_of(kind: type, where: Where) -> Where:
    """Variables, cells and source in which a class's body was run; by default those of the code that uses the class."""
    methods = [m for m in methods_of(kind) if m.__module__ == kind.__module__]
    taken: dict[str, Any] = {}
    for method in methods:
        taken |= cells(method)
    own = next(
        (m.__globals__ for m in methods if not of_library(m) and m.__globals__.get("__name__") == kind.__module__), None
    )
    module = sys.modules.get(kind.__module__)
    variables = own if own is not None else where.variables if module is None else vars(module)
    file = file_of(kind, methods)
    return Where(variables=variables, cells=taken, source=source_of(file, dict(variables)) if file else None)


def is_generated(kind: type, name: str, member: FunctionType) -> bool:
    """Whether a method was written by a library for the fields of a class, or comes with its kind."""
    if of_library(member):
        return name.startswith("__") or isinstance(kind, EnumMeta)
    return member.__code__.co_filename.startswith("<") and any(hasattr(kind, name) for name in _FIELDS)


def is_annotated(kind: type, node: ast.ClassDef) -> bool:
    """Whether the annotations of a class are read when it is made."""
    based = any(base is not object and not of_library(base) for base in kind.__bases__)
    hooked = based and "__init_subclass__" in {n for base in kind.__mro__ if not of_library(base) for n in vars(base)}
    return bool(node.decorator_list) or hooked or _foreign(kind) or any(hasattr(kind, name) for name in _FIELDS)


def _foreign(kind: type) -> bool:
    """Whether a class is made by a metaclass that may do anything, such as pydantic's."""
    return type(kind).__module__ not in {"builtins", "abc", "enum", "typing", "_typing"}


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """(name, member) of the members that a class itself defines, sorted by name."""
    if isinstance(kind, EnumMeta):
        enumerated: dict[str, Any] = dict(kind.__members__)
        yield "__members__", [(name, entry.value) for name, entry in enumerated.items()]
    fields = getattr(kind, "_fields", ()) if hasattr(kind, "_field_defaults") else ()
    if "_fields" in vars(kind) and fields:
        yield "_fields", fields
        yield "_field_defaults", kind._field_defaults  # type: ignore[attr-defined]  # of a named tuple
    for name, member in sorted(vars(kind).items()):
        function = plain(member)
        if (
            name in _NOT_MEMBERS
            or isinstance(member, (MemberDescriptorType, GetSetDescriptorType))
            or _declared(member)
        ):
            continue
        if isinstance(function, FunctionType):
            if not is_generated(kind, name, function):
                yield name, member
        elif not _about_kind(kind, name, member, fields):
            yield name, member


def _declared(member: Any) -> bool:
    """Whether a member is one of floodmark's states and timers, which the graph describes itself."""
    return type(member).__module__.startswith("floodmark.") and hasattr(type(member), "__set_name__")


def _about_kind(kind: type, name: str, member: Any, fields: tuple[str, ...]) -> bool:
    """Whether a member that is no method only says of which kind a class is."""
    if isinstance(kind, EnumMeta):
        return name in kind.__members__ or name.startswith("_")
    if fields and (name in fields or name in {"_fields", "_field_defaults", "_make", "__getnewargs__", "__replace__"}):
        return True
    if _foreign(kind):
        return name.startswith(("__", "model_", "_abc")) or (
            of_library(type(member)) and type(member).__module__ != "builtins"
        )
    return name == "__hash__"
